"""What a request says: its path, its body, its names and selectors, and the Status that refuses it."""
