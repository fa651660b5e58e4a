"""Who shows nothing is nobody: ``system:anonymous``, where that is configured (AN11)."""

from __future__ import annotations

from typing import Final

from access.authentication.base import Credentials
from kube.authentication.identity import ANONYMOUS, UNAUTHENTICATED, Principal

NOBODY: Final = Principal(name=ANONYMOUS, groups=(UNAUTHENTICATED,), tenant=None, authenticator="anonymous")
"""The anonymous user. It belongs to no tenant."""


class AnonymousAuthenticator:
    """Accepts requests without any credential. A wrong credential is never turned into anonymity."""

    name = "anonymous"

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:  # noqa: ARG002
        """``system:anonymous`` when nothing was shown."""
        if credentials.certificate is None and credentials.authorization is None:
            return NOBODY
        return None
