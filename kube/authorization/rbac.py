"""RBAC as Kubernetes means it: rules, subjects, bindings, aggregation, and the plain evaluation of a policy.

The plain evaluation (``evaluate``) is the reference; ``kube.authorization.rbacindex`` answers the same questions fast. Whose policy
counts for whom is decided in ``kube.authorization.effectivepolicy`` (AZ2, AZ9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kube.authentication.identity import SERVICE_ACCOUNT_PREFIX
from kube.authorization.choices import Choices, Question, TooManyLooks
from kube.authorization.decisions import Decision, Verdict
from kube.requests.labelselectors import Selector, from_object
from kube.requests.names import SYSTEM_TENANT
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import BadRequest

GROUP: Final = "rbac.authorization.k8s.io"
STEP: Final = "RBAC"
"""How decisions of this authorizer name their step."""

NO_OPINION: Final = Decision(Verdict.NO_OPINION, STEP)

MISSING_MAX: Final = 16
"""Missing roles that are named: a tenant writes its bindings itself."""

_SHOWN_MAX: Final = 253
"""Characters of such a name that are: one that could be a role's is no longer."""

_NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Scope:
    """Which tenants' spaces a rule of the system space reaches (AZ9).

    ``tenants`` holds names, ``selector`` chooses by the labels of Tenant objects, ``everywhere`` is ``Cluster``.
    """

    everywhere: bool = False
    tenants: frozenset[str] = frozenset()
    selector: Selector | None = None

    def includes(self, tenant: str, labels: Mapping[str, str]) -> bool:
        """Whether the space of this tenant, whose object carries these labels, is in the scope."""
        if self.everywhere or tenant in self.tenants:
            return True
        return self.selector is not None and tenant != SYSTEM_TENANT and self.selector.matches(labels)

    def covers(self, other: Scope) -> bool:
        """Whether whatever ``other`` reaches is surely reached by this one."""
        if self.everywhere:
            return True
        if other.everywhere or (other.selector is not None and other.selector != self.selector):
            return False
        return other.tenants <= self.tenants


CLUSTER: Final = Scope(everywhere=True)
TENANTED: Final = Scope(tenants=frozenset({SYSTEM_TENANT}))


