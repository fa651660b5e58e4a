"""The modes of ``--authorization-mode``: RBAC, ABAC, Node, Webhook, and Keystone's roles."""
