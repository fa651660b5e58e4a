"""What one API server process holds: its parts, and what it keeps in memory about suspensions, streams and counts."""
