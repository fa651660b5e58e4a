"""The wire: connections, TLS, messages, bodies, and what client and server agree to speak."""
