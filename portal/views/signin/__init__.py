"""Pages of signing in: by password, by OpenID Connect, and for kubectl."""
