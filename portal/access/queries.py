"""Who can do a thing, and what a change would change (AZ11): for those who hand out rights in a space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from audit.recorder import Actor
from gateway.server import explanation
from gateway.server.judging import PATCH_TYPES, STRATEGIC, Sent
from gateway.server.questiondeadlines import heed
from kube.authentication.identity import SERVICE_ACCOUNT_PREFIX
from kube.authorization import whatif
from kube.authorization.leastrole import WorkspaceRoles
from kube.authorization.placedrights import PREFIX, kept_binding
from kube.authorization.placedrules import held_in_placed
from kube.authorization.rbac import GROUP, Attributes, Rule, binding_from
from kube.authorization.rbacindex import PolicyIndex
from kube.authorization.whatif import Effect
from kube.authorization.whocan import Holder
from kube.requests.decoding import decode_yaml
from kube.requests.logicalclusters import is_valid
from kube.requests.status import BadRequest, Forbidden
from portal.access.dryruns import Doors
from portal.access.explanation import Explanation, explain_own_write, may_grant
from portal.access.questionlimits import question
from portal.database.scopes import everything
from store import synchronous
from store.types import Key
from tenants.clusters.objects import roles_on
from tenants.models import Cluster

MANIFEST_MAX: Final = 256 * 1024


@question
@everything()  # as the API server decides, which sees every space
def who_can(*, actor: Actor, cluster: str, attributes: Attributes) -> tuple[Holder, ...]:
    """Every subject that may do this in a logical cluster, with the path of objects by which, and of gates.

    Raises ``Forbidden`` unless the actor hands out rights there, ``BadRequest``.
    """
    _require(actor, cluster)
    if not attributes.verb or not (attributes.resource or attributes.path):
        raise BadRequest("A verb and a resource or a path are needed.")
    return explanation.holders(cluster, attributes)


@question
@everything()  # as the API server decides, which sees every space
def what_if(*, actor: Actor, cluster: str, manifest: Mapping[str, Any], delete: bool = False) -> tuple[Effect, ...]:
    """Who would gain and lose what if this role, binding or policy were written, or deleted.

    Raises ``Forbidden`` unless the actor hands out rights there, ``BadRequest`` for any other object.
    """
    _require(actor, cluster)
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        raise BadRequest("The object needs a name.")
    state = explanation.state_of(cluster)
    opened = (*state.lines, *state.objects)
    placed = explanation.accounts_in(cluster, str(metadata.get("namespace") or ""))
    if placed is None:
        return whatif.effects(manifest, cluster, state.policies.local, opened, delete=delete, heed=heed)
    kept = manifest if delete else _as_kept(manifest, placed.cluster, state.policies.local)
    found = whatif.effects(kept, cluster, state.policies.local, opened, delete=delete, heed=heed) if kept else ()
    return tuple(each for effect in found if (each := _within(effect, placed.roles)).gains or each.losses)


def _as_kept(manifest: Mapping[str, Any], cluster: str, index: PolicyIndex) -> Mapping[str, Any] | None:
    """A Role or RoleBinding of a placed namespace as it counts here; ``None`` for one that gives nobody anything."""
    metadata = manifest["metadata"]
    if str(metadata["name"]).startswith(PREFIX):
        return None
    if manifest.get("kind") != "RoleBinding":
        return manifest
    row = Cluster.objects.filter(name=cluster).first()
    names = {name: role for role, name in roles_on(row).items()} if row is not None else {}
    said = kept_binding(binding_from(manifest), names)
    if said is None:
        return None
    role = said["roleRef"]["name"]
    if index.rules_of("Role", str(metadata["namespace"]), role) is None:
        raise BadRequest(
            f"What the Role {role} gives is its cluster's to say, and known here once somebody is bound to it."
        )
    return {**manifest, **said}


def _within(effect: Effect, roles: WorkspaceRoles) -> Effect:
    gains, losses = (held_in_placed(roles, "", rules, ())[0] for rules in (effect.gains, effect.losses))
    return effect._replace(gains=gains, losses=losses)


@question
@everything()
def change_explained(
    *,
    actor: Actor,
    cluster: str,
    manifest: Mapping[str, Any],
    delete: bool = False,
    doors: Doors | None = None,
    now: datetime,
) -> Explanation:
    """How the API server would decide if the actor made this change: who is asked, and what the admission says of it.

    Nobody hands out what they do not have: that and whatever else refuses the object is named by its step. Raises
    ``BadRequest`` for what is no role, binding or policy, and ``Forbidden`` as ``what_if`` does.
    """
    _require(actor, cluster)
    group = str(manifest.get("apiVersion") or "").partition("/")[0]
    kind = explanation.resource_of(cluster, group, str(manifest.get("kind") or ""))
    metadata = manifest.get("metadata")
    if kind is None or not isinstance(metadata, Mapping) or not metadata.get("name"):
        raise BadRequest("a role, a binding or a policy is needed")
    name, namespace = str(metadata["name"]), str(metadata.get("namespace") or "")
    there = synchronous.get(Key(cluster, group, kind.plural, namespace, name)) is not None
    verb = "delete" if delete else "update" if there else "create"
    attributes = Attributes(verb, group, kind.plural, namespace=namespace, name="" if verb == "create" else name)
    return explain_own_write(
        actor=actor,
        cluster=cluster,
        attributes=attributes,
        sent=None if delete else Sent(manifest),
        doors=doors,
        now=now,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a change does to somebody in one place; rules that differ in their resources alone are one line."""

    who: str
    namespace: str
    gains: tuple[Rule, ...]
    losses: tuple[Rule, ...]


