"""Who, and which workspace, has not been used for long (GW28). Both cost what a page shows, whatever there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import Exists, Max, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Greatest

from access.models import Credential, Login, PersonalAccessToken
from kube.requests.status import BadRequest
from tenants.models import PortalSession, Status, UsageHour, User, Workspace

_TRACES: Final[Sequence[tuple[Any, str, str]]] = (
    (PortalSession, "user", "last_used_at"),
    (Login, "user", "last_used_at"),
    (Login, "user", "redeemed_at"),
    (PersonalAccessToken, "user", "last_used_at"),
    (Credential, "issued_to", "issued_at"),
)
"""What a person leaves behind, beside the last sign-in. A credential lives for two hours from its issue on."""


@dataclass(frozen=True, slots=True)
class DormantPerson:
    """An account that may sign in, and of which nothing was used; ``last_used_at`` as far as it is known."""

    id: UUID
    email: str
    name: str
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True, slots=True)
class DormantWorkspace:
    """A workspace that nobody asked the API server about, and for which no credential was issued."""

    id: UUID
    tenant: str
    name: str
    namespace: str
    owner: str
    created_at: datetime
    last_used_at: datetime | None


def people_dormant(*, since: datetime, after: str = "", limit: int) -> tuple[list[DormantPerson], str]:
    """Accounts from before ``since`` without a sign-in, session, machine, token or credential in use since then.

    By e-mail address, and the cursor of the next ones.
    """
    rows = User.objects.filter(status=User.Status.ACTIVE, created_at__lt=since, email__gt=after)
    rows = rows.filter(Q(last_login=None) | Q(last_login__lt=since))
    latest = []
    for model, owner, moment in _TRACES:
        of = model.objects.filter(**{owner: OuterRef("pk")})
        rows = rows.exclude(Exists(of.filter(**{f"{moment}__gte": since})))
        latest.append(Subquery(of.order_by().values(owner).annotate(last=Max(moment)).values("last")))
    found = list(rows.annotate(last_used_at=Greatest("last_login", *latest)).order_by("email")[: limit + 1])
    page = [DormantPerson(each.pk, each.email, each.name, each.created_at, each.last_used_at) for each in found[:limit]]
    return page, page[-1].email if len(found) > limit else ""


def workspaces_dormant(*, since: datetime, after: str = "", limit: int) -> tuple[list[DormantWorkspace], str]:
    """Workspaces from before ``since`` without a request through the API server, or a credential issued, since then.

    By the hours of use: what was not counted yet is unknown, and so is what comes to a cluster past the API server. By
    tenant and name, and the cursor of the next ones. Raises ``BadRequest`` for a foreign cursor.
    """
    rows = Workspace.objects.filter(created_at__lt=since).exclude(status=Status.DELETED)
    if after:
        tenant, slash, name = after.partition("/")
        if not slash:
            raise BadRequest("The cursor did not come from here.")
        rows = rows.filter(Q(tenant_id=tenant, name__gt=name) | Q(tenant_id__gt=tenant), tenant_id__gte=tenant)
    rows = rows.exclude(Exists(_used_hours().filter(hour__gte=since)))
    last = Subquery(_used_hours().order_by("-hour").values("hour")[:1])
    rows = rows.select_related("user").annotate(last_used_at=last).order_by("tenant_id", "name")
    found = list(rows[: limit + 1])
    page = [
        DormantWorkspace(
            each.pk, each.tenant_id, each.name, each.k8s_namespace, each.user.email, each.created_at, each.last_used_at
        )
        for each in found[:limit]
    ]
    return page, f"{page[-1].tenant}/{page[-1].name}" if len(found) > limit else ""


def _used_hours() -> QuerySet[UsageHour]:
    """The hours in which the workspace of the outer query was used, from its beginning on."""
    rows = UsageHour.objects.filter(tenant=OuterRef("tenant_id"), namespace=OuterRef("k8s_namespace"))
    return rows.filter(Q(requests__gt=0) | Q(credentials__gt=0), hour__gte=OuterRef("created_at"))
