"""Rules about what the objects of tenants may be, as people type them: one a line, and no JSON (AD4, AD5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django import forms

from kube.policies.policy import LISTS, RULES

ANYTHING: Final = "*"
NOTHING: Final = "-"

_FREE: Final = frozenset({"refused_kinds", "required_labels"})
"""Rules that bind nobody when they are empty."""

WORDS: Final[Mapping[str, tuple[str, str]]] = {
    "refused_kinds": ("Kinds that are not created", "<code>DaemonSet.apps</code>"),
    "node_labels": (
        "Node labels",
        "What node selectors and node affinity may ask for: <code>zone=a</code>, <code>zone</code>",
    ),
    "node_names": ("Nodes by name", "Nodes that pods may name themselves."),
    "tolerations": ("Tolerations", "Taints that pods may bear: <code>spot=yes:NoSchedule</code>, <code>spot</code>"),
    "affinity_namespaces": ("Namespaces of affinity", "What the affinity of pods may look at beside their own."),
    "priority_classes": ("Priority classes", "Those above zero that pods may name."),
    "runtime_classes": ("Runtime classes", ""),
    "storage_classes": ("Storage classes", ""),
    "ingress_classes": ("Ingress classes", ""),
    "gateway_classes": ("Gateway classes", ""),
    "service_types": ("Types of Services", "<code>ClusterIP</code>, <code>NodePort</code>, <code>LoadBalancer</code>"),
    "registries": ("Registries", "What images come from: <code>ghcr.io/acme</code>, <code>docker.io/library</code>"),
    "required_labels": (
        "Required labels",
        "On pods, claims, Services, Ingresses and Gateways: <code>team</code>, or <code>stage=dev</code> for each value.",
    ),
    "hosts": ("Host names", "Of Ingresses, Gateways, ListenerSets and routes: <code>*.{tenant}.example.com</code>"),
}


class RuleField(forms.CharField):
    """One rule. Cleaned to a list, to ``None`` for anything, or left out of the rules."""

    widget = forms.Textarea(attrs={"class": "mono", "rows": 2, "spellcheck": "false"})

    def prepare_value(self, value: Any) -> Any:
        """The lines of a list."""
        if isinstance(value, list):
            return "\n".join(value) or NOTHING
        return value


class PoliciesForm(forms.Form):
    """All rules of a tier or of a tenant."""

    def __init__(self, data: Mapping[str, Any] | None, *, policies: Mapping[str, Any]) -> None:
        initial = {name: ANYTHING if rule is None else list(rule) for name, rule in policies.items()}
        super().__init__(data, initial=initial)
        for name in RULES:
            label, text = WORDS[name]
            self.fields[name] = RuleField(required=False, max_length=16_384, label=label, help_text=text)

    def clean(self) -> dict[str, Any]:
        """``policies``: the rules that are said."""
        said: dict[str, list[str] | None] = {}
        for name in RULES:
            lines = [line.strip() for line in (self.cleaned_data.get(name) or "").splitlines() if line.strip()]
            if lines == [ANYTHING] and name not in LISTS:
                said[name] = None
            elif lines:
                said[name] = [] if lines == [NOTHING] else lines
        return {"policies": said}


def rules_in_words(policies: Mapping[str, Any]) -> list[tuple[str, str, list[str]]]:
    """Rules as people read them: what it is about, anything or nothing in a word, and what is named."""
    told = []
    for name in RULES:
        rule = policies.get(name)
        word = "" if rule else "None" if name in _FREE else "Anything" if rule is None else "Nothing"
        told.append((WORDS[name][0], word, rule or []))
    return told
