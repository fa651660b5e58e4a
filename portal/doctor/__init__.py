"""Whether an installation is well: what was looked at, what is wrong with it, and the one sentence that mends it."""
