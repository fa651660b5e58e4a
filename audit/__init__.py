"""What happened: an append-only record of every security event, chained by hashes (GW13)."""
