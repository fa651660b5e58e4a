"""Declarations and the portal: what is there, what apply made, and changes carried out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tenantry_cli.api import Api
from tenantry_cli.declarations.changes import Action, Change
from tenantry_cli.declarations.documents import Fields, Item, Kind
from tenantry_cli.failures import Failure, Status


def current_of(api: Api, declared: Iterable[Item]) -> dict[Item, Fields | None]:
    """What the portal has of each, ``None`` where there is nothing. Raises ``Failure`` for a tenant that is ending."""
    declared = list(declared)
    members = {tenant: _members(api, tenant) for tenant in {item.tenant for item in declared if item.tenant}}
    return {item: members[item.tenant].get(item.name) if item.tenant else _read(api, item) for item in declared}


def managed_by(api: Api, manager: str) -> list[Item]:
    """What apply made under this name and is still there."""
    tiers = [row for row in api.pages("tiers", "") if row["managed_by"] == manager]
    tenants = [row for row in api.pages("tenants", "", managed_by=manager) if row["state"] != "terminating"]
    members = api.pages("memberships", "", managed_by=manager)
    return [
        *(Item(Kind.TIER, row["name"]) for row in tiers),
        *(Item(Kind.TENANT, row["name"]) for row in tenants),
        *(Item(Kind.MEMBER, row["email"].lower(), row["tenant"]) for row in members),
    ]


@dataclass(frozen=True, slots=True)
class Found:
    """What is to be deleted, as it was when that was planned: a namesake that comes in its place is another."""

    path: tuple[str, ...]
    tag: str


def found_of(api: Api, item: Item, manager: str) -> Found:
    """Where it is, and which it is. Raises ``Failure`` where it is not what ``manager`` made any more."""
    path: tuple[str, ...] = (f"{item.kind.lower()}s", item.name, "")
    if item.kind is Kind.MEMBER:
        path = ("tenants", item.tenant, "members", _members(api, item.tenant).get(item.name, {}).get("user_id", ""), "")
    there, tag = api.tagged(*path)
    if there.get("managed_by") != manager or not tag:
        raise Failure(f"{item} is another by now; apply again.", Status.CONFLICT)
    return Found(path, tag)


def carry_out(api: Api, change: Change, manager: str, found: Mapping[Item, Found]) -> None:
    """Do it; what is made is marked with ``manager`` for later, what is deleted is what was ``found``. Raises ``Failure``."""
    if change.action is Action.DELETE:
        api.delete(*found[change.item].path, tag=found[change.item].tag)
        return
    match change.item.kind:
        case Kind.TIER:
            _tier(api, change, manager)
        case Kind.TENANT:
            _tenant(api, change, manager)
        case Kind.MEMBER:
            _member(api, change, manager)


def _tier(api: Api, change: Change, manager: str) -> None:
    name = change.item.name
    if change.action is Action.CREATE:
        api.post("tiers", "", body={"name": name, **change.after, "managed_by": manager})
    else:
        api.patch("tiers", name, "", body=change.after)


def _tenant(api: Api, change: Change, manager: str) -> None:
    name, wanted = change.item.name, dict(change.after)
    if change.action is Action.CREATE:
        made = {field: wanted.pop(field) for field in ("display_name", "quota") if field in wanted}
        api.post("tenants", "", body={"name": name, **made, "managed_by": manager})
    if "display_name" in wanted:
        api.patch("tenants", name, "", body={"display_name": wanted["display_name"]})
    if "quota" in wanted:
        api.put("tenants", name, "quota", "", body={"hard": wanted["quota"]})
    if "policies" in wanted:
        api.put("tenants", name, "policies", "", body={"policies": wanted["policies"]})


def _member(api: Api, change: Change, manager: str) -> None:
    tenant, email = change.item.tenant, change.item.name
    marked = {"managed_by": manager} if change.action is Action.CREATE else {}
    api.post("tenants", tenant, "members", "", body={"email": email, **change.after, **marked})


def _read(api: Api, item: Item) -> Fields | None:
    try:
        if item.kind is Kind.TIER:
            tier: Fields = api.get("tiers", item.name, "")
            return tier
        tenant = api.get("tenants", item.name, "")
    except Failure as failure:
        if failure.status is Status.NOT_FOUND:
            return None
        raise
    if tenant["state"] == "terminating":
        raise Failure(f"{item} is being deleted; apply again when it is gone.", Status.CONFLICT)
    return {
        "display_name": tenant["display_name"],
        "quota": api.get("tenants", item.name, "quota", "")["hard"],
        "policies": api.get("tenants", item.name, "policies", "")["policies"],
    }


def _members(api: Api, tenant: str) -> dict[str, Any]:
    """The members of a tenant by their addresses; none of one that is not there yet."""
    try:
        return {row["email"].lower(): row for row in api.pages("tenants", tenant, "members", "")}
    except Failure as failure:
        if failure.status is Status.NOT_FOUND:
            return {}
        raise
