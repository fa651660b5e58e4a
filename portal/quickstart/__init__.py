"""Everything on one machine by one command (contract.md, ``manage.py quickstart``)."""
