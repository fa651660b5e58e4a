"""Pages of what people ask each other for, and of what waits for a person."""
