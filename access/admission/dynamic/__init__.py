"""What operators add while the server runs: admission policies in CEL and webhooks, asked about requests in the system space."""
