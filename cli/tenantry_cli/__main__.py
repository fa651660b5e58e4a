"""``python -m tenantry_cli``."""

from tenantry_cli.main import main

main()
