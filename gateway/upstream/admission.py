"""What a write to a placed namespace must pass before it goes to the cluster.

A cluster judges who gives rights away by the token that the request carries: what is the person's to give is asked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.upstream.placements import Placement
from kube.authentication.identity import Principal
from kube.authorization.rbac import GROUP
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Forbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedWrite:
    """A write on its way to a cluster: who, what and where, the body's bytes, and what kind of bytes they are.

    ``role`` is that of the account whose token it carries, ``membership`` the highest that the caller's part in the
    tenant gives (empty: none).
    """

    principal: Principal
    info: RequestInfo
    placement: Placement
    role: str
    membership: str
    media: bytes
    body: bytes


class PlacedAdmission(Protocol):
    """One condition that every write to a placed namespace must meet."""

    async def admit(self, write: PlacedWrite) -> None:
        """Raise a ``StatusError`` to refuse. Called for creations, updates, patches and deletions, dry runs too."""
        ...


class RightsAreGivenByMembers:
    """Roles and RoleBindings are written by those whose membership gives them the account that the cluster judges by.

    Anybody else could give away what only that account holds.
    """

    async def admit(self, write: PlacedWrite) -> None:
        """Raise ``Forbidden``."""
        info = write.info
        if info.group == GROUP and info.verb != "delete" and write.membership != "admin":
            raise Forbidden(
                f'{info.resource}.{GROUP} "{info.name}" is forbidden: rights in the namespace "{info.namespace}" are '
                "given by admins and owners of the tenant",
                group=GROUP,
                kind=info.resource,
                name=info.name,
            )


PLACED_ADMISSION: Sequence[PlacedAdmission] = (RightsAreGivenByMembers(),)
