"""Which kinds a server has in a namespace, by its own discovery, in the order in which people look for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_SECTIONS: Final = (
    (
        "Workloads",
        (
            "deployments.apps",
            "statefulsets.apps",
            "daemonsets.apps",
            "jobs.batch",
            "cronjobs.batch",
            "replicasets.apps",
        ),
    ),
    ("Running", ("pods", "events")),
    ("Network", ("services", "ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io")),
    ("Configuration", ("configmaps", "secrets", "resourcequotas", "limitranges")),
    ("Storage", ("persistentvolumeclaims",)),
    ("Rights", ("serviceaccounts", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io")),
)
_TWICE: Final = frozenset({"events.events.k8s.io"})
_CUSTOM: Final = "Custom resources"
_OTHERS: Final = "Others"


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind of namespaced objects, in the version that the server prefers."""

    group: str
    version: str
    resource: str
    kind: str
    verbs: frozenset[str]
    subresources: frozenset[str]

    @property
    def name(self) -> str:
        """As kubectl takes it: ``deployments.apps``."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    @property
    def api_version(self) -> str:
        """As objects say it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_custom(self) -> bool:
        """Whether it is no kind of Kubernetes' own."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    @property
    def title(self) -> str:
        """As a list of them is called."""
        return _plural(self.kind)


@dataclass(frozen=True, slots=True)
class Section:
    """Kinds that belong together."""

    title: str
    kinds: tuple[ServedKind, ...]


def read_discovery(document: object) -> list[ServedKind]:
    """The namespaced kinds of an ``APIGroupDiscoveryList`` that can be listed; what is malformed is left out."""
    found: list[ServedKind] = []
    for item in _list(_dict(document).get("items")):
        group = _dict(item.get("metadata")).get("name", "")
        known: set[str] = set()
        for version in _list(item.get("versions")):
            for each in _list(version.get("resources")):
                kind = _served(group, version.get("version"), each)
                if kind is not None and kind.resource not in known:
                    known.add(kind.resource)
                    found.append(kind)
    return found


def sections_of(kinds: Iterable[ServedKind]) -> list[Section]:
    """All kinds by section, those that nobody has put into order behind the others."""
    left = {kind.name: kind for kind in kinds if kind.name not in _TWICE}
    made = []
    for title, names in _SECTIONS:
        here = tuple(left.pop(name) for name in names if name in left)
        if here:
            made.append(Section(title, here))
    rest = sorted(left.values(), key=lambda kind: kind.kind)
    for title, custom in ((_CUSTOM, True), (_OTHERS, False)):
        here = tuple(kind for kind in rest if kind.is_custom is custom)
        if here:
            made.append(Section(title, here))
    return made


def kind_named(kinds: Iterable[ServedKind], name: str) -> ServedKind | None:
    """The kind that is called so."""
    return next((kind for kind in kinds if kind.name == name), None)


def kind_of(kinds: Iterable[ServedKind], api_version: str, kind: str) -> ServedKind | None:
    """The kind that an object, or a reference to one, says it is of, whatever the version."""
    group = api_version.rpartition("/")[0]
    return next((each for each in kinds if each.group == group and each.kind == kind), None)


def _served(group: object, version: object, found: Mapping[str, Any]) -> ServedKind | None:
    resource, kind, verbs = found.get("resource"), _dict(found.get("responseKind")).get("kind"), found.get("verbs")
    texts = (group, version, resource, kind)
    if not all(isinstance(text, str) for text in texts) or not isinstance(verbs, list):
        return None
    if found.get("scope") != "Namespaced" or "list" not in verbs:
        return None
    subresources = (each.get("subresource") for each in _list(found.get("subresources")))
    return ServedKind(
        str(group),
        str(version),
        str(resource),
        str(kind),
        frozenset(verb for verb in verbs if isinstance(verb, str)),
        frozenset(name for name in subresources if isinstance(name, str)),
    )


def _plural(kind: str) -> str:
    """``NetworkPolicy`` as ``Network policies``; names of several capitals stay as they are."""
    letters = ""
    for index, letter in enumerate(kind):
        begins = letter.isupper() and index and (kind[index - 1].islower() or kind[index + 1 : index + 2].islower())
        letters += f" {letter}" if begins else letter
    words = [word if word.isupper() and len(word) > 1 else word.lower() for word in letters.split()]
    text = " ".join(words)
    if text.endswith("y") and text[-2:-1] not in "aeiou":
        text = f"{text[:-1]}ies"
    elif text.endswith(("s", "x", "ch")):
        text = text if text.endswith(("ies", "points")) else f"{text}es"
    else:
        text = f"{text}s"
    return text[:1].upper() + text[1:]


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
