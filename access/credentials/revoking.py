"""Ends credentials one by one: the anchor Secret goes, and with it the token within 10 s (the API server's cache)."""

from __future__ import annotations

from datetime import datetime

from access.models import Credential
from audit.recorder import Actor


def credential_revoke(*, actor: Actor, jti: str, now: datetime) -> Credential:
    """Revoke one credential; whoever it was issued to and the tenant's admins may. Twice is once.

    ``revocation_confirmed_at`` is set only when the cluster showed that the anchor is gone; else a worker goes on.
    Raises ``NotFound``.
    """
    raise NotImplementedError


def credentials_expire(*, now: datetime) -> int:
    """Delete the anchors of ended credentials that are still there; how many were confirmed (a worker's sweep)."""
    raise NotImplementedError
