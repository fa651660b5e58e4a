"""What is shown in a pod through the door, kept while it is shown (GW21)."""
