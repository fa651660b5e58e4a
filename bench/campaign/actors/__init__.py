"""Who uses the product while it is hurt, and notes what he was told."""
