"""Requests about all namespaces of a space of which some are stored and some are placed (GW4)."""

from gateway.handlers.acrossnamespaces.listing import is_token, list_
from gateway.handlers.acrossnamespaces.parts import CHANGED
from gateway.handlers.acrossnamespaces.watching import watch

__all__ = ["CHANGED", "is_token", "list_", "watch"]
