"""What every request passes before it is handled: resolution, throttling, authorization; and its record."""
