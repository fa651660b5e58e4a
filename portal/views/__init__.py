"""Pages: they read by selectors, write by services and draw templates; nothing is decided here."""
