"""Attribute-based policies: Kubernetes' policy file with tenants (AZ3, AZ6), and the same as objects (AZ7).

One JSON object a line, of kind ``Policy``, ``abac.authorization.kubernetes.io/v1beta1``. In its ``spec``:

========================  =============================================================================================
``tenant``                tenant of the user; missing: ``system``; ``*``: any
``space``                 tenant whose space is reached; missing: the system space, for operators alone; ``*``: any
``crossTenant``           ``true`` in a line that opens ``*`` or ``system`` to others than operators
``tenant`` given twice    the first is the user's tenant, the second the space, as this format was first
                          published; not together with ``space``
``"tenant A"``            another spelling of ``tenant-a``: blanks cannot be in a tenant's name
``user``, ``group``       who; both must fit when both are given; ``*``: everybody who is authenticated
``namespace``,            what; missing: only what has none; ``*``: any. A resource stands for its subresources too
``resource``,
``apiGroup``
``nonResourcePath``       a path, or the beginning of one followed by ``*``
``readonly``              only get, list and watch, and no exec, attach, port-forward or proxy
========================  =============================================================================================

A line about a tenant's users must name its ``space``; without one it would open the system space to them.

Everything else in a line, a key given twice among it, makes the whole file invalid: a policy that is not understood
must not be half applied.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kube.authentication.identity import AUTHENTICATED, Principal
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.rbac import Attributes, Rule
from kube.requests.logicalclusters import ROOT, is_tenant_space, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT, is_tenant_name

GROUP: Final = "abac.authorization.kubernetes.io"
API_VERSION: Final = f"{GROUP}/v1beta1"
STEP: Final = "ABAC"
FILE_MAX: Final = 8 * 1024 * 1024
LINES_MAX: Final = 50_000
VALUE_MAX: Final = 1024

ANY: Final = "*"
_NO_OPINION: Final = Decision(Verdict.NO_OPINION, STEP, "No policy matched.")
_READ: Final = frozenset({"get", "list", "watch"})
STREAMS: Final = frozenset({"exec", "attach", "portforward", "proxy"})
_TEXTS: Final = frozenset({"tenant", "space", "user", "group", "namespace", "resource", "apiGroup", "nonResourcePath"})


class InvalidPolicy(ValueError):
    """A policy that is not understood; the message names the line."""


def tenant_digest(holder: str, tenant: str) -> str:
    """What ties the object with the uid ``holder`` to the tenant with the uid ``tenant``; nobody can guess either."""
    return hashlib.sha256(f"{holder}/{tenant}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One policy. ``source`` says where it stands, for reasons.

    ``tenant_reference`` is that of an object in a tenant's space: its uid and the ``tenant_digest`` of the tenant that
    it means. Lines of the file mean whoever bears the name.
    """

    source: str
    tenant: str = SYSTEM_TENANT
    space: str = SYSTEM_TENANT
    user: str = ""
    group: str = ""
    namespace: str = ""
    resource: str = ""
    group_of_resource: str = ""
    path: str = ""
    readonly: bool = False
    number: int = 0
    """The line of the file, 0 for an object."""
    tenant_reference: tuple[str, str] | None = None

    def means_tenant(self, uid: str) -> bool:
        """Whether the user's tenant, of this uid, is the one that bore the name when it was written here."""
        return self.tenant_reference is None or self.tenant_reference[1] == tenant_digest(self.tenant_reference[0], uid)

    @property
    def crosses(self) -> bool:
        """Whether this opens every space, or the operators', to others than operators."""
        return self.tenant != SYSTEM_TENANT and self.space in {ANY, SYSTEM_TENANT}

    def means(self, principal: Principal) -> bool:
        """Whether this is about the user: tenant first, then name and group. Whoever has no tenant is never meant.

        Nor is a service account of a workspace, whose name another of the tenant's space could have (KC9, AZ-05).
        """
        if principal.tenant is None or self.tenant not in {ANY, principal.tenant}:
            return False
        if principal.cluster is not None and principal.cluster != space_of(principal.tenant):
            return False
        wanted = {AUTHENTICATED} if ANY in {self.user, self.group} else set()
        if self.group not in {"", ANY}:
            wanted.add(self.group)
        if self.user not in {"", ANY, principal.name}:
            return False
        return bool(self.user or self.group) and wanted <= set(principal.groups)

    @property
    def subject(self) -> tuple[str, str]:
        """Whom it lets in, as a kind and a name: a user, a group, or a user who is in a group."""
        user, group = self.user.removeprefix(ANY), self.group.removeprefix(ANY)
        if user and group:
            return "User", f"{user} in {group}"
        if group:
            return "Group", group
        return ("User", self.user) if self.user else ("Group", self.group)

    def allows(self, attributes: Attributes) -> bool:
        """Whether this is about the request, its space aside."""
        if self.readonly and (attributes.verb not in _READ or attributes.subresource in STREAMS):
            return False
        if not attributes.is_resource:
            return self.path in {ANY, attributes.path} or (
                self.path.endswith(ANY) and attributes.path.startswith(self.path.rstrip(ANY))
            )
        return (
            self.namespace in {ANY, attributes.namespace}
            and self.resource in {ANY, attributes.resource.partition("/")[0]}
            and self.group_of_resource in {ANY, attributes.group}
        )

    def opens(self, cluster: str) -> bool:
        """Whether this reaches the logical cluster: a system or tenant space; workspaces know RBAC alone."""
        return (cluster == ROOT or is_tenant_space(cluster)) and self.space in {ANY, tenant_of(cluster)}

    def rules(self, namespace: str | None = None) -> tuple[Rule, ...]:
        """The same as RBAC rules of the space: all of them, or those that count in a namespace.

        ``pods/*`` stands for the subresources of pods, which RBAC has no word for.
        """
        found = []
        verbs = ("get", "list", "watch") if self.readonly else (ANY,)
        if self.resource and (namespace is None or self.namespace in {ANY, "", namespace}):
            resources = (ANY,) if self.resource == ANY else (self.resource, f"{self.resource}/*")
            found.append(Rule(verbs, (self.group_of_resource,), resources))
        if self.path:
            found.append(Rule(verbs, urls=(self.path,)))
        return tuple(found)


