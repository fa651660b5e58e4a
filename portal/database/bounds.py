"""What keeps anybody in a tenant from filling each table: a table without a line here fails a test (AD8).

A bound is a number of rows or bytes that a tenant, a person or everybody together may have (``COUNT``, ``BYTES``), how long a
row that is over stays beside how fast rows come (``AGE``), another table's bound, each of whose rows has a few of these
(``WITH``), or nobody in a tenant makes its rows at all (``NOBODY``). ``RATE`` is for the record alone, which nobody may take
back: it is bounded in how fast it grows. Sending something that is no reading takes of ``tenants.actionlimits.WRITES``,
whatever it is, and of the rates of ``docs/operators/operations.md`` at the API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class By(StrEnum):
    """What a table is bounded by."""

    COUNT = "a number"
    BYTES = "bytes"
    AGE = "age and pace"
    WITH = "what it belongs to"
    RATE = "pace alone"
    NOBODY = "operators and workers alone write it"


@dataclass(frozen=True, slots=True)
class Bound:
    """How much, in words that name the number; ``where`` it stands: a module and a name in it, or a setting."""

    by: By
    words: str = ""
    where: str = ""


_ENDED: Final = "portal.settings.ENDED_ROWS_KEEP_DAYS"
_OPERATORS: Final = Bound(By.NOBODY)

BOUNDS: Final[Mapping[str, Bound]] = {
    "store_object": Bound(By.BYTES, "`stored_mebibytes` of the tenant's tiers", "kube.quota.storedbytes.SETTING"),
    "store_space": Bound(By.WITH, "one row for each space that holds an object"),
    "store_event": Bound(
        By.AGE,
        "15 minutes and a million changes, of at most one object each, at the API server's write rate",
        "store.log.compaction.Retention",
    ),
    "store_revision": Bound(By.COUNT, "one row"),
    "store_lease": Bound(By.COUNT, "one for each space and process that reads it", "store.log.leases.Terms"),
    "audit_logs": Bound(By.RATE, "one entry or few for each thing done", "tenants.actionlimits.WRITES"),
    "audit_chains": Bound(By.WITH, "one row a tenant"),
    "api_requests": Bound(
        By.BYTES,
        "`API_REQUESTS_KEEP_BYTES` together, the oldest days go; `API_REQUESTS_DAYS_AT_LEAST` are held, each shared evenly",
        "portal.settings.API_REQUESTS_KEEP_BYTES",
    ),
    "tenants": Bound(By.NOBODY),
    "offboardings": Bound(By.NOBODY),
    "memberships": Bound(By.COUNT, "one for each account and tenant; accounts are made by operators and invitations"),
    "invitations": Bound(By.AGE, "200 wait at a time; ended ones go", "tenants.services.invitations.WAITING_MAX"),
    "access_requests": Bound(
        By.AGE,
        "20 of a person and 200 of a tenant's members wait at a time; ended ones go",
        "tenants.requests.selectors.OPEN_OF_PERSON_MAX",
    ),
    "request_comments": Bound(By.WITH, "50 a request", "tenants.services.requests.asking.COMMENTS_MAX"),
    "notices": Bound(By.RATE, "told within seconds and gone", "tenants.actionlimits.WRITES"),
    "notifications": Bound(
        By.COUNT, "200 of a person, and 200 about the account", "tenants.services.notices.KEPT_OF_PERSON"
    ),
    "webhooks": Bound(By.COUNT, "10 of a tenant", "tenants.services.notices.WEBHOOKS_MAX"),
    "deliveries": Bound(
        By.COUNT, "100 of a webhook, one of a notification", "tenants.services.notices.KEPT_OF_WEBHOOK"
    ),
    "workspaces": Bound(
        By.AGE,
        "`workspaces_per_user` of the tier at a time, new ones at a pace; deleted ones go",
        "tenants.actionlimits.INIT",
    ),
    "operations": Bound(By.AGE, "one of a workspace at a time; finished ones go", _ENDED),
    "credentials": Bound(By.AGE, "made at a pace; ended ones go", "tenants.actionlimits.CREDENTIAL"),
    "personal_access_tokens": Bound(By.AGE, "50 of a person live; ended ones go", _ENDED),
    "logins": Bound(By.AGE, "made at a pace; ended ones go", _ENDED),
    "portal_sessions": Bound(By.COUNT, "100 of a person", "portal.signin.sessions.SHOWN"),
    "django_session": Bound(
        By.AGE, "with the portal's, and until they expire", "portal.signin.sessions.sessions_forget"
    ),
    "second_factors": Bound(By.COUNT, "one of a person"),
    "recovery_codes": Bound(By.COUNT, "one set of a person"),
    "passkeys": Bound(By.COUNT, "20 of a person", "portal.signin.passkeys.MOST"),
    "password_resets": Bound(
        By.AGE,
        "three at once, then one in ten minutes for an account; ended ones go",
        "portal.signin.attempts.LINK_ACCOUNT",
    ),
    "users": Bound(By.COUNT, "one for each address that an operator or an invitation names"),
    "users_groups": _OPERATORS,
    "users_user_permissions": _OPERATORS,
    "announcement_dismissals": Bound(By.WITH, "one for each person and announcement"),
    "announcements": _OPERATORS,
    "announcement_tenants": _OPERATORS,
    "announcement_tiers": _OPERATORS,
    "locks": Bound(By.COUNT, "one for each door"),
    "freezes": Bound(By.COUNT, "one for each door"),
    "stream_counts": Bound(By.WITH, "one for each process and namespace with open streams"),
    "pod_connections": Bound(By.COUNT, "`open_watches` of the tenant", "kube.requests.ratelimits.SETTINGS"),
    "recordings": Bound(
        By.BYTES, "`RECORDINGS_TENANT_MAX_MIB` of a tenant", "portal.settings.RECORDINGS_TENANT_MAX_MIB"
    ),
    "recording_chunks": Bound(By.WITH, "`RECORDING_MAX_MIB` a recording", "portal.settings.RECORDING_MAX_MIB"),
    "usage_hours": Bound(
        By.AGE, "one an hour for each tenant and namespace, for a year", "tenants.usagesampling.usage_forget"
    ),
    "usage_prices": _OPERATORS,
    "past_prices": _OPERATORS,
    "tiers": _OPERATORS,
    "clusters": _OPERATORS,
    "cluster_probes": _OPERATORS,
    "webhook_credentials": _OPERATORS,
    "postponements": _OPERATORS,
    "auth_group": _OPERATORS,
    "auth_group_permissions": _OPERATORS,
    "auth_permission": _OPERATORS,
    "django_content_type": _OPERATORS,
    "django_admin_log": _OPERATORS,
    "django_migrations": _OPERATORS,
}
"""By table."""
