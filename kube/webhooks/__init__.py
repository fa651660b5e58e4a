"""What a registered cluster asks the product's webhooks, and where the wall between tenants stands there (GW17)."""
