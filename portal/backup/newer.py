"""What the database that is replaced knows and the backup does not: whatever was taken away since stays away (P12)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db.models import CharField, Value
from django.db.models.functions import Cast, Concat

from audit.models import AuditChain, AuditEntry
from audit.recorder import Actor
from portal.backup.archive import Manifest
from tenants.models import (
    Freeze,
    Membership,
    Offboarding,
    Passkey,
    Phase,
    RecoveryCode,
    Role,
    SecondFactor,
    Status,
    Tenant,
    TenantState,
    User,
    Webhook,
    Workspace,
)
from tenants.models.mailaddresses import address_key

RESTORE: Final = Actor(name="system:restore", operator=True)
"""Who closed what ``restore --open`` opens again."""

GONE: Final = "system:restore:deleted"
"""Who closed what was deleted after the backup: operators delete it again, or resume it."""

DELETED: Final = "It was deleted after the backup that was restored."

_ACCOUNT: Final = (
    "email",
    "password",
    "password_given",
    "status",
    "is_staff",
    "is_auditor",
    "is_superuser",
    "issuer",
    "subject",
    "address_unproven",
)
"""By what an account is opened, whose it is and what it may: one without the others locks its person out, or lets another in.

An address may be somebody else's by now, whose mailbox would open the account.
"""
_NOWHERE: Final = "@restored.invalid"
"""No mail goes there: where accounts are while addresses are given out, and stay whose address is another's now."""
_RANK: Final = list(reversed(Role.values))


@dataclass(frozen=True, slots=True)
class Newer:
    """Facts of a database whose history goes on behind the backup; empty when it is another's, or lost."""

    continues: bool = False
    accounts: Mapping[UUID, Mapping[str, Any]] = field(default_factory=dict)
    factors: tuple[SecondFactor | RecoveryCode | Passkey, ...] = ()
    """What is asked for after passwords, and what stands in for it."""
    memberships: Mapping[tuple[str, UUID], tuple[str, datetime | None]] = field(default_factory=dict)
    """Roles, and when they end: what is somebody's but for an hour is no membership."""
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    workspaces: Mapping[UUID, Workspace] = field(default_factory=dict)
    freezes: tuple[Freeze, ...] = ()
    offboardings: tuple[Offboarding, ...] = ()
    webhooks: frozenset[UUID] = frozenset()
    cut: Mapping[str, int] = field(default_factory=dict)
    """Rows of the audit by chain that the backup does not have."""


def is_continued(manifest: Manifest) -> bool:
    """Whether the backup is of this database: its audit goes on from where every chain of the backup ended."""
    ends = [(chain, *head) for chain, head in manifest.heads.items() if head[0]]
    return bool(ends) and all(
        AuditEntry.objects.filter(chain=chain, sequence=sequence, hash=end).exists() for chain, sequence, end in ends
    )


def newer_than(manifest: Manifest) -> Newer:
    """What is in the database now, if the backup is of it."""
    if not is_continued(manifest):
        return Newer()
    heads = dict(AuditChain.objects.values_list("chain", "sequence"))
    return Newer(
        continues=True,
        accounts={row.pop("id"): row for row in User.objects.values("id", *_ACCOUNT)},
        factors=(*SecondFactor.objects.all(), *RecoveryCode.objects.all(), *Passkey.objects.all()),
        memberships={
            (row.tenant_id, row.user_id): (row.role, row.expires_at)
            for row in Membership.objects.filter(break_glass=False)
        },
        tenants={tenant.name: tenant for tenant in Tenant.objects.all()},
        workspaces={each.pk: each for each in Workspace.objects.select_related("cluster")},
        freezes=tuple(Freeze.objects.all()),
        offboardings=tuple(Offboarding.objects.all()),
        webhooks=frozenset(Webhook.objects.values_list("pk", flat=True)),
        cut={
            chain: last - manifest.heads.get(chain, (0, ""))[0]
            for chain, last in sorted(heads.items())
            if last > manifest.heads.get(chain, (0, ""))[0]
        },
    )


