"""Warnings: what is accepted of an object and answered with a word of advice."""
