"""Reads for the portal: every one scoped by who asks, with a fixed number of queries however much there is."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import (
    Case,
    Count,
    DateTimeField,
    Exists,
    F,
    Func,
    IntegerField,
    Max,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Value,
    When,
)
from django.db.models.functions import Now

from audit.recorder import Actor
from audit.selectors import PAGE_LIMIT, Page, page_of
from kube.requests.status import BadRequest, Cause, Invalid, NotFound
from tenants.clusters.selfcheck import EXPIRES_SOON
from tenants.models import (
    Cluster,
    ClusterProbe,
    Freeze,
    Membership,
    Operation,
    OperationState,
    Phase,
    Role,
    Status,
    Tenant,
    TenantState,
    Tier,
    User,
    Workspace,
)
from tenants.rights import require_overseer, require_role, role_at_least, role_of

_LIVING: Final = (OperationState.PENDING, OperationState.RUNNING, OperationState.FAILED)
COUNTED: Final = 10_000
"""What is counted at most: a page must not read a whole table for a number."""


@dataclass(frozen=True, slots=True)
class Overview:
    """The numbers of the first page; ``COUNTED`` says that there are so many or more."""

    workspaces: int
    ready: int
    working: int
    suspended: int
    failed: int
    tenants: int


def tenants_visible_to(actor: Actor) -> QuerySet[Tenant]:
    """The tenants that the actor is a member of; operators see all."""
    rows = Tenant.objects.all()
    if actor.sees_all:
        return rows
    if actor.user_id is None:
        return rows.none()
    return rows.filter(Exists(Membership.objects.filter(user_id=actor.user_id, tenant_id=OuterRef("pk"))))


def tenants_open_to(actor: Actor) -> QuerySet[Tenant]:
    """Those of them in which the actor may change something as far as doors go (``require_open``)."""
    rows = tenants_visible_to(actor)
    if actor.operator:
        return rows
    return rows.filter(state=TenantState.ACTIVE).exclude(pk__in=Freeze.objects.filter(workspace=None).values("tenant"))


def tenants_found(actor: Actor, *, search: str = "") -> QuerySet[Tenant]:
    """Those of which ``search`` is any part of a name."""
    rows = tenants_visible_to(actor)
    return (
        rows.filter(Q(name__contains=search.lower()[:63]) | Q(display_name__icontains=search[:128])) if search else rows
    )


def tenants_page(
    actor: Actor,
    *,
    name: str = "",
    search: str = "",
    managed_by: str = "",
    state: str = "",
    after: str = "",
    limit: int = 50,
    descending: bool = False,
) -> list[Tenant]:
    """Tenants by name behind ``after`` (the last name of the page before); ``search`` is any part of a name.

    ``name`` is the only one that is meant, ``managed_by`` the declaration that made them; ``descending`` begins with the
    last name.

    Each has ``workspace_count``, ``member_count`` and ``is_frozen``. Three queries.
    """
    rows = tenants_found(actor, search=search)
    if name:
        rows = rows.filter(name=name)
    if after:
        rows = rows.filter(name__lt=after) if descending else rows.filter(name__gt=after)
    if managed_by:
        rows = rows.filter(managed_by=managed_by)
    if state:
        rows = rows.filter(state=state)
    of_all = Freeze.objects.filter(tenant=OuterRef("pk"), workspace=None)
    rows = rows.select_related("offboarding").annotate(is_frozen=Exists(of_all))
    found: list[Tenant] = list(rows.order_by("-name" if descending else "name")[: max(1, min(limit, 200))])
    names = [tenant.name for tenant in found]
    # Two grouped counts over the page alone: joined counts would multiply, and counting all tenants would not end.
    workspaces = dict(
        Workspace.objects.filter(tenant_id__in=names)
        .exclude(phase=Phase.DELETED)
        .values_list("tenant_id")
        .annotate(Count("id"))
    )
    members = dict(Membership.objects.filter(tenant_id__in=names).values_list("tenant_id").annotate(Count("id")))
    for tenant in found:
        tenant.workspace_count = workspaces.get(tenant.name, 0)  # type: ignore[attr-defined]
        tenant.member_count = members.get(tenant.name, 0)  # type: ignore[attr-defined]
    return found


def tenant_visible_to(actor: Actor, name: str) -> Tenant:
    """One tenant. Raises ``NotFound`` for what does not exist or is not the actor's to know of."""
    tenant = tenants_visible_to(actor).filter(name=name).first()
    if tenant is None:
        raise NotFound(f'tenants "{name[:63]}" not found', kind="tenants", name=name[:63])
    return tenant


