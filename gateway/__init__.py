"""What kubectl sees: a Kubernetes-compatible API server as plain ASGI."""
