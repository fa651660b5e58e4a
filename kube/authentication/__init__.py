"""Who: identities, and what certificates, tokens, files and headers say about them."""
