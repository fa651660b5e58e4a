"""What Tenantry adds to admission: tenants, workspaces, and the APIs that they share."""
