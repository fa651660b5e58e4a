"""What waits for a person: one selector for the inbox, for REST, and for the overview's "what needs me now" (GW25).

A fixed number of queries, whatever there is; of each kind the oldest are shown and the rest is counted. What operators have
put off is left out for them and for auditors, until its time is over or its cause is another (GW28).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from cryptography import x509
from django.conf import settings
from django.db.models import CharField, Count, Exists, Max, OuterRef, Q, QuerySet
from django.db.models.functions import Cast
from django.urls import reverse

from access.credentials.warnings import tokens_ending_of
from audit.actions import Action
from audit.models import AuditEntry, Outcome
from audit.recorder import Actor
from portal.backup.freshness import backups_standing
from portal.pages import labels
from portal.pages.progress import TITLES
from tenants import selectors
from tenants.models import (
    AccessRequest,
    Cluster,
    Desired,
    Freeze,
    Membership,
    Operation,
    OperationState,
    Postponement,
    Role,
    Workspace,
)
from tenants.models.postponements import CAUSE_MAX
from tenants.requests.selectors import requests_to_decide
from tenants.services.operating.postponing import LIVING_MAX, postponements_by_row
from tenants.usage import quotas_nearly_full

SHOWN: Final = 20
"""Lines of one kind."""
STUCK_AFTER: Final = timedelta(minutes=15)
CERTIFICATES_SOON: Final = timedelta(days=30)
QUOTA_SHARE: Final = 0.9
_DAY: Final = timedelta(days=1)
_CERTIFICATES_MAX: Final = 50
_LIVING: Final = (OperationState.PENDING, OperationState.RUNNING, OperationState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One thing to do: what it is, why, since when, and where it is done.

    ``dialog`` opens as a dialog, ``post`` is pressed at once. ``name`` is what it is known by among its kind, ``cause`` what
    has to stay for it to be put off; ``postponed`` says that it is.
    """

    name: str
    cause: str = ""
    postponed: Postponement | None = None
    title: str
    text: str
    since: datetime | None
    url: str
    action: str
    dialog: tuple[tuple[str, str], ...] = ()
    post: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Lines of one kind. ``headline`` says them in one; ``count`` is all there are."""

    key: str
    title: str
    headline: str
    count: int
    lines: tuple[Line, ...]
    url: str = ""
    apart: bool = False
    """Whether each line is worth a headline of its own."""


def inbox_of(actor: Actor, *, now: datetime, postponed: bool = False) -> list[Group]:
    """What waits for this person, by kind, or what of it is put off; kinds of which there is nothing are left out."""
    off = _PutOff(postponements_by_row(now=now) if actor.sees_all else {}, only=postponed)
    groups = [_requests(actor, off), _operations(actor, now, off), _tokens(actor, now, off)]
    if actor.sees_all:
        groups += [_clusters(actor, now, off), _certificates(now, off), _backups(now, off), _drift(now, off)]
        groups += [_quotas(off), _sign_ins(now, off)]
    return [group for group in groups if group is not None]


def inbox_line(actor: Actor, kind: str, name: str, *, now: datetime) -> Line | None:
    """The line that is known by this name, put off or not."""
    groups = [*inbox_of(actor, now=now), *inbox_of(actor, now=now, postponed=True)]
    return next((line for group in groups if group.key == kind for line in group.lines if line.name == name), None)


def inbox_counted(actor: Actor, *, now: datetime) -> int:
    """How many decisions wait for this person: the number beside the inbox. One query."""
    rows = requests_to_decide(actor)
    if actor.sees_all:
        off = Postponement.objects.filter(kind="requests", until__gt=now).values("name")
        rows = rows.alias(key=Cast("pk", CharField())).exclude(key__in=off)
    return rows.count()


@dataclass(frozen=True, slots=True)
class _PutOff:
    """What is put off, by kind and name, and whether that is looked for or left out."""

    rows: Mapping[tuple[str, str], Postponement]
    only: bool

    def keep(self, kind: str, lines: Iterable[Line]) -> list[Line]:
        """The lines that are looked for."""
        found = []
        for line in lines:
            row = self.rows.get((kind, line.name))
            held = row if row is not None and row.cause == line.cause[:CAUSE_MAX] else None
            if (held is not None) is self.only:
                found.append(replace(line, postponed=held))
        return found

    def among(self, kind: str, rows: QuerySet[Any], cause: str = "") -> QuerySet[Any]:
        """The same of rows of the database, whose field ``cause`` says what has to stay."""
        names = {UUID(name): row.cause for (of, name), row in self.rows.items() if of == kind}
        if cause and names:
            present = dict(rows.filter(pk__in=names).values_list("pk", cause))
            names = {pk: said for pk, said in names.items() if present.get(pk, "")[:CAUSE_MAX] == said}
        return rows.filter(pk__in=names) if self.only else rows.exclude(pk__in=names)

    @property
    def more(self) -> int:
        """How many lines may be found and not looked for."""
        return LIVING_MAX if self.rows else 0


def _requests(actor: Actor, off: _PutOff) -> Group | None:
    rows = off.among("requests", requests_to_decide(actor))
    found, count = list(rows[:SHOWN]), rows.count()
    return _group(
        "requests",
        "Requests",
        f"{_count(count, 'request')} {'waits' if count == 1 else 'wait'} for you",
        off.keep("requests", map(_request, found)),
        count,
    )


def _request(found: AccessRequest) -> Line:
    return Line(
        name=str(found.pk),
        title=f"{found.asked_by.email}: {found}",
        text=found.reason,
        since=found.created_at,
        url=reverse("request", args=[found.pk]),
        action="Look at it",
        dialog=(
            (reverse("request-approve", args=[found.pk]), "Approve"),
            (reverse("request-deny", args=[found.pk]), "Deny"),
        ),
    )


def _operations(actor: Actor, now: datetime, off: _PutOff) -> Group | None:
    stuck = ~Q(error="") | Q(created_at__lt=now - STUCK_AFTER)
    rows = Operation.objects.filter(stuck, state__in=_LIVING).select_related("workspace__tenant", "workspace__cluster")
    if not actor.sees_all:
        owned = Membership.objects.filter(user_id=actor.user_id, role=Role.OWNER)  # type: ignore[misc]
        rows = rows.filter(workspace__tenant__in=owned.values("tenant_id"))
    held = Freeze.objects.filter(
        Q(workspace=None) | Q(workspace=OuterRef("workspace")), tenant=OuterRef("workspace__tenant")
    )
    waiting = off.among("operations", rows.annotate(held=Exists(held)), cause="error")
    found, count = list(waiting.order_by("created_at", "id")[:SHOWN]), waiting.count()
    return _group(
        "operations",
        "Operations that failed or do not end",
        f"{_count(count, 'operation')} failed",
        off.keep("operations", (_operation(actor, each, held=each.held) for each in found)),
        count,
        url=reverse("operations") if actor.sees_all else "",
    )


def _operation(actor: Actor, found: Operation, *, held: bool) -> Line:
    given_up = actor.operator and found.desired == Desired.DELETED and bool(found.workspace.cluster.last_error)
    # Where an operator holds everything still, nothing is made but by operators.
    waits = held and found.desired == Desired.READY and not actor.operator
    abandon = ((reverse("workspace-abandon", args=[found.workspace_id]), "Give up"),) if given_up else ()
    return Line(
        name=str(found.pk),
        cause=found.error,
        title=f"{found.workspace}: {TITLES.get(found.desired, 'In progress').lower()}",
        text=found.error
        or f"It has been on its way since, at “{labels.step_name(found.step) if found.step else 'start'}”.",
        since=found.created_at,
        url=reverse("workspace", args=[found.workspace_id]),
        action="Look at it",
        dialog=abandon,
        post=("", "") if actor.auditor or waits else (reverse("operation-retry", args=[found.pk]), "Try again"),
    )


def _tokens(actor: Actor, now: datetime, off: _PutOff) -> Group | None:
    """The person's own: nobody makes another's."""
    rows = off.among("tokens", tokens_ending_of(actor.user_id, now=now))
    found, count = list(rows[:SHOWN]), rows.count()
    lines = [
        Line(
            name=str(each.pk),
            title=f"Your access token “{each.name}” ends on {each.expires_at:%d %b %Y %H:%M} UTC",
            text="Make another one for what uses it, and revoke this one.",
            since=None,
            url=reverse("tokens"),
            action="See your tokens",
            dialog=((reverse("token-new"), "New token"),),
        )
        for each in found
    ]
    words = f"{_count(count, 'access token')} of yours {'ends' if count == 1 else 'end'} soon"
    return _group(
        "tokens", "Access tokens that end soon", words, off.keep("tokens", lines), count, url=reverse("tokens")
    )


def _clusters(actor: Actor, now: datetime, off: _PutOff) -> Group | None:
    lines = []
    for cluster in selectors.clusters_to_tend(actor, now=now):
        if cluster.unreached_since:
            lines.append(
                Line(
                    name=f"{cluster.name}/away",
                    cause=f"{cluster.unreached_since.isoformat()} {cluster.unreached_why}",
                    title=f"{cluster.name} is away since {cluster.unreached_since:%d %b %H:%M} UTC",
                    text=cluster.unreached_why,
                    since=cluster.unreached_since,
                    url=reverse("cluster", args=[cluster.name]),
                    action="Look at it",
                    post=(reverse("cluster-check", args=[cluster.name]), "Check now") if actor.operator else ("", ""),
                )
            )
        if selectors.credential_ends_soon(cluster, now=now):
            ends = f"{cluster.credential_expires_at:%d %b %Y %H:%M} UTC"
            # The product makes its own by a command, with the authority's key that no portal has.
            own = cluster.kind == Cluster.Kind.EMBEDDED
            rotates = actor.operator and not own
            how = "Run manage.py rotate client-certificates" if own else "Make a new one and rotate it"
            lines.append(
                Line(
                    name=f"{cluster.name}/credential",
                    cause=ends,
                    title=f"The gateway's credential of {cluster.name} ends on {ends}",
                    text=f"{how}, or nothing can be changed there any more.",
                    since=None,
                    url=reverse("cluster-credential" if rotates else "cluster", args=[cluster.name]),
                    action="Rotate it" if rotates else "Look at it",
                )
            )
    lines = off.keep("clusters", lines)
    count = len(lines)
    words = f"{_count(count, 'cluster')} {'needs' if count == 1 else 'need'} somebody"
    return _group("clusters", "Clusters", words, lines[:SHOWN], count, url=reverse("clusters"), apart=True)


def _certificates(now: datetime, off: _PutOff) -> Group | None:
    """The certificates in the product's own folder; what it is started with from elsewhere is not known here."""
    lines = []
    folder = settings.PKI_DIR
    files = sorted(folder.glob("*.crt")) if folder.is_dir() else []
    for file in files[:_CERTIFICATES_MAX]:
        try:
            ends = x509.load_pem_x509_certificate(file.read_bytes()).not_valid_after_utc
        except (OSError, ValueError):
            continue
        if ends - now < CERTIFICATES_SOON:
            word = "ended" if ends <= now else "ends"
            lines.append(
                Line(
                    name=file.name,
                    cause=f"{word} on {ends.isoformat()}",
                    title=f"The certificate {file.name} {word} on {ends:%d %b %Y %H:%M} UTC",
                    text="manage.py rotate makes another one, without a restart; the documentation says how.",
                    since=None,
                    url=reverse("identity"),
                    action="See what is trusted",
                )
            )
    lines = off.keep("certificates", lines)
    return _group("certificates", "Certificates", _count(len(lines), "certificate"), lines, len(lines), apart=True)