class Attributes(NamedTuple):
    """What is asked of RBAC. ``resource`` is ``pods/log`` for a subresource; ``path`` counts for non-resources."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    is_resource: bool = True

    @classmethod
    def of(cls, info: RequestInfo) -> Attributes:
        """The attributes of a resolved request."""
        if not info.is_resource:
            return cls(info.verb, path=info.path, is_resource=False)
        part = info.subresource
        resource = f"{info.resource}/{part}" if part else info.resource
        # Half the time of cls(…), on the way of every request.
        return tuple.__new__(cls, (info.verb, info.group, resource, part, info.namespace, info.name, "", True))


@dataclass(frozen=True, slots=True)
class Rule:
    """One PolicyRule: verbs on resources, or on URLs that are no resources."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    scope: Scope = TENANTED

    def covers_resource(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        """Whether the rule is about this verb and resource, whatever the object's name."""
        return (
            ("*" in self.verbs or verb in self.verbs)
            and ("*" in self.groups or group in self.groups)
            and (
                "*" in self.resources
                or resource in self.resources
                or (subresource != "" and f"*/{subresource}" in self.resources)
            )
        )

    def covers_url(self, verb: str, path: str) -> bool:
        """Whether the rule allows this verb on a path that is no resource."""
        return ("*" in self.verbs or verb in self.verbs) and any(_url_covers(url, path) for url in self.urls)

    def allows(self, attributes: Attributes) -> bool:
        """Whether the rule allows the request."""
        if not attributes.is_resource:
            return self.covers_url(attributes.verb, attributes.path)
        verb, group, resource, subresource = attributes[:4]
        return (not self.names or attributes.name in self.names) and self.covers_resource(
            verb, group, resource, subresource
        )

    def as_dict(self) -> dict[str, Any]:
        """The JSON form, without the scope: what SelfSubjectRulesReview shows."""
        body: dict[str, Any] = {"verbs": list(self.verbs)}
        if self.groups:
            body["apiGroups"] = list(self.groups)
        if self.resources:
            body["resources"] = list(self.resources)
        if self.names:
            body["resourceNames"] = list(self.names)
        if self.urls:
            body["nonResourceURLs"] = list(self.urls)
        return body


def _url_covers(url: str, path: str) -> bool:
    return url in {"*", path} or (url.endswith("*") and path.startswith(url.rstrip("*")))


@dataclass(frozen=True, slots=True)
class Role:
    """A Role or, without a namespace, a ClusterRole. ``aggregation`` chooses the ClusterRoles it is made of."""

    name: str
    namespace: str = ""
    rules: tuple[Rule, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS, hash=False)
    aggregation: tuple[Selector, ...] | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """Who a binding is for; ``kind`` is User, Group or ServiceAccount."""

    kind: str
    name: str
    namespace: str = ""

    def user_name(self, binding_namespace: str) -> str:
        """The user that a User or ServiceAccount subject means; empty for none."""
        if self.kind == "User":
            return self.name
        namespace = self.namespace or binding_namespace
        if self.kind != "ServiceAccount" or not namespace:
            return ""
        return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{self.name}"

    def includes(self, user: str, groups: Iterable[str], binding_namespace: str) -> bool:
        """Whether this user is meant."""
        if self.kind == "Group":
            return self.name != "" and self.name in groups
        return user != "" and self.user_name(binding_namespace) == user


@dataclass(frozen=True, slots=True)
class Binding:
    """A RoleBinding or, without a namespace, a ClusterRoleBinding."""

    name: str
    namespace: str = ""
    role_kind: str = "ClusterRole"
    role: str = ""
    subjects: tuple[Subject, ...] = ()

    def describe(self, subject: Subject) -> str:
        """The binding as Kubernetes names it in reasons."""
        shown = subject.name
        if subject.kind == "ServiceAccount":
            shown = f"{subject.name}/{subject.namespace or self.namespace}"
        kind, name = (
            ("RoleBinding", f"{self.name}/{self.namespace}")
            if self.namespace
            else (
                "ClusterRoleBinding",
                self.name,
            )
        )
        return f'{kind} "{name}" of {self.role_kind} "{self.role}" to {subject.kind} "{shown}"'


def allowed(binding: Binding, subject: Subject) -> Decision:
    """The decision that a binding's rule brings about."""
    rule = binding.describe(subject)
    return Decision(Verdict.ALLOW, STEP, reason=f"RBAC: allowed by {rule}", rule=rule)


def no_opinion(missing: Iterable[Binding], left_out: str = "") -> Decision:
    """No opinion, with the roles that bindings of the principal's refer to and that are not there, as Kubernetes names them.

    ``left_out`` says what was not looked at.
    """
    texts = [
        f'{kind.lower()}.{GROUP} "{name[:_SHOWN_MAX]}" not found'
        for kind, name in dict.fromkeys((binding.role_kind, binding.role) for binding in missing)
    ]
    if len(texts) > MISSING_MAX:
        texts[MISSING_MAX:] = [f"and {len(texts) - MISSING_MAX} more"]
    texts += [left_out] if left_out else []
    if not texts:
        return NO_OPINION
    said = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return Decision(Verdict.NO_OPINION, STEP, f"{STEP}: {said}")


def _strings(value: object) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list | tuple) else ()


def _scope(rule: Mapping[str, Any]) -> Scope:
    tenants, selector = rule.get("tenants"), rule.get("tenantSelector")
    if tenants is not None or selector is not None:
        try:
            chosen = from_object(selector) if selector is not None else None
        except BadRequest:
            chosen = None
        return Scope(tenants=frozenset(_strings(tenants)), selector=chosen)
    return CLUSTER if rule.get("scopeType") == "Cluster" else TENANTED


def rules_from(value: object, *, scoped: bool = False) -> tuple[Rule, ...]:
    """Read a list of PolicyRules; what is malformed grants nothing.

    With ``scoped`` (the system space) a rule's reach is read: ``scopeType`` ``Cluster`` or ``Tenanted`` (the default),
    or ``tenants``, a list of names, and ``tenantSelector``, a label selector. Elsewhere these are ignored (AZ9).
    """
    if not isinstance(value, list | tuple):
        return ()
    return tuple(
        Rule(
            verbs=_strings(rule.get("verbs")),
            groups=_strings(rule.get("apiGroups")),
            resources=_strings(rule.get("resources")),
            names=_strings(rule.get("resourceNames")),
            urls=_strings(rule.get("nonResourceURLs")),
            scope=_scope(rule) if scoped else TENANTED,
        )
        for rule in value
        if isinstance(rule, Mapping)
    )


def _metadata(manifest: Mapping[str, Any]) -> tuple[str, str, Mapping[str, str]]:
    metadata = manifest.get("metadata") or {}
    labels = metadata.get("labels") or {}
    return str(metadata.get("name") or ""), str(metadata.get("namespace") or ""), labels


