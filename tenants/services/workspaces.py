"""Workspaces: asking for one, changing it, closing it, ending it. Workers bring it about (``tenants.operationqueue``)."""

from __future__ import annotations

import re
import uuid
from contextlib import suppress
from datetime import datetime
from uuid import UUID

from django.db import IntegrityError, transaction

from audit.actions import Action
from audit.recorder import Actor
from kube.requests.status import AlreadyExists, Cause, Conflict, Forbidden, Invalid, NotFound, ServiceUnavailable
from tenants import actionlimits
from tenants.models import (
    Approval,
    Cluster,
    Desired,
    Membership,
    NoticeKind,
    Operation,
    Phase,
    Role,
    Status,
    Tenant,
    TenantState,
    Tier,
    User,
    Workspace,
)
from tenants.naming import check_label, check_namespace_of, check_text, check_until
from tenants.notices import note
from tenants.placednamespaces import NameTaken, placed_namespace_show
from tenants.rights import require_open, require_operator, require_role, role_at_least, role_of, tenant_locked
from tenants.services import desiredstate


def workspace_init(
    *,
    actor: Actor,
    user: User,
    tier: str,
    tenant: str = "",
    name: str = "",
    cluster: str = "",
    namespace: str = "",
    idempotency_key: str = "",
) -> Workspace:
    """The workspace that ``user`` asks for: made once, however often and however parallel it is asked for (GW6).

    Without ``tenant`` the user's only one is meant, without ``cluster`` the default one, without ``name`` one is made
    from the user's and the tier's, without ``namespace`` one is made from its id; a chosen one begins with the tenant's
    name and a dash. The same name or the same key again gives the same workspace. It is PROVISIONING until a worker has
    made it.

    Raises ``TooManyRequests`` (every call counts), ``NotFound`` for a tenant that is not the actor's, ``Forbidden``
    for viewers and over the tier's limit, ``Invalid`` for an unknown or withdrawn tier or a bad name, ``Conflict``
    when the same name or key was used for something else or the tenant is closed, ``AlreadyExists`` when the name is
    another member's, ``ServiceUnavailable`` when there is no cluster.
    """
    actionlimits.take(actionlimits.INIT, user.id)
    return workspace_make(
        actor=actor,
        user=user,
        tier_name=tier,
        tenant_name=tenant,
        name=name,
        cluster_name=cluster,
        namespace=namespace,
        key=idempotency_key,
    )


@transaction.atomic
def workspace_suspend(
    *, actor: Actor, workspace_id: UUID, reason: str, stop: bool = False, until: datetime | None = None
) -> Workspace:
    """Pull the kill switch: refused everywhere from the commit on, proved on the cluster by a worker (GW5).

    With ``stop`` its pods end as well; what owns them brings them back on resume. ``until`` is when a worker resumes it;
    the newest word about that counts. Whatever still exists can be
    suspended: what is being deleted is closed once more and goes on ending. Suspending twice keeps the first, and what
    waits for another attempt is tried at once. Operators only. Raises ``NotFound``, ``Forbidden``, ``Invalid`` without
    a reason, ``Conflict`` when it is gone.
    """
    reason = check_text(reason, field="reason", kind="Workspace", limit=512, required=True)
    workspace = workspace_locked(actor, workspace_id)
    require_operator(actor)
    if workspace.phase == Phase.DELETED:
        raise Conflict("The workspace is deleted.", kind="workspaces", name=str(workspace_id))
    check_until(until, kind="Workspace")
    if workspace.status == Status.SUSPENDED:
        _suspend_again(actor, workspace, reason, stop=stop, until=until)
        return workspace
    desiredstate.request_suspended(workspace, actor, reason, stop=stop, until=until)
    said = {"until": until.isoformat()} if until else {}
    _record(actor, Action.WORKSPACE_SUSPENDED, workspace, reason=reason, stop=stop, **said)
    note(
        NoticeKind.WORKSPACE_SUSPENDED,
        f"The workspace {workspace} is suspended: {reason}",
        actor=actor,
        workspace=workspace,
    )
    desiredstate.retry_now(Workspace.objects.filter(pk=workspace.pk))
    return workspace


