"""Whose it is: tenants and their members, tiers, clusters, workspaces and the operations that make them true."""
