"""May they: RBAC, ABAC and node rules as decisions, and the questions asked about decisions."""