@transaction.atomic
def workspace_resume(*, actor: Actor, workspace_id: UUID) -> Workspace:
    """End a suspension; earlier tokens stay dead (P5). Operators only.

    Resuming what is active changes nothing. Raises ``NotFound``, ``Forbidden``, ``Conflict`` when it is deleted or its
    tenant is not active.
    """
    workspace = workspace_locked(actor, workspace_id)
    require_operator(actor)
    if workspace.status == Status.DELETED:
        raise Conflict("The workspace is deleted.", kind="workspaces", name=str(workspace_id))
    _require_active(workspace.tenant)
    if workspace.status == Status.ACTIVE:
        return workspace
    desiredstate.request_resumed(workspace, actor)
    _record(actor, Action.WORKSPACE_RESUMED, workspace)
    note(NoticeKind.WORKSPACE_RESUMED, f"The workspace {workspace} is open again", actor=actor, workspace=workspace)
    transaction.on_commit(desiredstate.enqueue_sweep)
    return workspace


@transaction.atomic
def workspace_delete(*, actor: Actor, workspace_id: UUID) -> Workspace:
    """Begin the end of a workspace: closed at once, its namespace deleted by a worker, the row kept as deleted.

    Operators, and unless it is closed its own user and admins of the tenant. Deleting twice is one deletion. Raises
    ``NotFound``, ``Forbidden``.
    """
    workspace = workspace_locked(actor, workspace_id)
    require_own(actor, workspace)
    if workspace.status == Status.DELETED:
        return workspace
    require_open(actor, workspace.tenant, workspace)
    desiredstate.request_deleted(workspace, actor)
    _record(actor, Action.WORKSPACE_DELETED, workspace)
    transaction.on_commit(desiredstate.enqueue_sweep)
    return workspace


@transaction.atomic
def workspace_change_tier(*, actor: Actor, workspace_id: UUID, tier: str) -> Workspace:
    """Give a workspace another tier; a worker sets the new quota and limits.

    Its own user, admins of the tenant, operators. Raises ``NotFound``, ``Forbidden`` (also over the new tier's limit),
    ``Invalid`` for an unknown or withdrawn tier, ``Conflict`` when it is not active.
    """
    workspace = workspace_locked(actor, workspace_id)
    require_own(actor, workspace)
    require_open(actor, workspace.tenant, workspace)
    if workspace.status != Status.ACTIVE:
        raise Conflict("Only an active workspace can change its tier.", kind="workspaces", name=str(workspace_id))
    if workspace.tier_id == tier:
        return workspace
    before = workspace.tier_id
    User.objects.select_for_update(no_key=True).get(pk=workspace.user_id)
    workspace.tier = _offered(actor, tier, workspace.tenant_id)
    _require_room(workspace.user_id, workspace.tier)
    desiredstate.request_ready(workspace, actor)
    _record(actor, Action.WORKSPACE_TIER_CHANGED, workspace, before=before, after=tier)
    transaction.on_commit(desiredstate.enqueue_sweep)
    # What the door does by the tier (recording, proxies, policies) it does from now on, whether or not a worker has time;
    # of a name that is somebody else's a worker tells.
    with suppress(NameTaken):
        placed_namespace_show(workspace)
    return workspace


@transaction.atomic
def workspace_make(
    *,
    actor: Actor,
    user: User,
    tier_name: str,
    tenant_name: str,
    name: str,
    cluster_name: str,
    namespace: str,
    key: str = "",
) -> Workspace:
    """As ``workspace_init``, for whose call has been counted already."""
    tenant_name = tenant_name or _only_tenant(user)
    tenant = tenant_locked(tenant_name)
    role = require_role(actor, tenant_name, Role.VIEWER)
    # The user's row is the lock under which parallel calls of one user take their turns.
    User.objects.select_for_update(no_key=True).get(pk=user.pk)
    key = check_text(key, field="Idempotency-Key", kind="Workspace", limit=128)
    wanted = check_label(name, field="name", kind="Workspace") if name else ""
    if namespace:
        check_namespace_of(tenant.name, namespace)
    found = _existing(user, tenant, wanted, tier_name, key)
    if found is not None:
        if namespace and found.k8s_namespace != namespace:
            raise Conflict(
                f"Your workspace {found.name} has the namespace {found.k8s_namespace}.",
                kind="workspaces",
                name=found.name,
            )
        if found.tier_id != tier_name or (wanted and found.name != wanted) or found.tenant_id != tenant.name:
            by_key = key and found.idempotency_key == key
            raise Conflict(
                f"This idempotency key was used for the workspace {found.name}; another one needs a key of its own."
                if by_key
                else f"Your workspace {found.name} has the tier {found.tier_id}; choose another name.",
                kind="workspaces",
                name=found.name,
            )
        return found
    if not role_at_least(role, Role.EDITOR):
        raise Forbidden("Viewers cannot create workspaces.", kind="workspaces")
    require_open(actor, tenant)
    _require_active(tenant)
    tier = _offered(actor, tier_name, tenant.name)
    _require_room(user.id, tier)
    identifier = uuid.uuid4()
    workspace = Workspace(
        id=identifier,
        tenant=tenant,
        user=user,
        name=wanted or _made_name(user, tenant, tier_name),
        cluster=_cluster(cluster_name),
        tier=tier,
        k8s_namespace=_chosen_namespace(tenant, namespace) if namespace else _free_namespace(identifier),
        idempotency_key=key,
    )
    try:
        with transaction.atomic():
            workspace.save(force_insert=True)
    except IntegrityError:
        # Another member took the name, or the namespace's, between the look and the write.
        raise AlreadyExists(
            f'workspaces "{workspace.name}" already exists', kind="workspaces", name=workspace.name
        ) from None
    Operation.objects.create(
        workspace=workspace, desired=Desired.READY, generation=workspace.generation, requested_by=actor.name[:254]
    )
    _record(actor, Action.WORKSPACE_CREATED, workspace, tier=tier_name, namespace=workspace.k8s_namespace)
    transaction.on_commit(desiredstate.enqueue_sweep)
    return workspace


