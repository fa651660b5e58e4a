"""The log of API requests: its records, its partitions, and whose records a full day still takes."""
