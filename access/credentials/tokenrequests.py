"""Asks a cluster for a token of a workspace's own account, and looks at what comes: whose, ended by what, how long.

Nothing is believed because the cluster said it: it may be hostile, and its answer may be for somebody else.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.views.decorators.debug import sensitive_variables

from tenants.clusters import objects
from tenants.clusters.client import Answer, ClusterClient, Outcome
from tenants.models import Workspace

SECONDS: Final = 7200
"""The life of a credential, in seconds: a hard limit (GW3)."""

_LEEWAY: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class ClusterToken:
    """What the cluster issued."""

    text: str = field(repr=False)
    jti: str | None
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Anchor:
    """The Secret that a token is bound to: it goes with it."""

    name: str
    uid: str


class BrokenPromise(Exception):
    """The cluster did not do as agreed; the text is for people and holds nothing secret."""


class Unreached(BrokenPromise):
    """It has given no answer at all: whoever asks it for something else now will not get one either."""


@sensitive_variables()
def token_request(
    client: ClusterClient,
    workspace: Workspace,
    *,
    account: str,
    now: datetime,
    anchor: Anchor | None = None,
    life: timedelta = timedelta(seconds=SECONDS),
) -> ClusterToken:
    """A token of one of the workspace's accounts, which ends within ``life``. Raises ``BrokenPromise``."""
    uid = workspace.service_accounts.get(account, "")
    spec: dict[str, Any] = {"expirationSeconds": int(life.total_seconds())}
    bound: dict[str, Any] = {
        "namespace": workspace.k8s_namespace,
        "serviceaccount": {"name": account, "uid": uid},
    }
    if anchor is not None:
        bound["secret"] = {"name": anchor.name, "uid": anchor.uid}
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Secret", **bound["secret"]}
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        # With the uid a replaced account answers 409 instead of issuing (P5).
        "metadata": {
            "name": account,
            "namespace": workspace.k8s_namespace,
            "uid": uid,
        },
        "spec": spec,
    }
    path = objects.path(workspace, "serviceaccounts", account, sub="token")
    status = require_done(client.create(path, body)).body.get("status")
    text = status.get("token") if isinstance(status, dict) else None
    stamp = status.get("expirationTimestamp") if isinstance(status, dict) else None
    claims = _claims(text)
    try:
        expires_at = datetime.fromisoformat(str(stamp)).astimezone(UTC)
        lasts = datetime.fromtimestamp(int(claims["exp"]), UTC)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BrokenPromise("The cluster's token does not say when it ends.") from None
    if not now < expires_at <= now + life + _LEEWAY or lasts > expires_at + _LEEWAY:
        raise BrokenPromise("The cluster's token does not end within the time that was asked for.")
    if claims.get("sub") != f"system:serviceaccount:{workspace.k8s_namespace}:{account}":
        raise BrokenPromise("The cluster issued somebody else's token.")
    about = claims.get("kubernetes.io")
    if not isinstance(about, dict) or any(about.get(kind) != meant for kind, meant in bound.items()):
        raise BrokenPromise("The cluster's token is not bound to its account and its anchor: it could not be revoked.")
    jti = claims.get("jti")
    return ClusterToken(
        str(text), jti if isinstance(jti, str) and 0 < len(jti) <= 64 and jti.isprintable() else None, expires_at
    )


def require_done(answer: Answer) -> Answer:
    """``answer``, if it is of what was asked. Raises ``BrokenPromise``."""
    if not answer.reached:
        raise Unreached(answer.message)
    if answer.outcome is not Outcome.DONE:
        raise BrokenPromise(answer.message or "The cluster's state changed in between.")
    return answer


@sensitive_variables()
def _claims(token: object) -> dict[str, Any]:
    """The claims of a JWT, unverified: the cluster that answered over TLS is the one that made it."""
    try:
        payload = str(token).split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, RecursionError):
        raise BrokenPromise("The cluster's answer held no token.") from None
    if not isinstance(claims, dict) or not str(token).isascii() or len(str(token)) > 16_384:
        raise BrokenPromise("The cluster's answer held no token.")
    return claims
