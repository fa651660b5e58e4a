"""Pages of what is in a workspace: lists, objects, logs, and the little that is changed here."""
