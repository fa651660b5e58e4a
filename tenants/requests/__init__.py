"""What people ask for and others decide: who may decide what, and who sees it."""
