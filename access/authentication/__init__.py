"""Who is asking: one authenticator per file, the order written once in chain."""
