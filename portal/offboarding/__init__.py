"""What a tenant's people take along: one archive of what they may read (GW28)."""
