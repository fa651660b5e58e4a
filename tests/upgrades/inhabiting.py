"""What people make in an installation by its REST API, and everything that it lists: the same of any release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.story.product import Person, eventually

PASSWORD: Final = "correct horse battery"
API: Final = "/api/v1/"
WHEN: Final = 300.0
"""Seconds for which a worker is waited for."""

PAGES: Final = (
    *(
        "",
        "inbox/",
        "my-requests/",
        "notifications/",
        "announcements/",
        "workspaces/",
        "tenants/",
        "tiers/",
        "clusters/",
    ),
    *("audit/", "audit/requests/", "credentials/", "operations/", "tokens/", "admin/", "admin/tenants/user/"),
)
"""What an operator looks at."""

_LISTS: Final = (
    *(
        "users/",
        "announcements/",
        "requests/",
        "workspaces/",
        "tenants/",
        "freezes/",
        "tiers/",
        "clusters/",
    ),
    *("operations/", "notifications/", "tokens/", "prices/", "inbox/", "recordings/"),
    *(
        "audit-logs/?limit=200",
        "webhooks/?tenant={tenant}",
        "reports/dormant-workspaces/",
        "reports/quota-nearly-used/",
    ),
    *(f"tenants/{{tenant}}/{part}/" for part in ("members", "invitations", "credentials", "quota", "policies")),
    *("tenants/{tenant}/", "workspaces/{workspace}/", "workspaces/{workspace}/credentials/"),
)
_MOVES: Final = frozenset({"checks", "checked_at", "last_seen_at", "last_used_at", "last_sign_in_at", "next", "used"})
"""What changes by itself, or names the portal that was asked."""


@dataclass(frozen=True)
class Inhabited:
    """A tenant of this name, and its workspace."""

    tenant: str
    workspace: str
    namespace: str
    owner: str
    """The address of its owner, who has ``PASSWORD``."""


def said(person: Person, method: str, path: str, *, expect: int = 201, **body: Any) -> Any:
    """What the REST API answers."""
    answer = person.request(method, API + path, **({"json": body} if body else {}))
    assert answer.status_code == expect, (method, path, answer.status_code, answer.text)
    return answer.json() if answer.content else None


def inhabit(operator: Person, mark: str) -> Inhabited:
    """Make a row of everything that can be made, all with this name in theirs, through the portal of this person."""
    soon = (datetime.now(UTC) + timedelta(days=20)).isoformat()
    owner = Person(operator.product)
    address = f"owner@{mark}.test"
    operator.create_account(address, PASSWORD)
    owner.sign_in(address, PASSWORD)
    guest = said(operator, "POST", "users/", email=f"guest@{mark}.test", name="Guest")
    tier = {
        "display_name": "A tier",
        "description": "With all that a tier has.",
        "quota": {"pods": "9", "requests.cpu": "2", "limits.cpu": "4", "limits.memory": "2Gi", "count/secrets": "30"},
        "limit_range": [{"type": "Container", "default": {"cpu": "100m", "memory": "64Mi"}, "max": {"cpu": "2"}}],
        "pod_security": "baseline",
        "network": "tenant",
        "policies": {"registries": ["registry.example.org/a"], "node_labels": ["zone=a"]},
        "request_limits": {"read_qps": 500, "write_qps": 100},
        "recording": "metadata",
        "workspaces_per_user": 5,
        "position": 7,
    }
    said(operator, "POST", "tiers/", name=f"{mark}-tier", **tier)
    said(operator, "POST", "tenants/", name=mark, display_name="A tenant", owner=address, quota={"pods": "50"})
    said(operator, "PUT", f"tenants/{mark}/policies/", expect=200, policies={"hosts": [f"*.{mark}.example.org"]})
    said(operator, "PUT", f"tenants/{mark}/quota/", expect=200, hard={"pods": "60", "requests.cpu": "20"})
    said(operator, "POST", f"tenants/{mark}/members/", email=guest["email"], role="viewer")
    said(operator, "PATCH", f"tenants/{mark}/members/{guest['id']}/", expect=200, expires_at=soon)
    said(owner, "POST", f"tenants/{mark}/invitations/", email=f"new@{mark}.test", role="editor")
    said(owner, "POST", "tokens/", name=f"{mark}-token", scope="read", tenant=mark, expires_at=soon)
    kinds = ["workspace.suspended", "workspace.resumed"]
    said(owner, "POST", "webhooks/", url=f"https://hooks.{mark}.example.org/x", tenant=mark, kinds=kinds)
    audience = {"audience": "tenants", "tenants": [mark], "severity": "warning", "ends_at": soon}
    said(operator, "POST", "announcements/", text=f"To {mark}.", **audience)
    said(operator, "PUT", "prices/", expect=200, prices=[{"measure": "requests", "amount": "0.40", "per": 1000}])
    more = said(owner, "POST", "requests/", kind="quota", tenant=mark, hard={"pods": "99"}, reason="We grow.")
    said(operator, "POST", f"requests/{more['id']}/comments", text="Into what?")
    second = said(owner, "POST", "requests/", kind="tenant", tenant=f"{mark}-second", reason="One is not enough.")
    said(operator, "POST", f"requests/{second['id']}/deny", expect=200, answer="It is.")
    made = ordered(owner, mark)
    said(operator, "PATCH", f"workspaces/{made['id']}/", expect=200, expires_at=soon)
    said(owner, "POST", f"workspaces/{made['id']}/credentials")
    said(operator, "POST", "tenants/", name=f"{mark}-cold")
    said(operator, "POST", f"tenants/{mark}-cold/freeze", expect=200, reason="An audit.", until=soon)
    said(operator, "POST", "tenants/", name=f"{mark}-closed")
    said(operator, "POST", f"tenants/{mark}-closed/suspend", expect=200, reason="unpaid", until=soon)
    return Inhabited(mark, made["id"], made["namespace"], address)


def ordered(owner: Person, tenant: str, name: str = "web") -> dict[str, Any]:
    """A workspace that a worker has made."""
    answer = owner.post(f"{API}workspaces/init", json={"tier": f"{tenant}-tier", "tenant": tenant, "name": name})
    assert answer.status_code in (201, 202), answer.text
    made: dict[str, Any] = answer.json()
    eventually(lambda: state_of(owner, made["id"]) == "provisioned", within=WHEN)
    return made


def state_of(person: Person, workspace: str) -> str:
    """What is told of a workspace."""
    return str(said(person, "GET", f"workspaces/{workspace}/", expect=200)["status"])


def lists(there: Inhabited) -> list[str]:
    """The paths of what the REST API lists."""
    return [path.format(tenant=there.tenant, workspace=there.workspace) for path in _LISTS]


def listed(person: Person, there: Inhabited) -> dict[str, Any]:
    """Everything that the REST API lists, by its path."""
    return {path: said(person, "GET", path, expect=200) for path in lists(there)}


def shared(known: Any, shown: Any) -> Any:
    """Of what another release shows, what this one knows of: without fields that only the other has, and what moves."""
    if isinstance(known, Mapping) and isinstance(shown, Mapping):
        return {key: shared(known[key], shown.get(key, "missing")) for key in known if key not in _MOVES}
    if isinstance(known, list) and isinstance(shown, list) and len(known) == len(shown):
        return [shared(one, other) for one, other in zip(known, shown, strict=True)]
    return shown
