"""The kubectl command that does the same as a page, ready for a shell."""

from __future__ import annotations

import re
import shlex
from typing import Final

from kube.display.text import acts

_WRITTEN: Final = re.compile(r"[^ -~]|[\\']")


def kubectl(namespace: str, *arguments: str) -> str:
    """A command in a namespace; whatever a shell would read is quoted."""
    return " ".join(map(_quoted, ["kubectl", "-n", namespace, *(argument for argument in arguments if argument)]))


def get_list(namespace: str, resource: str, *, labels: str = "") -> str:
    """All of a kind, by labels."""
    return kubectl(namespace, "get", resource, *(("-l", labels) if labels else ()))


def get_yaml(namespace: str, resource: str, name: str) -> str:
    """One as YAML."""
    return kubectl(namespace, "get", resource, name, "-o", "yaml")


def logs(namespace: str, pod: str, *, container: str = "", lines: int, previous: bool = False) -> str:
    """What a container says, or what the one before it has said."""
    arguments = [f"--tail={lines}", "--previous" if previous else "-f"]
    return kubectl(namespace, "logs", pod, *(("-c", container) if container else ()), *arguments)


def restart(namespace: str, resource: str, name: str) -> str:
    """Each pod anew."""
    return kubectl(namespace, "rollout", "restart", f"{resource}/{name}")


def scale(namespace: str, resource: str, name: str, replicas: int) -> str:
    """More of it, or fewer."""
    return kubectl(namespace, "scale", f"{resource}/{name}", f"--replicas={replicas}")


def delete(namespace: str, resource: str, name: str) -> str:
    """The end of one."""
    return kubectl(namespace, "delete", resource, name)


def _quoted(argument: str) -> str:
    """As a shell takes it; letters that act as escapes, which bash and zsh read."""
    if not acts(argument):
        return shlex.quote(argument)
    return "$'" + _WRITTEN.sub(lambda found: f"\\U{ord(found[0]):08x}", argument) + "'"
