"""What comes before every mode: suspension, the isolation of tenants and the grants across it, what is the server's alone."""
