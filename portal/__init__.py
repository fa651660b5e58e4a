"""What people see: pages, REST API, admin, sign-in, and the quickstart."""