def differences_of(effects: Iterable[Effect]) -> list[Difference]:
    """The same as lines to be read, whoever is concerned one after the other."""
    return [
        Difference(
            who=f"{each.kind} {each.name} of {each.tenant}",
            namespace=each.namespace,
            gains=_together(each.gains),
            losses=_together(each.losses),
        )
        for each in sorted(effects, key=lambda each: each[:4])
    ]


def _together(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    found: dict[Rule, list[str]] = {}
    for rule in rules:
        verbs = tuple(
            sorted(rule.verbs, key=lambda verb: (_VERBS.index(verb) if verb in _VERBS else len(_VERBS), verb))
        )
        found.setdefault(replace(rule, verbs=verbs, resources=()), []).extend(rule.resources)
    return tuple(replace(rule, resources=tuple(dict.fromkeys(resources))) for rule, resources in found.items())


_VERBS: Final = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")


def manifest_of(text: str) -> Mapping[str, Any]:
    """An object in YAML or JSON. Raises ``BadRequest``."""
    found = _decoded(text)
    if not isinstance(found, Mapping):
        raise BadRequest("The manifest is no object.")
    return found


def sent_of(text: str, patch: str = "") -> Sent | None:
    """What a write sends, in YAML or JSON, as a form has it; nothing of an empty text. Raises ``BadRequest``."""
    return sent(_decoded(text), patch) if text.strip() else None


def sent(body: Any, patch: str = "") -> Sent:
    """What a write sends, once it was read. Raises ``BadRequest``."""
    patch = patch or STRATEGIC
    if patch not in PATCH_TYPES:
        raise BadRequest(f"The type of a patch is one of {', '.join(PATCH_TYPES)}.")
    if not isinstance(body, list if patch == "json" else Mapping):
        raise BadRequest("A JSON patch is a list of operations." if patch == "json" else "What it sends is no object.")
    return Sent(body, patch)


def _decoded(text: str) -> Any:
    if len(text) > MANIFEST_MAX:
        raise BadRequest("The manifest is too long.")
    return decode_yaml(text.encode())


def change_of(data: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The object that a form's change is about, and whether it is deleted: a role given, a binding less, a manifest.

    Raises ``BadRequest`` for a role or a binding that is not written as it is listed.
    """
    if data["manifest"]:
        return manifest_of(data["manifest"]), data["delete"]
    if data["binding"]:
        kind, namespace, name = _listed(data["binding"], "ClusterRoleBinding", "RoleBinding")
        return _object(kind, namespace, name), True
    kind, namespace, role = _listed(data["role"], "ClusterRole", "Role")
    namespace = data["namespace"] or namespace
    person = data["person"]
    binding = _object("RoleBinding" if namespace else "ClusterRoleBinding", namespace, "as-if-it-were-saved")
    account: list[str] = []
    if person.startswith(SERVICE_ACCOUNT_PREFIX):
        account = person.removeprefix(SERVICE_ACCOUNT_PREFIX).split(":")
    subject = {"kind": "User", "apiGroup": GROUP, "name": person}
    if len(account) == 2:
        subject = {"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}
    return {**binding, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": [subject]}, False


def _listed(text: str, whole: str, namespaced: str) -> tuple[str, str, str]:
    """Kind, namespace and name of ``ClusterRole/view`` or ``Role/team/reader``."""
    kind, _, rest = text.partition("/")
    namespace, slash, name = rest.partition("/")
    if kind == whole and rest:
        return kind, "", rest
    if kind == namespaced and slash and namespace and name:
        return kind, namespace, name
    raise BadRequest(f"Write it as {whole}/name or {namespaced}/namespace/name.")


def _object(kind: str, namespace: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata}


def _require(actor: Actor, cluster: str) -> None:
    if not is_valid(cluster) or not may_grant(actor, cluster):
        raise Forbidden("Operators may ask this anywhere, admins in their own tenant's space.")
