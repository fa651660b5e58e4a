"""The command ``tenantry``: a portal's REST API for people and pipelines."""
