"""What the objects of a tenant may be: the rules of its tier, and its own in their place (AD4, AD5)."""
