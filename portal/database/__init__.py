"""The portal's walls inside PostgreSQL: roles, their rights, and whose rows a request may see."""
