"""Who may: one authorizer per file, the order written once in chain."""