def _backups(now: datetime, off: _PutOff) -> Group | None:
    standing, lines = backups_standing(), []
    url = f"{reverse('audit')}?action={Action.BACKUP_MADE}&chain=system"
    if standing.overdue(now):
        holds = f"{standing.holds:%d %b %Y %H:%M} UTC" if standing.holds else ""
        lines.append(
            Line(
                name="overdue",
                cause=holds,
                title=f"No backup is newer than of {holds}" if holds else "There is no backup",
                text="Look why none was made, and make one: manage.py backup, or a Job of the CronJob for backups.",
                since=standing.due,
                url=url,
                action="See the last ones",
            )
        )
    if standing.failed_at:
        lines.append(
            Line(
                name="failed",
                cause=standing.failure,
                title="The last backup has failed",
                text=standing.failure,
                since=standing.failed_at,
                url=url,
                action="See the last ones",
            )
        )
    lines = off.keep("backups", lines)
    return _group("backups", "Backups", "There is no new backup", lines, len(lines), apart=True)


def _drift(now: datetime, off: _PutOff) -> Group | None:
    rows = AuditEntry.objects.filter(action=Action.WORKSPACE_DRIFTED, created_at__gte=now - _DAY)
    found = list(
        rows.exclude(workspace_id=None)
        .order_by()
        .values("workspace_id")
        .annotate(times=Count("id"), last=Max("created_at"))
        .order_by("-times", "-last")[: SHOWN + off.more]
    )
    names = {
        each.pk: str(each)
        for each in Workspace.objects.filter(pk__in=[row["workspace_id"] for row in found]).select_related("tenant")
    }
    lines = [
        Line(
            name=str(row["workspace_id"]),
            cause=_magnitude(row["times"]),
            title=f"{names[row['workspace_id']]} differed from what it should be, {_count(row['times'], 'time')}",
            text="It was repaired; somebody or something on the cluster changes it.",
            since=row["last"],
            url=reverse("workspace", args=[row["workspace_id"]]),
            action="Look at it",
        )
        for row in found
        if row["workspace_id"] in names
    ]
    lines = off.keep("drift", lines)[:SHOWN]
    words = f"{_count(len(lines), 'workspace')} drifted in the last day"
    return _group("drift", "Drift in the last day", words, lines, len(lines))


