"""Tiers as cards show them."""

from __future__ import annotations

from typing import Any

from portal.pages import labels, meters
from tenants.models import Tier


def tier_card(tier: Tier) -> dict[str, Any]:
    """A tier as a card draws it."""
    state = labels.State(labels.ALLOW, "Offered") if tier.is_available else labels.State(labels.PASS, "Withdrawn")
    return {
        "id": tier.name,
        "name": str(tier),
        "description": tier.description,
        "per_user": tier.workspaces_per_user,
        "quota": [(meter.resource, meter.hard) for meter in meters.meters_of(tier.quota, None)][:6],
        "state": state,
    }
