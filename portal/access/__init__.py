"""Questions about rights: explanations, who can, what if, token inspection, and who reads which audit log."""
