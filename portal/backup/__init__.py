"""Backups of the whole installation, and the way back, which begins behind closed doors (P12)."""
