"""The people and tiers of the floor below."""

from tests.tenants.conftest import _sealing_keys, tiers

__all__ = ["_sealing_keys", "tiers"]