def _quotas(off: _PutOff) -> Group | None:
    full = quotas_nearly_full(QUOTA_SHARE, limit=SHOWN + off.more)
    lines = [
        Line(
            name=f"{tenant}/{resource}",
            cause="full" if share >= 1 else "nearly full",
            title=f"{tenant} uses {share:.0%} of {labels.resource_name(resource).lower()}",
            text="Of its quota, at the end of the last full hour. Give more, or talk to its owners.",
            since=None,
            url=reverse("tenant-quota", args=[tenant]),
            action="See the quota",
            dialog=((reverse("tenant-quota-change", args=[tenant]), "Change it"),),
        )
        for tenant, resource, share in full
    ]
    lines = off.keep("quota", lines)[:SHOWN]
    words = f"{_count(len({line.name.partition('/')[0] for line in lines}), 'tenant')} above 90 % of a quota"
    return _group("quota", "Quotas above 90 %", words, lines, len(lines))


def _sign_ins(now: datetime, off: _PutOff) -> Group | None:
    rows = AuditEntry.objects.filter(action=Action.SIGN_IN, outcome=Outcome.DENIED, created_at__gte=now - _DAY)
    count = rows.count()
    if not count:
        return None
    last = rows.order_by("-created_at").values_list("created_at", flat=True).first()
    line = Line(
        name="refused",
        cause=_magnitude(count),
        title=f"{_count(count, 'sign-in')} refused in the last day",
        text="Many for one name, or from one address, is somebody who guesses.",
        since=last,
        url=f"{reverse('audit')}?action={Action.SIGN_IN}&outcome={Outcome.DENIED}&chain=system",
        action="See who",
    )
    return _group("sign-ins", "Sign-ins", line.title, off.keep("sign-ins", [line]), count)


def _group(
    key: str,
    title: str,
    headline: str,
    lines: Iterable[Line],
    count: int,
    *,
    url: str = "",
    apart: bool = False,
) -> Group | None:
    found = tuple(lines)
    if not found:
        return None
    return Group(key=key, title=title, headline=headline, count=count, lines=found, url=url, apart=apart)


def _magnitude(number: int) -> str:
    """What changes when there is ten times as much of it."""
    return f"{10 ** (len(str(number)) - 1)} and more"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
