"""Questions about rights, put together from what exists: people, things, places; or read from what people paste (AZ11)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
from django.utils import timezone

from audit.models import ApiRequest
from audit.recorder import Actor
from audit.selectors import refused_request
from gateway.server import explanation
from gateway.server.questiondeadlines import OBJECTS_MAX, heed, too_long
from kube.authentication.identity import SERVICE_ACCOUNT_PREFIX
from kube.authorization.rbac import GROUP, Attributes
from kube.customresources.definitions import CRDS, is_established
from kube.kinds.builtins import BUILTINS, TENANT_BUILTINS
from kube.kinds.kubectl import Inquiry, UnknownCommand, inquiry_of, resource_named
from kube.kinds.resources import Catalog, Resource, Version
from kube.objects.publications import PUBLISHED
from kube.requests.logicalclusters import ROOT, is_valid, is_workspace, space_of, tenant_of
from kube.requests.requestinfo import RequestInfo, parse, resolve
from kube.requests.status import BadRequest, NotFound, StatusError
from kube.workspaces.types import WORKSPACES, may_enter
from portal.access.auditlog import is_visible
from portal.access.explanation import as_member, may_grant
from portal.access.questionlimits import question
from portal.database.scopes import everything
from store import synchronous
from store.types import Range, Stored
from tenants import selectors
from tenants.models import Membership, Tenant, User

CHOICES_MAX: Final = 200
"""More than this is a list that nobody reads: the name is typed."""

FOUND_FOR: Final = timedelta(days=30)
"""How far back a refused request is found by its audit ID."""

_ENTER: Final = may_enter("access")
_AUDIT_ID: Final = re.compile(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}")
_REQUEST: Final = re.compile(r"(?:(GET|HEAD|POST|PUT|PATCH|DELETE)\s+)?(/\S*|https?://\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What there is to ask about in one place, each list no longer than ``CHOICES_MAX``."""

    places: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    things: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    bindings: tuple[str, ...] = ()


@question
@everything()  # as the API server decides, which sees every space; what may be seen is asked of the actor below
def choices_in(actor: Actor, cluster: str) -> Choices:
    """What the actor may choose from in a logical cluster: of one that is not theirs, nothing but the places.

    People, roles and bindings are listed for those who hand out rights there; everybody else asks about themselves.
    """
    places = _places(actor)
    if not is_theirs(actor, cluster):
        return Choices(places=places)
    namespaces = _first(stored.key.name for stored in _objects(cluster, "", "namespaces"))
    things = tuple(sorted({name for resource in catalog_of(cluster) for name in _names(resource)}))
    if not may_grant(actor, cluster):
        return Choices(places=places, people=(actor.name,), things=things, namespaces=namespaces)
    accounts = (
        f"{SERVICE_ACCOUNT_PREFIX}{stored.key.namespace}:{stored.key.name}"
        for stored in _objects(cluster, "", "serviceaccounts")
    )
    return Choices(
        places=places,
        people=_first(chain(_members(cluster), accounts)),
        things=things,
        namespaces=namespaces,
        roles=_first(_bindable(cluster)),
        bindings=_first(
            f"{kind}/{stored.key.namespace}/{stored.key.name}".replace("//", "/")
            for kind, plural in (("ClusterRoleBinding", "clusterrolebindings"), ("RoleBinding", "rolebindings"))
            for stored in _objects(cluster, GROUP, plural)
        ),
    )


def is_theirs(actor: Actor, cluster: str) -> bool:
    """Whether a logical cluster is of a tenant of the actor's, and open to them, or the actor an operator."""
    if not is_valid(cluster):
        return False
    if actor.sees_all:
        return True
    member = Membership.objects.filter(user_id=actor.user_id, tenant_id=tenant_of(cluster)).exists()  # type: ignore[misc]
    return member and (not is_workspace(cluster) or may_grant(actor, cluster) or _allowed(actor, cluster, _ENTER))


@everything()
def catalog_of(cluster: str) -> Catalog:
    """The resources of a logical cluster by their names: the built-in ones, its own and the published ones (TS12)."""
    own = [_named(stored) for stored in _objects(cluster, *CRDS)]
    if cluster == ROOT:
        return BUILTINS.extended(filter(None, own))
    published = [
        _named(stored)
        for stored in _objects(ROOT, *CRDS)
        if PUBLISHED in (orjson.loads(stored.data)["metadata"].get("annotations") or {})
    ]
    return TENANT_BUILTINS.extended(filter(None, [*published, *own]))


def attributes_of(asked: Mapping[str, str]) -> Attributes:
    """A verb, a thing (``deploy``, ``deployments.apps/scale``, or a path) and where, as RBAC is asked.

    What the place does not know by that name is taken as it is written: rights may be about what is not there yet.
    """
    thing = asked["thing"].strip()
    if thing.startswith("/"):
        return Attributes(asked["action"], path=thing, is_resource=False)
    what, slash, part = thing.partition("/")
    try:
        resource = resource_named(what, catalog_of(asked["cluster"]))
        plural, group, namespaced = resource.plural, resource.group, resource.namespaced
    except UnknownCommand:
        plural, _, group = what.partition(".")
        namespaced = True
    namespace = asked["namespace"] if namespaced or plural == "namespaces" else ""
    return Attributes(asked["action"], group, f"{plural}{slash}{part}", part, namespace, asked["name"])