def members_page(actor: Actor, tenant: str, *, after: str = "", limit: int = 50) -> Page[Membership]:
    """Members of a tenant, with their users: owners first, those of one role by their addresses.

    Raises ``NotFound``, ``BadRequest`` for a foreign cursor.
    """
    require_role(actor, tenant, Role.VIEWER)
    limit = max(1, min(limit, PAGE_LIMIT))
    raised = Q(raised_until__gt=Now())
    ranks = [
        When(raised & Q(raised_role=role) | ~raised & Q(role=role), then=Value(rank)) for rank, role in enumerate(Role)
    ]
    rows = Membership.objects.filter(tenant_id=tenant).select_related("user")
    rows = rows.annotate(rank=Case(*ranks, default=Value(len(ranks)), output_field=IntegerField()))
    if after:
        rank, email = _read_member(after)
        rows = rows.filter(Q(rank__gt=rank) | Q(rank=rank, user__email__gt=email))
    found = list(rows.order_by("rank", "user__email")[: limit + 1])
    return Page(found[:limit], _member_cursor(found[limit - 1]) if len(found) > limit else "")


def _member_cursor(row: Membership) -> str:
    return base64.urlsafe_b64encode(f"{row.rank} {row.user.email}".encode()).decode()  # type: ignore[attr-defined]


def _read_member(cursor: str) -> tuple[int, str]:
    try:
        rank, _, email = base64.urlsafe_b64decode(cursor[:512]).decode().partition(" ")
        if "\0" not in email:
            return int(rank[:2]), email
    except ValueError:
        pass
    raise BadRequest("The page cursor is not one of ours; start from the first page.")


def memberships_page(actor: Actor, *, managed_by: str, after: int = 0, limit: int = 50) -> list[Membership]:
    """Memberships that a declaration made, with their users, behind the ID ``after``.

    In all tenants that the actor sees and that are not ending: these take theirs along.
    """
    rows = Membership.objects.filter(managed_by=managed_by, tenant__in=tenants_visible_to(actor), pk__gt=after)
    rows = rows.exclude(tenant__state=TenantState.TERMINATING)
    return list(rows.select_related("user").order_by("pk")[: max(1, min(limit, 201))])


def membership_visible_to(actor: Actor, tenant: str, user_id: UUID) -> Membership:
    """Somebody's part in a tenant that the actor may know of, with the user. Raises ``NotFound``."""
    require_role(actor, tenant, Role.VIEWER)
    found = Membership.objects.filter(tenant_id=tenant, user_id=user_id).select_related("user").first()
    if found is None:
        raise NotFound("There is no such member.", kind="members")
    return found


def user_by_email(email: str, *, field: str) -> User:
    """Somebody who has an account; raises ``Invalid`` that names ``field`` of the form or body otherwise."""
    found = User.objects.filter(email__same=email).first()
    if found is None:
        words = "Nobody has an account with this address; an operator can create one."
        causes = [Cause("FieldValueInvalid", words, field)]
        raise Invalid("There is no such account.", kind="Membership", causes=causes)
    return found


def workspaces_visible_to(actor: Actor) -> QuerySet[Workspace]:
    """The workspaces of the actor's tenants that still exist, with tenant, tier, cluster and user.

    Viewers and editors see all workspaces of their tenants; operators see every tenant's.
    """
    rows = Workspace.objects.exclude(phase=Phase.DELETED).select_related("tenant", "tier", "cluster", "user")
    if actor.sees_all:
        return rows
    if actor.user_id is None:
        return rows.none()
    mine = Membership.objects.filter(user_id=actor.user_id, tenant_id=OuterRef("tenant_id"))
    return rows.filter(Exists(mine))


def workspaces_found(actor: Actor, *, search: str = "", status: str = "") -> QuerySet[Workspace]:
    """Those in a status that ``search`` finds.

    By any part of a name, of a namespace's name, or of its person's, or a whole UID of it or of its namespace.
    """
    rows = workspaces_visible_to(actor)
    if status:
        rows = rows.filter(status=status)
    return rows.filter(_called(actor, search)) if search else rows


def workspaces_page(
    actor: Actor,
    *,
    tenant: str = "",
    status: str = "",
    search: str = "",
    tier: str = "",
    cluster: str = "",
    after: str = "",
    limit: int = 50,
    oldest_first: bool = False,
) -> Page[Workspace]:
    """Workspaces, newest first unless ``oldest_first``, each with its living operation in ``current`` (a list of one or none).

    ``is_frozen`` says whether it is, or its tenant. Raises ``BadRequest`` for a foreign cursor.
    """
    rows = workspaces_found(actor, search=search, status=status)
    if tenant:
        rows = rows.filter(tenant_id=tenant)
    if tier:
        rows = rows.filter(tier_id=tier)
    if cluster:
        rows = rows.filter(cluster__name=cluster)
    held = Freeze.objects.filter(Q(workspace=OuterRef("pk")) | Q(workspace=None, tenant=OuterRef("tenant_id")))
    rows = rows.annotate(is_frozen=Exists(held)).prefetch_related(_current())
    return page_of(rows, after, limit, oldest_first=oldest_first)


