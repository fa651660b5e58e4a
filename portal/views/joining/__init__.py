"""How people come to tenants."""
