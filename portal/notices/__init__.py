"""Sending what people and machines are told: e-mail, and signed messages to webhooks."""
