"""The change log: who writes it, who follows it, and how long it is kept."""
