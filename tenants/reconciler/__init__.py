"""Desired state made true on clusters: the operation queue and what its operations do."""
