"""What clients ask first: discovery and the OpenAPI documents of a space."""
