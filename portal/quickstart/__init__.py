"""Everything on one machine by one command, ``manage.py quickstart``."""
