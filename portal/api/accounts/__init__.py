"""Accounts for operators' automation, and everybody's own sessions."""