def accounts_keep(newer: Newer) -> Iterator[str]:
    """Give accounts and members what they had last; says what was more in the backup."""
    users = list(User.objects.order_by("pk").select_for_update(no_key=True))
    taken = {address_key(last["email"]) for last in newer.accounts.values()}
    lasts = {user.pk: newer.accounts.get(user.pk) or _gone(user, taken) for user in users}
    # Nobody has a subject, or another address than before, while they are given out: it may have gone from one to another.
    User.objects.exclude(subject="").update(subject="")
    moved = [user.pk for user in users if lasts[user.pk]["email"] != user.email]
    User.objects.filter(pk__in=moved).update(email=Concat(Cast("id", CharField()), Value(_NOWHERE)))
    for user in users:
        last = lasts[user.pk]
        changed = [name for name, value in last.items() if getattr(user, name) != value]
        for name in changed:
            setattr(user, name, last[name])
        if changed or user.subject:
            user.save(update_fields=[*changed, "subject"])
        if changed:
            yield f"account {user.email}: {', '.join(changed)} as it was last, not as in the backup"
    yield from _accounts_lost(newer, {user.pk for user in users})
    # A second factor that was set up since is asked for, and a code or passkey that was used up or removed opens nothing.
    for factors in (SecondFactor, RecoveryCode, Passkey):
        factors.objects.all().delete()
    known = set(User.objects.values_list("pk", flat=True))
    for kept in newer.factors:
        if kept.user_id in known:
            if isinstance(kept, RecoveryCode):
                kept.pk = None  # numbers are given anew
            kept.save(force_insert=True)
    for row in Membership.objects.all():
        last_role, ends = newer.memberships.get((row.tenant_id, row.user_id), ("", None))
        changed = []
        if not last_role:
            row.delete()
            yield f"tenant {row.tenant_id}: a membership that had ended stays ended ({row.user_id})"
            continue
        if _RANK.index(last_role) < _RANK.index(row.role):
            row.role = last_role
            changed.append("role")
            yield f"tenant {row.tenant_id}: a member who was made {last_role} stays it ({row.user_id})"
        if ends is not None and (row.expires_at is None or row.expires_at > ends):
            row.expires_at = ends
            changed.append("expires_at")
            yield f"tenant {row.tenant_id}: a membership that was given an end has it ({row.user_id})"
        if changed:
            row.save(update_fields=changed)


def _gone(user: User, taken: Collection[str]) -> Mapping[str, Any]:
    """Of an account that is there no more: nobody is let in; its subject, and its address, may be another's now."""
    email = f"{user.pk}{_NOWHERE}" if address_key(user.email) in taken else user.email
    return {"email": email, "status": User.Status.DISABLED, "subject": ""}


def _accounts_lost(newer: Newer, known: set[UUID]) -> Iterator[str]:
    """What became of accounts since the backup that are nobody's now; their persons come in anew, as nobody else."""
    for pk, last in sorted(newer.accounts.items(), key=lambda each: str(each[1]["email"])):
        if pk not in known:
            linked = (
                f", and so is its link to the subject {last['subject']} of {last['issuer']}" if last["subject"] else ""
            )
            yield f"account {last['email']} was made after the backup and is gone{linked}"


def closings(newer: Newer) -> Mapping[str, tuple[str, str]]:
    """Tenants of the backup that stay closed when all are opened, with who closed them and why."""
    if not newer.continues:
        return {}
    found: dict[str, tuple[str, str]] = {}
    for name in Tenant.objects.filter(state=TenantState.ACTIVE).values_list("name", flat=True):
        last = newer.tenants.get(name)
        if last is None or _is_gone(newer, name):
            found[name] = (GONE, DELETED)
        elif last.state == TenantState.SUSPENDED and last.suspended_by != RESTORE.name:
            found[name] = (last.suspended_by, last.suspended_reason)
    return found


