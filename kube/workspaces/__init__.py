"""Logical clusters in logical clusters: workspaces, and the APIs exported from one to another."""