def tenant_meant(value: str) -> str:
    """The tenant that a policy names. Raises ``InvalidPolicy`` for one that cannot exist."""
    name = "-".join(value.lower().split()) if " " in value else value
    if name in {ANY, SYSTEM_TENANT} or is_tenant_name(name):
        return name
    raise InvalidPolicy("a tenant is named that cannot exist")


def policy_from(spec: object, source: str, *, space: str | None = None, number: int = 0) -> Policy:
    """Read the ``spec`` of a policy.

    With ``space``, the tenant whose object it is, its own ``space`` counts for nothing: it opens the author's space and
    no other (AZ7). ``number`` is that of a file's line. Raises ``InvalidPolicy`` for unknown or wrongly typed fields,
    and for a line that would open more to a tenant's users than it says.
    """
    if not isinstance(spec, Mapping):
        raise InvalidPolicy("spec is missing")
    flags = {"readonly"} if space is not None else {"readonly", "crossTenant"}
    unknown = set(spec) - _TEXTS - flags
    if unknown:
        raise InvalidPolicy("spec has unknown fields")
    for key in _TEXTS & set(spec):
        if not isinstance(spec[key], str) or len(spec[key]) > VALUE_MAX:
            raise InvalidPolicy(f"{key} is no string, or too long")
    for key in flags & set(spec):
        if not isinstance(spec[key], bool):
            raise InvalidPolicy(f"{key} is neither true nor false")
    if not spec.get("user") and not spec.get("group"):
        raise InvalidPolicy("neither user nor group is named")
    policy = Policy(
        source=source,
        number=number,
        tenant=tenant_meant(spec.get("tenant") or SYSTEM_TENANT),
        space=space or tenant_meant(spec.get("space") or SYSTEM_TENANT),
        user=spec.get("user", ""),
        group=spec.get("group", ""),
        namespace=spec.get("namespace", ""),
        resource=spec.get("resource", ""),
        group_of_resource=spec.get("apiGroup", ""),
        path=spec.get("nonResourcePath", ""),
        readonly=spec.get("readonly", False),
    )
    if space is None:
        _check_scope(policy, spec)
    return policy