def workspaces_keep_closed(newer: Newer) -> Iterator[str]:
    """Let workspaces stay closed that were suspended by themselves, or deleted; all are suspended already."""
    for workspace in (
        Workspace.objects.filter(suspended_with_tenant=True).select_related("tenant") if newer.continues else ()
    ):
        last = newer.workspaces.get(workspace.pk)
        if last is None or last.status == Status.DELETED:
            reason, who = DELETED, GONE
        elif last.status == Status.SUSPENDED and not last.suspended_with_tenant:
            reason, who = last.suspended_reason, last.suspended_by
        else:
            continue
        workspace.suspended_with_tenant, workspace.suspended_reason, workspace.suspended_by = False, reason, who
        workspace.save(update_fields=["suspended_with_tenant", "suspended_reason", "suspended_by"])
        yield f"workspace {workspace} stays closed: {reason}"


def freezes_keep(newer: Newer) -> Iterator[str]:
    """Hold still what was held still last; where nobody knows, what the backup holds still. None ends by itself."""
    last = {(freeze.space, freeze.namespace): freeze for freeze in newer.freezes}
    before = {(freeze.space, freeze.namespace): freeze for freeze in Freeze.objects.all()}
    for place, freeze in before.items():
        if place in last or freeze.tenant_id in newer.tenants:
            freeze.delete()
            if place not in last:
                yield f"{_held(freeze)} was frozen in the backup and is not any more, as it was last"
    tenants, workspaces = _known()
    for place, freeze in last.items():
        if freeze.tenant_id in tenants and (freeze.workspace_id is None or freeze.workspace_id in workspaces):
            freeze.save(force_insert=True)
            if place not in before:
                yield f"{_held(freeze)} stays frozen: {freeze.reason}"
    Freeze.objects.update(until=None)


def offboardings_keep(newer: Newer) -> Iterator[str]:
    """Let those leave who were leaving last, at the date that was said last: nothing is deleted by one of the backup."""
    before = {leaving.pk: leaving for leaving in Offboarding.objects.all()}
    Offboarding.objects.all().delete()
    tenants, _ = _known()
    last = {
        leaving.pk: leaving
        for leaving in newer.offboardings
        if leaving.pk in tenants and not _is_gone(newer, leaving.pk)
    }
    for name, leaving in last.items():
        leaving.save(force_insert=True)
        was = before.get(name)
        if was is None or was.ends_at != leaving.ends_at:
            yield f"tenant {name} leaves, and is deleted on {leaving.ends_at:%d %b %Y}, as was said last"
    for name in sorted(before.keys() - last.keys()):
        if not newer.continues:
            why = f"nobody knows whether it is to be deleted on {before[name].ends_at:%d %b %Y} still, offboard it again if so"
        elif _is_gone(newer, name):
            why = "it was deleted after the backup"
        else:
            why = "that was called off after the backup"
        suspended = before[name].manner == Offboarding.Manner.SUSPEND
        then = "; it stays suspended until an operator resumes it" if suspended else ""
        yield f"tenant {name} does not leave any more: {why}{then}"


def _known() -> tuple[set[str], set[UUID]]:
    return set(Tenant.objects.values_list("pk", flat=True)), set(Workspace.objects.values_list("pk", flat=True))


def _is_gone(newer: Newer, name: str) -> bool:
    last = newer.tenants.get(name)
    return last is None or last.state == TenantState.TERMINATING


def _held(freeze: Freeze) -> str:
    return f"{'workspace' if freeze.namespace else 'tenant'} {freeze.tenant_id} {freeze.namespace}".strip()


def orphans(newer: Newer) -> Iterator[str]:
    """What was made after the backup and is on clusters still, though nobody will know of it."""
    known = set(Workspace.objects.values_list("pk", flat=True))
    for pk, workspace in newer.workspaces.items():
        if pk not in known and workspace.phase != Phase.DELETED:
            yield (
                f"workspace {workspace} was made after the backup: its namespace {workspace.k8s_namespace} on the cluster"
                f" {workspace.cluster} is nobody's now; delete it there"
            )
