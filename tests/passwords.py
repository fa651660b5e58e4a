"""The product's password hash at the least cost, for tests that sign in many times."""

from django.contrib.auth.hashers import Argon2PasswordHasher


class QuickArgon2(Argon2PasswordHasher):
    """The same algorithm and format; not slow on purpose."""

    time_cost = 1
    memory_cost = 64
    parallelism = 1