def _suspend_again(actor: Actor, workspace: Workspace, reason: str, *, stop: bool, until: datetime | None) -> None:
    news = workspace.suspended_until != until
    if news:
        workspace.suspended_until = until
        workspace.save(update_fields=["suspended_until"])
    if workspace.suspended_by == desiredstate.EXPIRY.name:
        # Closed by somebody from now on: a renewal must not open it.
        workspace.suspended_by, workspace.suspended_reason = actor.name, reason
        workspace.save(update_fields=["suspended_by", "suspended_reason"])
        news = True
    if workspace.suspended_with_tenant:
        # Now it is meant by itself: it must not end with the tenant's suspension.
        workspace.suspended_with_tenant, workspace.suspended_reason = False, reason
        workspace.save(update_fields=["suspended_with_tenant", "suspended_reason"])
        news = True
    if stop and not workspace.stopped:
        desiredstate.request_stopped(workspace, actor)
        news = True
    if news:
        _record(actor, Action.WORKSPACE_SUSPENDED, workspace, reason=reason, stop=stop)
    desiredstate.retry_now(Workspace.objects.filter(pk=workspace.pk))


def _only_tenant(user: User) -> str:
    names = list(Membership.objects.filter(user=user).order_by("created_at").values_list("tenant_id", flat=True)[:2])
    if not names:
        raise Forbidden("You are a member of no tenant yet; ask an operator or an owner to add you.", kind="workspaces")
    if len(names) > 1:
        causes = [Cause("FieldValueRequired", "Required value: you are a member of several tenants", "tenant")]
        raise Invalid("Workspace is invalid: tenant: Required value", kind="Workspace", causes=causes)
    return names[0]


def _existing(user: User, tenant: Tenant, name: str, tier: str, key: str) -> Workspace | None:
    """What an earlier call with the same words made."""
    mine = (
        Workspace.objects.filter(user=user).exclude(status=Status.DELETED).select_related("tenant", "tier", "cluster")
    )
    if key:
        found = mine.filter(idempotency_key=key).first()
        if found is not None or not name:
            return found
    if name:
        return mine.filter(tenant=tenant, name=name).first()
    return mine.filter(tenant=tenant, name__in=_made_names(user, tier)).first()


def _made_names(user: User, tier: str) -> list[str]:
    local = re.sub(r"[^a-z0-9]+", "-", user.email.split("@")[0].lower()).strip("-")[:24].strip("-") or "workspace"
    stem = f"{local}-{tier[:24].strip('-')}"
    return [stem, f"{stem}-{user.id.hex[:8]}", f"{stem}-{user.id.hex[8:14]}"]


def _made_name(user: User, tenant: Tenant, tier: str) -> str:
    names = _made_names(user, tier)
    taken = set(
        Workspace.objects.filter(tenant=tenant, name__in=names)
        .exclude(status=Status.DELETED)
        .values_list("name", flat=True)
    )
    return next(name for name in [*names, f"ws-{uuid.uuid4().hex[:12]}"] if name not in taken)


