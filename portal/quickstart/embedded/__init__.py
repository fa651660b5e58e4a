"""PostgreSQL and Redis from wheels, for the quickstart and the tests."""
