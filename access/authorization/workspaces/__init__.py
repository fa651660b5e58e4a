"""Who may be in a workspace at all, and what the provider of a bound API lets be done with it."""