def role_from(manifest: Mapping[str, Any], *, scoped: bool = False) -> Role:
    """Read a Role or ClusterRole object; see ``rules_from``. A selector that is not valid chooses nothing."""
    name, namespace, labels = _metadata(manifest)
    aggregation: tuple[Selector, ...] | None = None
    rule = manifest.get("aggregationRule")
    if isinstance(rule, Mapping) and not namespace:
        chosen = []
        for selector in rule.get("clusterRoleSelectors") or ():
            try:
                chosen.append(from_object(selector))
            except BadRequest:
                continue
        aggregation = tuple(chosen)
    rules = rules_from(manifest.get("rules"), scoped=scoped)
    return Role(name, namespace, rules, MappingProxyType(dict(labels)), aggregation)


def binding_from(manifest: Mapping[str, Any]) -> Binding:
    """Read a RoleBinding or ClusterRoleBinding object; what is malformed binds nobody."""
    name, namespace, _ = _metadata(manifest)
    reference = manifest.get("roleRef") or {}
    subjects = manifest.get("subjects")
    return Binding(
        name,
        namespace,
        str(reference.get("kind") or ""),
        str(reference.get("name") or ""),
        tuple(
            Subject(
                str(subject.get("kind") or ""),
                str(subject.get("name") or ""),
                str(subject.get("namespace") or ""),
            )
            for subject in (subjects if isinstance(subjects, list | tuple) else ())
            if isinstance(subject, Mapping)
        ),
    )


def choices_of(roles: Mapping[str, Role]) -> Choices:
    """ClusterRoles by name, to be chosen by their labels."""
    return Choices(roles, attrgetter("labels"))


def aggregate(role: Role, roles: Mapping[str, Role], choices: Choices | None = None) -> tuple[Rule, ...]:
    """The rules of a ClusterRole: its own, or, with an aggregation rule, the union of those it chooses.

    ``roles`` are the ClusterRoles by name, ``choices`` the same by their labels. An aggregated role may choose aggregated
    roles; circles end. Rules are in the order of the roles' names, without repetitions, as Kubernetes' controller writes
    them. What would take more looks than ``LOOKS_MAX`` to find gives nothing.
    """
    if role.aggregation is None:
        return role.rules
    question = Question(choices or choices_of(roles))
    found: dict[Rule, None] = {}
    seen: set[str] = {role.name}
    waiting = [role]
    while waiting:
        try:
            names = question.chosen(waiting.pop().aggregation or (), seen)
        except TooManyLooks:
            break
        seen.update(names)
        for name in sorted(names):
            other = roles[name]
            if other.aggregation is None:
                found.update(dict.fromkeys(other.rules))
            else:
                waiting.append(other)
    return tuple(found)


def role_rules(
    binding: Binding, roles: Mapping[tuple[str, str], Role], cluster_roles: Mapping[str, Role]
) -> tuple[Rule, ...] | None:
    """The rules that a binding refers to; ``None`` when the role does not exist. References never leave the space."""
    if binding.role_kind == "ClusterRole":
        role = cluster_roles.get(binding.role)
        return aggregate(role, cluster_roles) if role else None
    if binding.role_kind == "Role" and binding.namespace:
        role = roles.get((binding.namespace, binding.role))
        return role.rules if role else None
    return None


def in_order(bindings: Iterable[Binding], namespace: str) -> list[Binding]:
    """The bindings that count in a namespace: cluster-wide ones first, each kind by name."""
    return sorted(
        (binding for binding in bindings if not binding.namespace or (namespace and binding.namespace == namespace)),
        key=lambda binding: (binding.namespace != "", binding.name),
    )


def applicable(
    bindings: Iterable[Binding], user: str, groups: Sequence[str], namespace: str
) -> list[tuple[Binding, Subject]]:
    """The bindings that mean this user, in order, each with its first subject that does."""
    found = []
    for binding in in_order(bindings, namespace):
        for subject in binding.subjects:
            if subject.includes(user, groups, binding.namespace):
                found.append((binding, subject))
                break
    return found


def evaluate(
    user: str,
    groups: Sequence[str],
    attributes: Attributes,
    *,
    bindings: Iterable[Binding],
    roles: Mapping[tuple[str, str], Role],
    cluster_roles: Mapping[str, Role],
    counts: Callable[[Rule], bool] = lambda _: True,
) -> Decision:
    """The reference: try every binding in order (AZ2). ALLOW with the binding that allowed, or no opinion.

    ``counts`` leaves rules out, such as those that do not reach a tenant.
    """
    missing = []
    for binding, subject in applicable(bindings, user, groups, attributes.namespace):
        rules = role_rules(binding, roles, cluster_roles)
        if rules is None:
            missing.append(binding)
        for rule in rules or ():
            if counts(rule) and rule.allows(attributes):
                return allowed(binding, subject)
    return no_opinion(missing)
