"""Which requests a policy, a binding or a webhook is about (admissionregistration.k8s.io/v1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kube.requests.labelselectors import Selector, from_object

GROUP: Final = "admissionregistration.k8s.io"
POLICIES: Final = "validatingadmissionpolicies"
BINDINGS: Final = "validatingadmissionpolicybindings"
MUTATING_POLICIES: Final = "mutatingadmissionpolicies"
MUTATING_BINDINGS: Final = "mutatingadmissionpolicybindings"
VALIDATING_WEBHOOKS: Final = "validatingwebhookconfigurations"
MUTATING_WEBHOOKS: Final = "mutatingwebhookconfigurations"
CONFIGURING: Final = frozenset(
    (POLICIES, BINDINGS, MUTATING_POLICIES, MUTATING_BINDINGS, VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS)
)
"""Whoever writes these is asked about by none of them, so that a wrong one can be put right."""

_NAMESPACES: Final = ("", "namespaces")

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Form:
    """One form of what a request is about: its group, version, plural and kind."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        """Group and version as manifests write them: ``apps/v1``, of the core group ``v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def as_kind(self) -> dict[str, str]:
        """The kind as a ``GroupVersionKind``, as an AdmissionReview names it."""
        return {"group": self.group, "version": self.version, "kind": self.kind}

    def as_resource(self) -> dict[str, str]:
        """The resource as a ``GroupVersionResource``, as an AdmissionReview names it."""
        return {"group": self.group, "version": self.version, "resource": self.plural}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request as policies and webhooks see it.

    ``form`` is what was asked for, ``others`` the same by other groups and versions; ``kind_group`` are the group and version
    of what is sent where those are not the resource's: ``autoscaling/v1`` of a Scale. ``namespace`` of a Namespace is its own
    name; ``labels`` are its namespace's, ``None`` where that is not there. ``in_form`` gives an object in another form.
    """

    operation: str
    form: Form
    subresource: str
    namespace: str
    name: str
    object: Body | None
    old: Body | None
    user_info: Mapping[str, Any]
    dry_run: bool
    options: Callable[[], Body]
    labels: Mapping[str, str] | None
    kind_group: tuple[str, str] | None = None
    others: Sequence[Form] = ()
    in_form: Callable[[Body, Form], Body] = field(default=lambda body, _: body)

    @property
    def is_namespace(self) -> bool:
        """Whether it is about a Namespace."""
        return (self.form.group, self.form.plural) == _NAMESPACES

    def review(self, form: Form) -> Body:
        """The ``AdmissionRequest`` in one form, without its objects."""
        body: Body = {
            "kind": self._kind(form),
            "resource": form.as_resource(),
            "requestKind": self._kind(self.form),
            "requestResource": self.form.as_resource(),
            "operation": self.operation,
            "userInfo": dict(self.user_info),
            "dryRun": self.dry_run,
            "options": self.options(),
        }
        for name, value in (
            ("subResource", self.subresource),
            ("requestSubResource", self.subresource),
            ("name", self.name),
            ("namespace", self.namespace),
        ):
            if value:
                body[name] = value
        return body

    def _kind(self, form: Form) -> dict[str, str]:
        if self.kind_group is None:
            return form.as_kind()
        return {"group": self.kind_group[0], "version": self.kind_group[1], "kind": form.kind}


class NoNamespace(Exception):
    """The request's namespace is not there, so that its labels cannot be looked at."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What a rule is about; ``names`` empty: any."""

    groups: frozenset[str]
    versions: frozenset[str]
    resources: tuple[tuple[str, str], ...]
    operations: frozenset[str]
    scope: str
    names: frozenset[str]

    @classmethod
    def read(cls, source: Mapping[str, Any]) -> Rule:
        """From a ``NamedRuleWithOperations`` or a ``RuleWithOperations``."""
        return cls(
            frozenset(source.get("apiGroups") or ()),
            frozenset(source.get("apiVersions") or ()),
            tuple((part[0], part[2]) for part in (name.partition("/") for name in source.get("resources") or ())),
            frozenset(source.get("operations") or ()),
            source.get("scope") or "*",
            frozenset(source.get("resourceNames") or ()),
        )

    def matches(self, asked: Asked, form: Form) -> bool:
        """Whether it is about the request in this form."""
        return (
            self._scope(asked)
            and not self.operations.isdisjoint((asked.operation, "*"))
            and not self.groups.isdisjoint((form.group, "*"))
            and not self.versions.isdisjoint((form.version, "*"))
            and any(
                resource in (form.plural, "*") and part in (asked.subresource, "*") for resource, part in self.resources
            )
            and (not self.names or asked.name in self.names)
        )

    def _scope(self, asked: Asked) -> bool:
        if self.scope == "*":
            return True
        return (self.scope == "Namespaced") is (bool(asked.namespace) and not asked.is_namespace)


@dataclass(frozen=True, slots=True)
class Matcher:
    """``matchConstraints``, ``matchResources``, or what a webhook has of them. ``rules`` of ``None`` match everything."""

    rules: tuple[Rule, ...] | None
    excluded: tuple[Rule, ...]
    exact: bool
    namespaces: Selector
    objects: Selector

    @classmethod
    def read(cls, source: Mapping[str, Any] | None, rules: str = "resourceRules") -> Matcher:
        """From a ``MatchResources``. Raises ``BadRequest`` for a selector that is none."""
        source = source or {}
        given = [Rule.read(rule) for rule in source.get(rules) or ()]
        return cls(
            tuple(given) if given or rules == "rules" else None,
            tuple(Rule.read(rule) for rule in source.get("excludeResourceRules") or ()),
            source.get("matchPolicy", "Equivalent") == "Exact",
            from_object(source.get("namespaceSelector") or {}),
            from_object(source.get("objectSelector") or {}),
        )

    def form_of(self, asked: Asked) -> Form | None:
        """The form in which the request is what this is about, or ``None``. Raises ``NoNamespace``."""
        # As in Kubernetes, a namespace that is not there counts only once everything else is met.
        missing = False
        if self.namespaces and (asked.namespace or asked.is_namespace):
            missing = asked.labels is None
            if not missing and not self.namespaces.matches(asked.labels or {}):
                return None
        if self.objects and not any(self._chosen(body) for body in (asked.object, asked.old)):
            return None
        if self._ruled(self.excluded, asked) is not None:
            return None
        found = asked.form if self.rules is None else self._ruled(self.rules, asked)
        if found is not None and missing:
            raise NoNamespace
        return found

    def _chosen(self, body: Body | None) -> bool:
        if body is None:
            return False
        return self.objects.matches((body.get("metadata") or {}).get("labels") or {})

    def _ruled(self, rules: Sequence[Rule], asked: Asked) -> Form | None:
        if not rules:
            return None
        if any(rule.matches(asked, asked.form) for rule in rules):
            return asked.form
        if self.exact:
            return None
        return next((form for rule in rules for form in asked.others if rule.matches(asked, form)), None)