@question
@everything()
def question_in(actor: Actor, text: str, cluster: str) -> dict[str, str]:
    """The fields that a pasted kubectl command, audit ID or request line fills, the person and the place among them.

    Raises ``BadRequest`` for what says nothing, ``NotFound`` for an audit ID that is not the actor's to know of.
    """
    text = text.strip()
    if _AUDIT_ID.fullmatch(text):
        return _of_row(_refused(actor, text))
    line = _REQUEST.fullmatch(text)
    if line:
        address = urlsplit(line[2])
        return _of_path(line[1] or "GET", f"{address.path}?{address.query}" if address.query else address.path, cluster)
    try:
        return _of_command(inquiry_of(text, catalog_of(cluster)), cluster)
    except UnknownCommand as error:
        raise BadRequest(str(error)) from None


def _of_command(asked: Inquiry, cluster: str) -> dict[str, str]:
    thing = asked.path
    if asked.resource is not None:
        thing = f"{asked.resource.qualified_name}/{asked.subresource}".removesuffix("/")
    namespace = {} if asked.namespace is None else {"namespace": asked.namespace}
    person = {"person": asked.user} if asked.user else {}
    sent = {"manifest": asked.sent, "patch": asked.patch} if asked.sent else {}
    return {"action": asked.verb, "thing": thing, "name": asked.name, "cluster": cluster, **namespace, **person, **sent}


def _of_path(method: str, path: str, cluster: str) -> dict[str, str]:
    target, _, query = path.partition("?")
    if not target.isascii() or not query.isascii():
        raise BadRequest("The path has characters that must be percent-encoded.")
    tenant = tenant_of(cluster) if is_valid(cluster) else ""
    return _of_request(resolve(parse(method, target.encode(), query.encode()), tenant))


def _of_row(row: ApiRequest) -> dict[str, str]:
    """The question of a recorded request, about whoever sent it."""
    method = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}
    try:
        asked = _of_path(method.get(row.verb, "GET"), row.path, row.space)
    except StatusError:
        asked = {"thing": row.path, "cluster": row.space}
    return {**asked, "action": row.verb, "person": row.actor}


def _of_request(info: RequestInfo) -> dict[str, str]:
    thing = info.path
    if info.is_resource:
        plural = f"{info.resource}.{info.group}".removesuffix(".")
        thing = f"{plural}/{info.subresource}".removesuffix("/")
    asked = {"action": info.verb, "thing": thing, "name": info.name, "namespace": info.namespace}
    return {**asked, "cluster": info.cluster}


def _refused(actor: Actor, audit_id: str) -> ApiRequest:
    row = refused_request(audit_id, since=timezone.now() - FOUND_FOR)
    if row is None or not (actor.sees_all or row.actor == actor.name or is_visible(actor, row.tenant, row.created_at)):
        raise NotFound(f"No refused request of the last {FOUND_FOR.days} days that you may see has this audit ID.")
    return row


def _places(actor: Actor) -> tuple[str, ...]:
    """The spaces that the actor may ask about and the workspaces in them; of operators the system space first.

    All members of a tenant list its workspaces (KC1); what is in one is for whoever may enter it.
    """
    tenants: list[Tenant] = list(selectors.tenants_visible_to(actor).order_by("name")[:CHOICES_MAX])
    spaces = [space_of(tenant.name) for tenant in tenants]
    below = (f"{space}:{stored.key.name}" for space in spaces[:10] for stored in _objects(space, *WORKSPACES))
    return _first(chain([ROOT] if actor.sees_all else [], spaces, below))


def _allowed(actor: Actor, cluster: str, asked: Attributes) -> bool:
    """Whether the API server would let the actor do this."""
    heed()
    return explanation.ask(as_member(actor, tenant_of(cluster)), cluster, asked)[2].allowed


def _members(cluster: str) -> list[str]:
    tenant = tenant_of(cluster)
    people = User.objects.filter(is_staff=True) if cluster == ROOT else User.objects.filter(memberships__tenant=tenant)
    return list(people.order_by("email").values_list("email", flat=True)[:CHOICES_MAX])


def _bindable(cluster: str) -> Iterator[str]:
    for name in ("view", "edit", "admin", "cluster-admin"):
        yield f"ClusterRole/{name}"
    for stored in _objects(cluster, GROUP, "clusterroles"):
        yield f"ClusterRole/{stored.key.name}"
    for stored in _objects(cluster, GROUP, "roles"):
        yield f"Role/{stored.key.namespace}/{stored.key.name}"


def _names(resource: Resource) -> Iterable[str]:
    yield resource.qualified_name
    for part in resource.preferred.subresources:
        if part.name in _PARTS:
            yield f"{resource.qualified_name}/{part.name}"


_PARTS: Final = frozenset({"attach", "eviction", "exec", "log", "portforward", "scale", "token"})
"""The parts that people have rights to by themselves."""


def _named(stored: Stored) -> Resource | None:
    """A custom resource by its names alone: to ask about it nobody needs its schema."""
    crd: dict[str, Any] = orjson.loads(stored.data)
    if not is_established(crd):
        return None
    spec = crd["spec"]
    names = spec["names"]
    return Resource(
        group=spec["group"],
        kind=names["kind"],
        plural=names["plural"],
        singular=names.get("singular") or names["kind"].lower(),
        list_kind="",
        namespaced=spec["scope"] == "Namespaced",
        versions=tuple(Version(name=version["name"]) for version in spec["versions"]),
        short_names=tuple(names.get("shortNames") or ()),
        custom=True,
    )


def _objects(space: str, group: str, plural: str) -> Iterator[Stored]:
    """One after the other, none of which is held when the next portion is read."""
    for number, stored in enumerate(synchronous.objects_of(Range(space, group, plural), portion=CHOICES_MAX)):
        heed()
        if number >= OBJECTS_MAX:
            raise too_long()
        yield stored


def _first(names: Iterable[str]) -> tuple[str, ...]:
    """No more is read than is shown."""
    found: dict[str, None] = {}
    for name in names:
        found[name] = None
        if len(found) == CHOICES_MAX:
            break
    return tuple(found)
