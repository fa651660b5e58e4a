"""What pages are made of: forms, labels, meters, plots, progress, navigation."""
