"""Kubernetes' audit log: its policy, and its events (``audit.k8s.io/v1``)."""
