"""The REST API: a translator around the services of the floors below."""
