"""What a kubectl command asks of an API server, so that it can be asked about before it is run (AZ11).

kubectl often sends several requests for one command; the one that changes something, or shows what was asked for, stands
for it. What a file holds is not in the command line: such a command names no resource.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kube.kinds.resources import Catalog, Resource

LENGTH_MAX: Final = 4096


class UnknownCommand(ValueError):
    """The text asks nothing of a server that could be told from it; the message says what to do."""


class Inquiry(NamedTuple):
    """A verb on a resource, or on a path that is none.

    ``namespace`` is ``None`` where the command leaves it to the kubeconfig, empty for all of them or none.
    """

    verb: str
    resource: Resource | None = None
    subresource: str = ""
    namespace: str | None = None
    name: str = ""
    path: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    sent: str = ""
    """The changes that it sends, in JSON or YAML, where the command line says them."""
    patch: str = ""
    """Their type, as ``kubectl patch --type`` has it."""


_VALUED: Final = frozenset({
    "-n", "--namespace", "--as", "--as-group", "--as-uid", "-l", "--selector", "-o", "--output", "-f", "--filename",
    "-k", "--kustomize", "-c", "--container", "--context", "--cluster", "--user", "--kubeconfig", "-s", "--server",
    "--token", "--field-selector", "--image", "--replicas", "--type", "-p", "--patch", "--patch-file",
    "--subresource", "--raw", "--request-timeout", "--tail", "--since", "--since-time", "--sort-by", "--template",
    "--timeout", "--grace-period", "--from-literal", "--from-file", "--from-env-file", "--role", "--clusterrole",
    "--serviceaccount", "--group", "--verb", "--resource", "--resource-name", "--schedule", "--port",
    "--target-port", "--address", "--min", "--max", "--cpu-percent", "--for", "--duration", "--audience",
    "--field-manager", "--cascade", "--chunk-size", "--revision", "--to-revision", "--overrides", "--restart",
    "--env", "--labels", "--annotations", "--current-replicas", "--resource-version", "--limits", "--requests",
    "--hard", "--tcp", "--rule", "--class", "--dry-run",
})  # fmt: skip
"""Flags that take the next word along when it is not written behind ``=``."""

_READS: Final = {"get": "list", "describe": "list"}
_PATCHES: Final = frozenset({"edit", "patch", "label", "annotate", "cordon", "uncordon", "taint"})
_PARTS: Final[Mapping[str, tuple[str, str]]] = {
    "exec": ("create", "exec"),
    "cp": ("create", "exec"),
    "attach": ("create", "attach"),
    "port-forward": ("create", "portforward"),
    "logs": ("get", "log"),
    "debug": ("patch", "ephemeralcontainers"),
}
"""What goes into a pod, whatever owns it."""

_MAKES: Final = {"run": "pods", "expose": "services", "autoscale": "horizontalpodautoscalers"}
_CREATED: Final = {"quota": "resourcequotas"}
_NODES: Final = frozenset({"cordon", "uncordon"})
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_FROM_FILE: Final = "What is in a file the command does not say: choose the action and the thing below."


def inquiry_of(text: str, catalog: Catalog) -> Inquiry:
    """What a command line asks about, its words looked up in ``catalog``. Raises ``UnknownCommand``."""
    words, flags = _taken_apart(text)
    asked = _asked(words, flags, catalog)
    namespace = flags["namespace"][-1] if "namespace" in flags else asked.namespace
    if "all-namespaces" in flags or (asked.resource is not None and not asked.resource.namespaced):
        namespace = ""
    return asked._replace(namespace=namespace, user=flags.get("as", [""])[-1], groups=tuple(flags.get("as-group", ())))


def resource_named(word: str, catalog: Catalog) -> Resource:
    """What kubectl takes a word for: a plural, a singular, a short name or a kind, with or without a group.

    Raises ``UnknownCommand``.
    """
    name, _, rest = word.lower().partition(".")
    for resource in catalog:
        called = {resource.plural, resource.singular, resource.kind.lower(), *resource.short_names}
        groups = {"", resource.group, *(f"{version.name}.{resource.group}" for version in resource.versions)}
        if name in called and rest in groups:
            return resource
    raise UnknownCommand(f"There is no resource “{word[:63]}” here.")


def _taken_apart(text: str) -> tuple[list[str], dict[str, list[str]]]:
    """The words of a command behind ``kubectl``, and its flags by their long names."""
    if len(text) > LENGTH_MAX:
        raise UnknownCommand("The command is too long.")
    try:
        split = shlex.split(text, comments=False)
    except ValueError:
        raise UnknownCommand("A quotation mark is missing.") from None
    while split and (split[0] == "$" or _ASSIGNMENT.fullmatch(split[0])):
        split.pop(0)
    if not split or split[0].rpartition("/")[2] not in {"kubectl", "k", "oc"}:
        raise UnknownCommand("A command begins with kubectl.")
    words, flags = [], dict[str, list[str]]()
    rest = iter(split[1:])
    follows = "logs" in split
    for word in rest:
        if word == "--":
            break
        if word.startswith("-") and len(word) > 1:
            name, value = ("follow", "") if word == "-f" and follows else _flag(word, rest)
            flags.setdefault(name, []).append(value)
        else:
            words.append(word)
    return words, flags


_LONG: Final = {"-n": "namespace", "-A": "all-namespaces", "-w": "watch", "-f": "filename", "-k": "kustomize"}


def _flag(word: str, rest: Iterator[str]) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not name.startswith("--") and len(name) > 2 and name[:2] in _VALUED:
        name, equals, value = name[:2], "=", word[2:].removeprefix("=")
    if not equals and name in _VALUED:
        value = next(rest, "")
    return _LONG.get(name, name.lstrip("-")), value


def _asked(words: list[str], flags: Mapping[str, list[str]], catalog: Catalog) -> Inquiry:
    if not words:
        raise UnknownCommand("The command says nothing to do.")
    command, words = words[0], words[1:]
    if command == "get" and "raw" in flags:
        return Inquiry("get", path=flags["raw"][-1], namespace="")
    if command == "auth":
        return _can_i(words, flags, catalog)
    if command in _PARTS:
        verb, part = _PARTS[command]
        owner, slash, name = words[0].rpartition("/") if words else ("", "", "")
        # Which pod of an owner it is only the server knows; of a copy the command says two paths.
        known = command != "cp" and (not slash or owner in {"po", "pod", "pods"})
        return Inquiry(verb, resource_named("pods", catalog), part, None, name if known else "")
    if command in _MAKES:
        return Inquiry("create", resource_named(_MAKES[command], catalog))
    if command == "create":
        return _created(words, flags, catalog)
    if command in {"rollout", "set"}:
        what, words = (words[0] if words else ""), words[1:]
        command = "get" if what in {"status", "history"} else "patch"
    if command in _NODES:
        words = ["nodes", *words]
    if command not in {*_READS, *_PATCHES, "delete", "replace", "scale", "wait"}:
        raise UnknownCommand(
            _FROM_FILE
            if {"filename", "kustomize"} & set(flags)
            else f"kubectl {command[:63]} asks no right of its own."
        )
    resource, name = _object(words, flags, catalog)
    if command == "scale":
        return Inquiry("patch", resource, "scale", None, name, sent=_scaled(flags), patch="merge")
    if command in _READS:
        verb = "watch" if "watch" in flags else "get" if name else "list"
        return Inquiry(verb, resource, flags.get("subresource", [""])[-1], None, name)
    verb = {"delete": "delete", "replace": "update", "wait": "watch"}.get(command, "patch")
    asked = Inquiry(verb, resource, flags.get("subresource", [""])[-1], None, name)
    if command == "patch":
        said = [*flags.get("p", ()), *flags.get("patch", ())]
        return asked._replace(sent=said[-1] if said else "", patch=flags.get("type", ["strategic"])[-1])
    if command in _METADATA:
        return asked._replace(sent=_marked(_METADATA[command], words), patch="merge")
    return asked


_METADATA: Final = {"label": "labels", "annotate": "annotations"}


def _scaled(flags: Mapping[str, list[str]]) -> str:
    replicas = flags.get("replicas", [""])[-1]
    return json.dumps({"spec": {"replicas": int(replicas)}}) if replicas.isascii() and replicas.isdigit() else ""


def _marked(field: str, words: list[str]) -> str:
    """What ``name=value`` sets and ``name-`` takes away."""
    pairs = [word.partition("=") for word in words if "=" in word]
    marks: dict[str, str | None] = {name: value for name, _, value in pairs}
    marks |= {word[:-1]: None for word in words[1:] if word.endswith("-") and "=" not in word}
    return json.dumps({"metadata": {field: marks}}) if marks else ""


def _object(words: list[str], flags: Mapping[str, list[str]], catalog: Catalog) -> tuple[Resource, str]:
    """``pods``, ``pods web``, ``deploy/web``; of several, the first."""
    if not words:
        raise UnknownCommand(_FROM_FILE if {"filename", "kustomize"} & set(flags) else "The command names no resource.")
    kind, slash, name = words[0].partition("/")
    if not slash and len(words) > 1 and "=" not in words[1] and not words[1].endswith("-"):
        name = words[1]
    return resource_named(kind.partition(",")[0], catalog), name.partition("/")[0]


def _created(words: list[str], flags: Mapping[str, list[str]], catalog: Catalog) -> Inquiry:
    if not words:
        raise UnknownCommand(_FROM_FILE if "filename" in flags else "The command names nothing to create.")
    if words[0] == "token":
        name = words[1] if len(words) > 1 else ""
        return Inquiry("create", resource_named("serviceaccounts", catalog), "token", None, name)
    return Inquiry("create", resource_named(_CREATED.get(words[0], words[0]), catalog))


def _can_i(words: list[str], flags: Mapping[str, list[str]], catalog: Catalog) -> Inquiry:
    if words[:1] != ["can-i"] or len(words) < 3:
        raise UnknownCommand("kubectl auth can-i is followed by a verb and a resource.")
    verb, what = words[1:3]
    if what.startswith("/"):
        return Inquiry(verb, path=what, namespace="")
    kind, _, name = what.partition("/")
    return Inquiry(
        verb, resource_named(kind, catalog), flags.get("subresource", [""])[-1], None, name or "".join(words[3:4])
    )
