"""What registered clusters ask the product, at ``/webhooks/<cluster>/`` (GW17)."""
