"""What is kept: API objects of every space, their revisions, and the change log that watches read."""
