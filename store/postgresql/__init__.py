"""What PostgreSQL is asked, and over which connections."""
