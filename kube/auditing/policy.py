"""``audit.k8s.io/v1`` Policy: how much is told of which request, decided as kube-apiserver decides it (GW13).

The first rule that matches says the level; a request that none matches is not told of at all. What is wrong with a
policy is said in kube-apiserver's words. Users and groups are the operators' own: a tenant calls its people as it likes,
and nobody is to go untold of by a name. Namespaces and resources are those of every space.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kube.authentication.identity import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, Principal
from kube.requests.decoding import decode_yaml
from kube.requests.fielderrors import invalid, not_supported, required
from kube.requests.names import dns_subdomain
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Cause, StatusError

VERSION: Final = "audit.k8s.io/v1"

_EVERYBODY: Final = frozenset({AUTHENTICATED, UNAUTHENTICATED})


class Level(Enum):
    """How much is told: nothing, who did what, the object that was sent, the answer as well."""

    NONE = "None"
    METADATA = "Metadata"
    REQUEST = "Request"
    REQUEST_RESPONSE = "RequestResponse"


class Stage(Enum):
    """The moments of a request at which it can be told of. Nothing panics here."""

    REQUEST_RECEIVED = "RequestReceived"
    RESPONSE_STARTED = "ResponseStarted"
    RESPONSE_COMPLETE = "ResponseComplete"
    PANIC = "Panic"


class PolicyError(ValueError):
    """A policy that cannot be used; the message names the fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """What a policy says of one request."""

    level: Level
    omitted: frozenset[Stage] = frozenset()
    omit_managed_fields: bool = False


@dataclass(frozen=True, slots=True)
class GroupResources:
    """Resources of a group; none: all of them. ``pods``, ``pods/log``, ``pods/*``, ``*/scale`` and ``*``."""

    group: str
    resources: tuple[str, ...]
    names: frozenset[str]

    def match(self, info: RequestInfo) -> bool:
        """Whether the request is for one of them."""
        if self.group != info.group:
            return False
        if not self.resources:
            return True
        if self.names and info.name not in self.names:
            return False
        # "*" is every resource with its parts; "*/status" a part of any, "pods/*" pods and each of their parts.
        words = {
            "*",
            f"{info.resource}/*",
            f"{info.resource}/{info.subresource}" if info.subresource else info.resource,
        }
        if info.subresource:
            words.add(f"*/{info.subresource}")
        return not words.isdisjoint(self.resources)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is told of the requests that match all that is not empty here."""

    said: Audited
    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    verbs: frozenset[str] = frozenset()
    resources: tuple[GroupResources, ...] = ()
    namespaces: frozenset[str] = frozenset()
    urls: tuple[str, ...] = ()

    def match(self, caller: Principal | None, info: RequestInfo) -> bool:
        """Whether the rule is about this request; ``caller`` is ``None`` where nobody knows who it is."""
        if self.users and _known_name(caller) not in self.users:
            return False
        if self.groups and self.groups.isdisjoint(_known_groups(caller)):
            return False
        if self.verbs and info.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if not info.is_resource or (self.namespaces and info.namespace not in self.namespaces):
                return False
            return not self.resources or any(each.match(info) for each in self.resources)
        return not self.urls or (not info.is_resource and any(_covers(url, info.path) for url in self.urls))


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules in order, and what holds for a request that none of them is about."""

    rules: tuple[Rule, ...]
    otherwise: Audited

    def decide(self, caller: Principal | None, info: RequestInfo) -> Audited:
        """What is told of a request. ``caller`` is who sent it, not whom it is to be served for."""
        return next((rule.said for rule in self.rules if rule.match(caller, info)), self.otherwise)


def read_policy(data: bytes) -> Policy:
    """Read a policy from YAML or JSON. Raises ``PolicyError``.

    A field that a policy does not have is an error: what it was to leave out, or to let in, would be told of or not.
    """
    try:
        document = decode_yaml(data)
    except StatusError as error:
        raise PolicyError(f"failed decoding: {error}") from None
    if not isinstance(document, Mapping) or (document.get("apiVersion"), document.get("kind")) != (VERSION, "Policy"):
        raise PolicyError(f"failed decoding: the file must hold a Policy of {VERSION}")
    known = {"apiVersion", "kind", "metadata", "rules", "omitStages", "omitManagedFields"}
    _require_known(document, "", known)
    causes: list[Cause] = []
    stages = _stages(document, "", causes)
    omit = _flag(document, "")
    raw = _list(document, "rules", "", Mapping)
    rules = tuple(_rule(each, f"rules[{index}]", stages, omit, causes) for index, each in enumerate(raw))
    if causes:
        texts = [f"{cause.field}: {cause.message}" for cause in causes]
        raise PolicyError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    if not rules:
        raise PolicyError("loaded illegal policy with 0 rules")
    return Policy(rules, Audited(level=Level.NONE, omitted=stages, omit_managed_fields=bool(omit)))


