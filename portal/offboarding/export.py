"""Everything of a tenant that somebody may read, as files: objects, members, workspaces, rules, audit and usage (GW28)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, Final

import orjson
import yaml
from django.db.models import QuerySet

from access.policies import policies_page
from audit.actions import Action
from audit.export import csv_line, json_lines
from audit.recorder import Actor
from audit.selectors import PAGE_LIMIT, Filters, Page, chain_began, entry_rows
from gateway.server.explanation import permitted
from kube.authorization.rbac import Attributes
from kube.requests.logicalclusters import space_of
from portal.access.auditlog import Lines
from portal.access.explanation import as_member
from portal.access.inquiries import catalog_of
from portal.database.scopes import everything
from portal.http.places import require_large
from portal.offboarding.archive import Member, archive_pieces
from store import synchronous
from store.types import Range
from tenants import actionlimits, selectors
from tenants.models import Role, Tenant, Workspace
from tenants.quotas import tenant_quota
from tenants.rights import require_role, role_at_least
from tenants.usage import table_of, usage_hours

SECRETS: Final = ("", "secrets")
_PORTION: Final = 20
"""Objects that are read at a time: one has 1.5 MiB at most."""
_ROWS: Final = 500


class Archive(Lines):
    """The archive, some pieces of it at a time."""

    portion = 4


def export_response(actor: Actor, tenant: str, *, secrets: bool, now: datetime) -> Archive:
    """The archive as a download; its beginning is an event of the tenant.

    Raises ``NotFound`` for who is no member, ``TooManyRequests``, ``ServiceUnavailable``.
    """
    role = require_role(actor, tenant, Role.VIEWER)
    found = selectors.tenant_visible_to(actor, tenant)
    require_large(actor, tenant)
    actionlimits.take(actionlimits.EXPORT, actor.user_id or actor.name)
    actor.record(Action.TENANT_EXPORTED, chain=tenant, target=f"tenants/{tenant}", detail={"confidential": secrets})
    readable, refused = _readable(actor, found, secrets=secrets)
    about = {
        "tenant": tenant,
        "asked_by": actor.name,
        "role": role.value,
        "made_at": now.isoformat(),
        "secrets": secrets,
        "left_out": refused,
    }
    members = _members(actor, found, readable, reads_audit=actor.sees_all or role_at_least(role, Role.ADMIN))
    response = Archive(archive_pieces(members, about, now=now), content_type="application/zip")
    response["Content-Disposition"] = f'attachment; filename="{tenant}-{now:%Y-%m-%d}.zip"'
    response["X-Content-Type-Options"] = "nosniff"
    response["Cache-Control"] = "no-store"
    return response


@everything()
def _readable(actor: Actor, tenant: Tenant, *, secrets: bool) -> tuple[list[Range], list[dict[str, str]]]:
    """What is stored that the person may list, and what is left out and why."""
    asked, out = [], []
    for selection, _ in synchronous.holdings(tenant.cluster_path):
        if not _is_served(selection):
            continue  # what the product keeps there for itself
        if (selection.group, selection.resource) == SECRETS and not secrets:
            out.append(_left_out(selection, "Secrets were not asked for."))
        else:
            asked.append(selection)
    allowed: dict[Range, bool] = {}
    for space in sorted({selection.space for selection in asked}):
        here = [selection for selection in asked if selection.space == space]
        said = permitted(
            as_member(actor, tenant.name),
            space,
            [Attributes("list", each.group, each.resource, namespace=each.namespace or "") for each in here],
        )
        allowed |= dict(zip(here, said, strict=True))
    out += [_left_out(each, f"{actor.name} may not list them.") for each in asked if not allowed[each]]
    return [each for each in asked if allowed[each]], out


def _is_served(selection: Range) -> bool:
    return any(
        (resource.group, resource.plural) == (selection.group, selection.resource)
        for resource in catalog_of(selection.space)
    )


def _left_out(selection: Range, why: str) -> dict[str, str]:
    return {"name": _file_of(selection), "why": why}


def _file_of(selection: Range) -> str:
    """``objects/<logical cluster>/<namespace>/<plural>.<group>.yaml``; a plain minus for objects of no namespace.

    Names of logical clusters have minuses and no dots: joined by those, no two make one file of an archive.
    """
    kind = f"{selection.resource}.{selection.group}" if selection.group else selection.resource
    place = ".".join(selection.space.split(":")[1:])
    return f"objects/{place}/{selection.namespace or '-'}/{kind}.yaml"


def _members(actor: Actor, tenant: Tenant, readable: Iterable[Range], *, reads_audit: bool) -> Iterator[Member]:
    name = tenant.name
    yield Member("tenant.json", [_json(_tenant_facts(tenant))])
    yield Member("members.json", [_json([_member_facts(each) for each in _all(selectors.members_page, actor, name)])])
    workspaces = selectors.workspaces_visible_to(actor).filter(tenant=tenant).order_by("name", "id")
    yield Member("workspaces.jsonl", (_line(_workspace_facts(each)) for each in _rows(workspaces)))
    quota = tenant_quota(name)
    yield Member("quota.json", [_json({"hard": dict(quota.hard), "used": dict(quota.used)})])
    yield Member("rules.yaml", [_yaml(tenant.policies)])
    let_in = _all(policies_page, actor, name)
    lets_in = ({"name": each.name, "spec": dict(each.spec), "since": each.since} for each in let_in)
    yield Member("lets-in.jsonl", map(_line, lets_in))
    yield Member("usage.csv", map(csv_line, table_of(_rows(usage_hours(tenant)))))
    if reads_audit:
        yield Member("audit.jsonl", json_lines(entry_rows(name, filters=Filters(since=chain_began(name)))))
    for selection in readable:
        yield Member(_file_of(selection), map(_document, synchronous.objects_of(selection, portion=_PORTION)))


def _all(page: Callable[..., Page[Any]], actor: Actor, tenant: str) -> Iterator[Any]:
    """The rows of all pages, one page after the other."""
    after = ""
    while True:
        found = page(actor, tenant, after=after, limit=PAGE_LIMIT)
        yield from found.rows
        after = found.next
        if not after:
            return


def _rows(rows: QuerySet[Any]) -> Iterator[Any]:
    return rows.iterator(chunk_size=_ROWS)


def _document(stored: Any) -> str:
    """An object as it is kept, without who manages which of its fields."""
    body = orjson.loads(stored.data)
    body.get("metadata", {}).pop("managedFields", None)
    return f"---\n{_yaml(body)}"


def _yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str) + "\n"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str) + "\n"


def _tenant_facts(tenant: Tenant) -> dict[str, Any]:
    return {
        "name": tenant.name,
        "display_name": tenant.display_name,
        "state": tenant.state,
        "space": space_of(tenant.name),
        "created_at": tenant.created_at.isoformat(),
    }


def _member_facts(membership: Any) -> dict[str, Any]:
    return {
        "email": membership.user.email,
        "name": membership.user.name,
        "role": membership.present_role,
        "since": membership.created_at.isoformat(),
        "expires_at": membership.expires_at and membership.expires_at.isoformat(),
    }


def _workspace_facts(workspace: Workspace) -> dict[str, Any]:
    return {
        "id": str(workspace.pk),
        "name": workspace.name,
        "namespace": workspace.k8s_namespace,
        "cluster": workspace.cluster.name,
        "tier": workspace.tier_id,
        "status": workspace.status,
        "user": workspace.user.email,
        "created_at": workspace.created_at.isoformat(),
    }