def _offered(actor: Actor, name: str, tenant: str) -> Tier:
    """The tier: it must exist and be offered; operators may give withdrawn ones, and those that are given on request."""
    tier = Tier.objects.filter(name=name).first()
    if tier is None or not (tier.is_available or actor.operator):
        causes = [Cause("FieldValueNotSupported", f'Unsupported value: "{name[:63]}"', "tier")]
        raise Invalid(f'Workspace is invalid: tier: Unsupported value: "{name[:63]}"', kind="Workspace", causes=causes)
    may_give = tier.approval == Approval.OWNER and role_of(actor, tenant) is Role.OWNER
    if tier.approval and not (actor.operator or may_give):
        raise Forbidden(f"The tier {tier} is given on request: take another, then ask for this one.", kind="workspaces")
    return tier


def _require_room(user_id: UUID, tier: Tier) -> None:
    mine = Workspace.objects.filter(user_id=user_id, tier=tier).exclude(phase=Phase.DELETED)
    count, ending = mine.count(), mine.filter(status=Status.DELETED).count()
    if count >= tier.workspaces_per_user:
        room = f"{tier.workspaces_per_user} workspace{'' if tier.workspaces_per_user == 1 else 's'}"
        still = f", {ending} of them still being deleted" if ending else ""
        raise Forbidden(
            f"The tier {tier.name} allows {room} per user, and you have {count}{still}: take another tier, or delete one.",
            kind="workspaces",
        )


def _require_active(tenant: Tenant) -> None:
    if tenant.state != TenantState.ACTIVE:
        raise Conflict(f"The tenant {tenant.name} is {tenant.get_state_display().lower()}.", kind="tenants")


def _cluster(name: str) -> Cluster:
    if name:
        cluster = Cluster.objects.filter(name=name).first()
        if cluster is None:
            causes = [Cause("FieldValueNotSupported", f'Unsupported value: "{name[:63]}"', "cluster")]
            raise Invalid("Workspace is invalid: cluster: Unsupported value", kind="Workspace", causes=causes)
        return cluster
    cluster = Cluster.objects.filter(is_default=True).first()
    if cluster is None:
        raise ServiceUnavailable("No cluster is registered as the default yet.")
    return cluster


def _free_namespace(identifier: UUID) -> str:
    """``tenant-`` and 8 hexadecimal digits of the id, more if they are taken (GW1)."""
    candidates = [f"tenant-{identifier.hex[:length]}" for length in (8, 12, 16, 32)]
    taken = set(Workspace.objects.filter(k8s_namespace__in=candidates).values_list("k8s_namespace", flat=True))
    return next(name for name in candidates if name not in taken)


def _chosen_namespace(tenant: Tenant, name: str) -> str:
    """``name`` if nobody has it; raises ``AlreadyExists``.

    A name that begins with another tenant's, too, is the one's whose name is longer.
    """
    starts = [name[:end] for end, letter in enumerate(name) if letter == "-" and end > len(tenant.name)]
    taken = Workspace.objects.filter(k8s_namespace=name).exclude(phase=Phase.DELETED)
    if taken.exists() or Tenant.objects.filter(name__in=starts).exists():
        raise AlreadyExists(f'namespaces "{name}" already exists', kind="namespaces", name=name)
    return name


def workspace_locked(actor: Actor, workspace_id: UUID) -> Workspace:
    """The workspace, its row and before it the tenant's locked; NotFound when the actor may not know of it."""
    if tenant := Workspace.objects.filter(pk=workspace_id).values_list("tenant_id", flat=True).first():
        tenant_locked(tenant)
    workspace = (
        Workspace.objects.select_for_update(no_key=True, of=("self",))
        .select_related("tenant", "tier", "cluster")
        .filter(pk=workspace_id)
        .first()
    )
    if workspace is None or role_of(actor, workspace.tenant_id) is None:
        raise NotFound(f'workspaces "{workspace_id}" not found', kind="workspaces", name=str(workspace_id))
    return workspace


def require_own(actor: Actor, workspace: Workspace) -> None:
    """Forbidden for whoever is neither its user, as an editor at least, nor an admin of the tenant."""
    role = require_role(actor, workspace.tenant_id, Role.VIEWER)
    owns = actor.user_id == workspace.user_id and role_at_least(role, Role.EDITOR)
    if not owns and not role_at_least(role, Role.ADMIN):
        raise Forbidden("Only its user and the tenant's admins may change this workspace.", kind="workspaces")


def _record(actor: Actor, action: Action, workspace: Workspace, **detail: object) -> None:
    actor.record(
        action,
        chain=workspace.tenant_id,
        target=f"workspaces/{workspace.tenant_id}/{workspace.name}",
        workspace_id=workspace.id,
        detail={**detail, "generation": workspace.generation},
    )