def _called(actor: Actor, search: str) -> Q:
    words = search.lower()[:63]
    if actor.sees_all:
        people = Q(user__in=User.objects.filter(Q(email__icontains=words) | Q(name__icontains=words)))
    else:  # few workspaces, and everybody's names would be read for them
        people = Q(user__email__icontains=words) | Q(user__name__icontains=words)
    called = Q(name__contains=words) | Q(k8s_namespace__contains=words) | people
    try:
        return called | Q(pk=UUID(words)) | Q(namespace_uid=words)
    except ValueError:
        return called


def people_found(actor: Actor, *, search: str = "") -> QuerySet[User]:
    """Accounts of which ``search`` is any part of address or name. Operators and auditors; raises ``Forbidden``."""
    require_overseer(actor)
    rows = User.objects.all()
    return rows.filter(Q(email__icontains=search) | Q(name__icontains=search)) if search else rows


def workspace_visible_to(actor: Actor, workspace_id: UUID | str) -> Workspace:
    """One workspace, deleted ones included, with its operations, newest first. Raises ``NotFound``."""
    try:
        identifier = workspace_id if isinstance(workspace_id, UUID) else UUID(workspace_id)
    except ValueError:
        identifier = None
    rows = Workspace.objects.select_related("tenant", "tier", "cluster", "user").prefetch_related(
        Prefetch("operations", queryset=Operation.objects.order_by("-generation"))
    )
    workspace = rows.filter(pk=identifier).first() if identifier else None
    if workspace is None or role_of(actor, workspace.tenant_id) is None:
        shown = str(workspace_id)[:64]
        raise NotFound(f'workspaces "{shown}" not found', kind="workspaces", name=shown)
    return workspace


def workspaces_known(actor: Actor, workspace_ids: Iterable[UUID | None]) -> set[UUID]:
    """Those of them that have a page for the actor, deleted ones included: what tells of a workspace outlives it."""
    wanted = {identifier for identifier in workspace_ids if identifier is not None}
    rows = Workspace.objects.filter(pk__in=wanted, tenant__in=tenants_visible_to(actor))
    return set(rows.values_list("pk", flat=True)) if wanted else set()


def operation_of(workspace: Workspace) -> Operation | None:
    """The operation of the workspace's present generation: what progress pages show."""
    return workspace.operations.filter(generation=workspace.generation).first()


def operations_page(
    actor: Actor,
    *,
    tenant: str = "",
    workspace: UUID | None = None,
    state: str = "",
    waiting: bool = False,
    after: str = "",
    limit: int = 50,
    oldest_first: bool = False,
) -> Page[Operation]:
    """Operations of what the actor sees, newest first unless ``oldest_first``, those of deleted workspaces too.

    ``waiting``: only those that have not ended and were tried in vain. Raises ``BadRequest`` for a foreign cursor.
    """
    rows = Operation.objects.select_related("workspace__tenant", "workspace__cluster", "workspace__user")
    if not actor.sees_all:
        rows = rows.filter(workspace__tenant__in=tenants_visible_to(actor))
    if tenant:
        rows = rows.filter(workspace__tenant_id=tenant)
    if workspace is not None:
        rows = rows.filter(workspace_id=workspace)
    if state:
        rows = rows.filter(state=state)
    if waiting:
        rows = rows.filter(state__in=_LIVING).exclude(error="")
    return page_of(rows, after, limit, oldest_first=oldest_first)


def operations_waiting(actor: Actor) -> QuerySet[Operation]:
    """Those of what the actor sees that have not ended and were tried in vain."""
    rows = Operation.objects.filter(state__in=_LIVING).exclude(error="")
    return rows if actor.sees_all else rows.filter(workspace__tenant__in=tenants_visible_to(actor))


def operation_visible_to(actor: Actor, operation_id: UUID | None) -> Operation:
    """One operation. Raises ``NotFound``."""
    rows = Operation.objects.select_related("workspace__tenant", "workspace__cluster", "workspace__user")
    found = rows.filter(pk=operation_id).first() if operation_id is not None else None
    if found is None or role_of(actor, found.workspace.tenant_id) is None:
        raise NotFound("There is no such operation.", kind="operations")
    return found


