"""Tenants, tiers and members as files say they are to be."""
