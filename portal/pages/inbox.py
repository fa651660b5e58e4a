"""What waits for a person: one selector for the inbox, for REST, and for the overview's "what needs me now" (GW25).

A fixed number of queries, whatever there is; of each kind the oldest are shown and the rest is counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from django.conf import settings
from django.db.models import Count, Max, Q
from django.urls import reverse

from audit.actions import Action
from audit.models import AuditEntry, Outcome
from audit.recorder import Actor
from portal.pages import labels
from portal.pages.progress import TITLES
from tenants import selectors
from tenants.models import AccessRequest, Desired, Membership, Operation, OperationState, Role, Workspace
from tenants.requests import requests_to_decide
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

    ``dialog`` opens as a dialog, ``post`` is pressed at once.
    """

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


def inbox_of(actor: Actor, *, now: datetime) -> list[Group]:
    """What waits for this person, by kind; kinds of which there is nothing are left out."""
    groups = [_requests(actor), _operations(actor, now)]
    if actor.sees_all:
        groups += [_clusters(actor, now), _certificates(now), _drift(now), _quotas(), _sign_ins(now)]
    return [group for group in groups if group is not None]


def inbox_counted(actor: Actor) -> int:
    """How many decisions wait for this person: the number beside the inbox. One query."""
    return requests_to_decide(actor).count()


def _requests(actor: Actor) -> Group | None:
    rows = requests_to_decide(actor)
    found, count = list(rows[:SHOWN]), rows.count()
    return _group(
        "requests",
        "Requests",
        f"{_count(count, 'request')} {'waits' if count == 1 else 'wait'} for you",
        [_request(each) for each in found],
        count,
    )


def _request(found: AccessRequest) -> Line:
    return Line(
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


def _operations(actor: Actor, now: datetime) -> Group | None:
    stuck = ~Q(error="") | Q(created_at__lt=now - STUCK_AFTER)
    rows = Operation.objects.filter(stuck, state__in=_LIVING).select_related("workspace__tenant", "workspace__cluster")
    if not actor.sees_all:
        owned = Membership.objects.filter(user_id=actor.user_id, role=Role.OWNER)  # type: ignore[misc]
        rows = rows.filter(workspace__tenant__in=owned.values("tenant_id"))
    found, count = list(rows.order_by("created_at", "id")[:SHOWN]), rows.count()
    return _group(
        "operations",
        "Operations that failed or do not end",
        f"{_count(count, 'operation')} failed",
        [_operation(actor, each) for each in found],
        count,
        url=reverse("operations") if actor.sees_all else "",
    )


def _operation(actor: Actor, found: Operation) -> Line:
    given_up = actor.operator and found.desired == Desired.DELETED and bool(found.workspace.cluster.last_error)
    abandon = ((reverse("workspace-abandon", args=[found.workspace_id]), "Give up"),) if given_up else ()
    return Line(
        title=f"{found.workspace}: {TITLES.get(found.desired, 'In progress').lower()}",
        text=found.error
        or f"It has been on its way since, at “{labels.step_name(found.step) if found.step else 'start'}”.",
        since=found.created_at,
        url=reverse("workspace", args=[found.workspace_id]),
        action="Look at it",
        dialog=abandon,
        post=("", "") if actor.auditor else (reverse("operation-retry", args=[found.pk]), "Try again"),
    )


def _clusters(actor: Actor, now: datetime) -> Group | None:
    lines = []
    for cluster in selectors.clusters_to_tend(actor, now=now):
        if cluster.unreached_since:
            lines.append(
                Line(
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
            lines.append(
                Line(
                    title=f"The gateway's credential of {cluster.name} ends on {ends}",
                    text="Make a new one and rotate it, or nothing can be changed there any more.",
                    since=None,
                    url=reverse("cluster-credential" if actor.operator else "cluster", args=[cluster.name]),
                    action="Rotate it" if actor.operator else "Look at it",
                )
            )
    count = len(lines)
    words = f"{_count(count, 'cluster')} {'needs' if count == 1 else 'need'} somebody"
    return _group("clusters", "Clusters", words, lines[:SHOWN], count, url=reverse("clusters"), apart=True)


def _certificates(now: datetime) -> Group | None:
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
                    title=f"The certificate {file.name} {word} on {ends:%d %b %Y %H:%M} UTC",
                    text="Replace it and restart the API server; the documentation says how.",
                    since=None,
                    url=reverse("identity"),
                    action="See what is trusted",
                )
            )
    return _group("certificates", "Certificates", _count(len(lines), "certificate"), lines, len(lines), apart=True)


def _drift(now: datetime) -> Group | None:
    rows = AuditEntry.objects.filter(action=Action.WORKSPACE_DRIFTED, created_at__gte=now - _DAY)
    found = list(
        rows.exclude(workspace_id=None)
        .order_by()
        .values("workspace_id")
        .annotate(times=Count("id"), last=Max("created_at"))
        .order_by("-times", "-last")[:SHOWN]
    )
    names = {
        each.pk: str(each)
        for each in Workspace.objects.filter(pk__in=[row["workspace_id"] for row in found]).select_related("tenant")
    }
    lines = [
        Line(
            title=f"{names[row['workspace_id']]} differed from what it should be, {_count(row['times'], 'time')}",
            text="It was repaired; somebody or something on the cluster changes it.",
            since=row["last"],
            url=reverse("workspace", args=[row["workspace_id"]]),
            action="Look at it",
        )
        for row in found
        if row["workspace_id"] in names
    ]
    words = f"{_count(len(lines), 'workspace')} drifted in the last day"
    return _group("drift", "Drift in the last day", words, lines, len(lines))


def _quotas() -> Group | None:
    full = quotas_nearly_full(QUOTA_SHARE, limit=SHOWN)
    lines = [
        Line(
            title=f"{tenant} uses {share:.0%} of {labels.resource_name(resource).lower()}",
            text="Of its quota, at the end of the last full hour. Give more, or talk to its owners.",
            since=None,
            url=reverse("tenant-quota", args=[tenant]),
            action="See the quota",
            dialog=((reverse("tenant-quota-change", args=[tenant]), "Change it"),),
        )
        for tenant, resource, share in full
    ]
    words = f"{_count(len({tenant for tenant, _, _ in full}), 'tenant')} above 90 % of a quota"
    return _group("quota", "Quotas above 90 %", words, lines, len(lines))


def _sign_ins(now: datetime) -> Group | None:
    rows = AuditEntry.objects.filter(action=Action.SIGN_IN, outcome=Outcome.DENIED, created_at__gte=now - _DAY)
    count = rows.count()
    if not count:
        return None
    last = rows.order_by("-created_at").values_list("created_at", flat=True).first()
    line = Line(
        title=f"{_count(count, 'sign-in')} refused in the last day",
        text="Many for one name, or from one address, is somebody who guesses.",
        since=last,
        url=f"{reverse('audit')}?action={Action.SIGN_IN}&outcome={Outcome.DENIED}&chain=system",
        action="See who",
    )
    return _group("sign-ins", "Sign-ins", line.title, [line], count)


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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