def tiers_offered(actor: Actor) -> list[Tier]:
    """Tiers that the actor may choose, in their order; operators choose among all."""
    rows = Tier.objects.all() if actor.sees_all else Tier.objects.filter(is_available=True)
    return list(rows.order_by("position", "name"))


def tier_visible_to(actor: Actor, name: str) -> Tier:
    """A tier that the actor may choose. Raises ``NotFound``."""
    for tier in tiers_offered(actor):
        if tier.name == name:
            return tier
    raise NotFound("There is no such tier.", kind="tiers")


def tiers_of(tenant: Tenant) -> list[Tier]:
    """The tiers that a tenant's workspaces have."""
    return list(Tier.objects.filter(workspaces__in=_present(tenant)).distinct().order_by("position", "name"))


def _present(tenant: Tenant) -> QuerySet[Workspace]:
    return tenant.workspaces.exclude(phase=Phase.DELETED)


def cluster_named(actor: Actor, name: str) -> Cluster:
    """A cluster, without its credential. Operators and auditors; raises ``Forbidden`` and ``NotFound``."""
    for cluster in clusters_all(actor):
        if cluster.name == name:
            return cluster
    raise NotFound("There is no such cluster.", kind="clusters")


def clusters_all(actor: Actor) -> list[Cluster]:
    """Every cluster, without its credential. Operators and auditors; raises ``Forbidden``."""
    require_overseer(actor)
    return list(Cluster.objects.defer("sealed_credential").order_by("name"))


def has_registered_clusters() -> bool:
    """Whether there is a cluster beside the product's own API server."""
    return Cluster.objects.exclude(kind=Cluster.Kind.EMBEDDED).exists()


def clusters_to_tend(actor: Actor, *, now: datetime) -> list[Cluster]:
    """The clusters that do not answer, or whose credential ends soon. Operators and auditors; raises ``Forbidden``."""
    return [each for each in clusters_all(actor) if each.unreached_since or credential_ends_soon(each, now=now)]


def credential_ends_soon(cluster: Cluster, *, now: datetime) -> bool:
    """Whether the gateway's credential is to be rotated now, or has ended already."""
    ends = cluster.credential_expires_at
    return ends is not None and ends - now < EXPIRES_SOON


def latencies_of(cluster: Cluster, *, since: datetime, step: timedelta) -> list[tuple[datetime, int, int, int]]:
    """The probes of a cluster in spans of ``step`` from ``since`` on, those with probes alone, the oldest first.

    Each as its begin, the longest latency in milliseconds, how often there was no answer, and how often it was asked.
    """
    span = Func(Value(step), F("at"), Value(since), function="date_bin", output_field=DateTimeField())
    rows = ClusterProbe.objects.filter(cluster=cluster, at__gte=since).values(span=span)
    found = rows.annotate(worst=Max("latency_ms"), came=Count("latency_ms"), asked=Count("pk")).order_by("span")
    return [(row["span"], row["worst"] or 0, row["asked"] - row["came"], row["asked"]) for row in found]


def overview_of(actor: Actor, *, tenant: str = "") -> Overview:
    """The numbers of what the actor sees, of one tenant or of all. Four queries."""
    rows = workspaces_visible_to(actor).select_related(None)
    if tenant:
        rows = rows.filter(tenant_id=tenant)
    # Few are anything but ready: these are found by an index, and counted to the last.
    suspended = Count("pk", filter=Q(status=Status.SUSPENDED))
    others = rows.exclude(phase=Phase.READY).aggregate(all=Count("pk"), suspended=suspended)
    ready = rows.filter(phase=Phase.READY)[:COUNTED].count()
    failed = Operation.objects.filter(
        state=OperationState.FAILED, generation=F("workspace__generation"), workspace__in=rows
    )
    tenants = tenants_visible_to(actor).exclude(state=TenantState.TERMINATING)
    return Overview(
        workspaces=min(ready + others["all"], COUNTED),
        ready=ready,
        working=others["all"] - others["suspended"],
        suspended=others["suspended"],
        failed=failed.count(),
        tenants=1 if tenant else tenants[:COUNTED].count(),
    )


def may_manage(actor: Actor, tenant: str) -> bool:
    """Whether the actor is at least admin of the tenant. Raises ``NotFound`` for whoever is no member."""
    return role_at_least(require_role(actor, tenant, Role.VIEWER), Role.ADMIN)


def _current() -> Prefetch[str, QuerySet[Operation], str]:
    return Prefetch("operations", queryset=Operation.objects.filter(state__in=_LIVING), to_attr="current")
