"""Routes of what operators do with the whole house."""
