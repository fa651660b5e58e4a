"""Placed namespaces: what API servers follow on clusters and bring there, and what they keep of it."""
