"""Issues kubeconfigs, in the one order that leaves no unrecorded token (GW3, GW9).

Ownership → active, under the row's lock → rate limit → intent committed → anchor → token → checked → outcome → YAML.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from access.models import Credential
from audit.recorder import Actor


@dataclass(frozen=True, slots=True)
class Issued:
    """A kubeconfig: ``yaml`` is for the one answer that carries it (``application/x-yaml``, ``no-store``)."""

    credential: Credential
    yaml: str = field(repr=False)


def kubeconfig_issue(*, actor: Actor, workspace_id: UUID, role: str = "", now: datetime) -> Issued:
    """A kubeconfig for a workspace, good for two hours at most.

    ``role`` is ``admin``, ``editor`` or ``viewer``, by default the highest that the actor's membership allows.
    Raises ``NotFound`` for a workspace that is not the actor's to know of, ``Forbidden`` for a role above the actor's,
    ``Conflict`` while it is not ready or suspended, ``TooManyRequests``, ``ServiceUnavailable`` when the cluster
    cannot be reached or does not answer as agreed; then nothing is left behind.
    """
    raise NotImplementedError
