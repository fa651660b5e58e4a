"""What is acceptable: one plugin per file, the order written once in chain."""