def _rule(raw: Mapping[str, Any], at: str, stages: frozenset[Stage], omit: bool | None, causes: list[Cause]) -> Rule:
    lists = ("users", "userGroups", "verbs", "namespaces")
    known = {"level", "resources", "nonResourceURLs", "omitStages", "omitManagedFields", *lists}
    _require_known(raw, f"{at}.", known)
    level = _level(raw, at, causes)
    urls = _texts(raw, "nonResourceURLs", at)
    causes.extend(_url_causes(urls, f"{at}.nonResourceURLs"))
    groups = _list(raw, "resources", at, Mapping)
    resources = tuple(_resources(each, f"{at}.resources", causes) for each in groups)
    own_stages, own_omit = _stages(raw, f"{at}.", causes), _flag(raw, at)
    users, user_groups, verbs, namespaces = (_texts(raw, name, at) for name in lists)
    if urls and (resources or namespaces):
        detail = "rules cannot apply to both regular resources and non-resource URLs"
        causes.append(invalid(f"{at}.nonResourceURLs", urls, detail))
    return Rule(
        said=Audited(
            level=level,
            omitted=stages | own_stages,
            omit_managed_fields=bool(omit if own_omit is None else own_omit),
        ),
        users=frozenset(users),
        groups=frozenset(user_groups),
        verbs=frozenset(verbs),
        resources=resources,
        namespaces=frozenset(namespaces),
        urls=tuple(urls),
    )


def _level(raw: Mapping[str, Any], at: str, causes: list[Cause]) -> Level:
    level = raw.get("level") or ""
    if not isinstance(level, str):
        raise PolicyError(f"failed decoding: {at}.level must be a text")
    try:
        return Level(level)
    except ValueError:
        place = f"{at}.level"
        causes.append(not_supported(place, level, [each.value for each in Level]) if level else required(place))
        return Level.NONE


def _resources(raw: Mapping[str, Any], at: str, causes: list[Cause]) -> GroupResources:
    _require_known(raw, f"{at}.", {"group", "resources", "resourceNames"})
    group = raw.get("group") or ""
    if not isinstance(group, str):
        raise PolicyError(f"failed decoding: {at}.group must be a text")
    if group and (reasons := dns_subdomain(group)):
        causes.append(invalid(f"{at}.group", group, ",".join(reasons)))
    resources, names = _texts(raw, "resources", at), _texts(raw, "resourceNames", at)
    if names and not resources:
        causes.append(invalid(f"{at}.resourceNames", names, "using resourceNames requires at least one resource"))
    return GroupResources(group, tuple(resources), frozenset(names))


def _url_causes(urls: Sequence[str], at: str) -> list[Cause]:
    causes = []
    for index, url in enumerate(urls):
        if url == "*":
            continue
        if not url.startswith("/"):
            detail = "non-resource URL rules must begin with a '/' character"
            causes.append(invalid(f"{at}[{index}]", url, detail))
        if "*" in url[:-1]:
            detail = "non-resource URL wildcards '*' must be the final character of the rule"
            causes.append(invalid(f"{at}[{index}]", url, detail))
    return causes


def _known_name(caller: Principal | None) -> str | None:
    return caller.name if caller is not None and (caller.is_system or caller.name == ANONYMOUS) else None


def _known_groups(caller: Principal | None) -> Collection[str]:
    if caller is None:
        return ()
    return caller.groups if caller.is_system else _EVERYBODY.intersection(caller.groups)


def _covers(url: str, path: str) -> bool:
    return url in {"*", path} or (url.endswith("*") and path.startswith(url[:-1]))


def _stages(raw: Mapping[str, Any], prefix: str, causes: list[Cause]) -> frozenset[Stage]:
    found = set()
    for index, word in enumerate(_texts(raw, "omitStages", prefix.removesuffix("."))):
        try:
            found.add(Stage(word))
        except ValueError:
            detail = f"allowed stages are {','.join(stage.value for stage in Stage)}"
            causes.append(invalid(f"{prefix}omitStages[{index}]", word, detail))
    return frozenset(found)


def _flag(raw: Mapping[str, Any], at: str) -> bool | None:
    value = raw.get("omitManagedFields")
    if value is not None and not isinstance(value, bool):
        raise PolicyError(f"failed decoding: {_place(at, 'omitManagedFields')} must be true or false")
    return value


def _texts(raw: Mapping[str, Any], name: str, at: str) -> list[str]:
    return _list(raw, name, at, str)


def _list(raw: Mapping[str, Any], name: str, at: str, kind: type[Any]) -> list[Any]:
    value = raw.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        words = "texts" if kind is str else "objects"
        raise PolicyError(f"failed decoding: {_place(at, name)} must be a list of {words}")
    return value


def _place(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _require_known(raw: Mapping[str, Any], prefix: str, known: Collection[str]) -> None:
    if unknown := [f'unknown field "{prefix}{name}"' for name in raw if name not in known]:
        raise PolicyError(f"strict decoding error: {', '.join(unknown)}")
