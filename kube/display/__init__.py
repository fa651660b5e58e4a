"""How Kubernetes' objects are shown to people: text made harmless, YAML, facts, kinds in order, kubectl's commands."""