def _check_scope(policy: Policy, spec: Mapping[str, Any]) -> None:
    """A line says what it opens: nobody gives the operators' space to a tenant's user by leaving something out."""
    who = "the users of any tenant" if policy.tenant == ANY else f'users of tenant "{policy.tenant}"'
    if policy.tenant != SYSTEM_TENANT and not spec.get("space"):
        own = "<tenant>" if policy.tenant == ANY else policy.tenant
        raise InvalidPolicy(f'it names no space for {who}; add "space": "{own}"')
    if policy.crosses and not spec.get("crossTenant"):
        what = "every space" if policy.space == ANY else "the system space"
        raise InvalidPolicy(f'it opens {what} to {who}; if that is meant, add "crossTenant": true')


def policy_of(manifest: Mapping[str, Any], *, space: str) -> Policy:
    """Read a ``Policy`` object in the space of the tenant ``space`` (AZ7). Raises ``InvalidPolicy``.

    An object names the tenant that it lets in: what is missing in an object is a slip, not the operators.
    """
    spec = manifest.get("spec")
    if isinstance(spec, Mapping) and not spec.get("tenant"):
        raise InvalidPolicy("tenant is missing")
    name = (manifest.get("metadata") or {}).get("name") or ""
    return policy_from(spec, f'Policy "{name}"', space=space)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    tenants = [value for key, value in pairs if key == "tenant"]
    if len(tenants) != 2 or len(found) != len(pairs) - 1 or "space" in found:
        raise InvalidPolicy("a key is given twice")
    return found | {"tenant": tenants[0], "space": tenants[1]}


def _number(text: str) -> None:
    raise InvalidPolicy(f"numbers such as {text[:20]} have no place here")


def _spec(line: str) -> object:
    try:
        policy = json.loads(
            line, object_pairs_hook=_pairs, parse_int=_number, parse_float=_number, parse_constant=_number
        )
    except InvalidPolicy:
        raise
    except (ValueError, RecursionError):
        raise InvalidPolicy("it is no JSON") from None
    if isinstance(policy, dict) and not {"apiVersion", "kind"} & set(policy):
        return _migrated(policy)
    if not isinstance(policy, dict) or set(policy) != {"apiVersion", "kind", "spec"}:
        raise InvalidPolicy("a policy has apiVersion, kind and spec")
    if policy["apiVersion"] != API_VERSION or policy["kind"] != "Policy":
        raise InvalidPolicy(f"a policy is of kind Policy, {API_VERSION}")
    return policy["spec"]


def _migrated(line: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a line as Kubernetes wrote them before they had versions: what is left out there means everything.

    Such a line knows nothing of tenants: it is about operators in the system space. Raises ``InvalidPolicy``.
    """
    if not line or set(line) - {"user", "group", "readonly", "resource", "namespace"}:
        raise InvalidPolicy(
            "a policy has apiVersion, kind and spec; without them it says user, group, readonly, "
            "resource and namespace alone"
        )
    spec = {**line, "apiGroup": ANY}
    if ANY in (line.get("user"), line.get("group")) or not (line.get("user") or line.get("group")):
        spec |= {"user": "", "group": AUTHENTICATED}
    if not line.get("namespace") and not line.get("resource"):
        spec["nonResourcePath"] = ANY
    return spec | {name: line.get(name) or ANY for name in ("namespace", "resource")}


def parse_policy_file(text: str) -> tuple[Policy, ...]:
    """Read a policy file; blank lines and those that begin with ``#`` do not count.

    Raises ``InvalidPolicy`` naming the first line that is not understood; then nothing of the file may be used.
    """
    if len(text) > FILE_MAX:
        raise InvalidPolicy("the policy file is too large")
    found: list[Policy] = []
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        if not line or line.startswith("#"):
            continue
        try:
            found.append(policy_from(_spec(line), f"line {number} of the policy file", number=number))
        except InvalidPolicy as error:
            raise InvalidPolicy(f"line {number}: {error}") from None
        if len(found) > LINES_MAX:
            raise InvalidPolicy("the policy file has too many lines")
    return tuple(found)


def authorize(
    principal: Principal, attributes: Attributes, cluster: str, policies: Iterable[Policy] | Sequence[Policy]
) -> Decision:
    """ALLOW by the first policy that means the user, the space and the request, else no opinion (AZ3, AZ6, AZ7).

    Policies reach the system space and tenants' spaces; workspaces and the bootstrap cluster know RBAC alone.
    """
    for policy in policies:
        if policy.opens(cluster) and policy.means(principal) and policy.allows(attributes):
            return Decision(Verdict.ALLOW, STEP, reason=f"ABAC: allowed by {policy.source}", rule=policy.source)
    return _NO_OPINION
