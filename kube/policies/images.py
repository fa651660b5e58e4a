"""Names of images: where a container runtime would take them from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_DOCKER: Final = "docker.io"
_ALIASES: Final = frozenset({"index.docker.io", "registry-1.docker.io"})
_PLACE: Final = re.compile(
    r"(\[[0-9a-f:]+\]|[a-z0-9]([-a-z0-9.]*[a-z0-9])?)(:[0-9]{1,5})?(/[a-z0-9]([-a-z0-9._]*[a-z0-9])?)*"
)


def repository(image: str) -> str:
    """The registry and the path of an image, without tag and digest, as container runtimes complete short names.

    ``nginx:1.27`` is ``docker.io/library/nginx``.
    """
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = f"{head}{slash}{last.partition(':')[0]}"
    registry, slash, path = name.partition("/")
    if not slash or not _is_registry(registry):
        registry, path = _DOCKER, name
    registry = registry.lower()
    if registry in _ALIASES:
        registry = _DOCKER
    return f"{registry}/library/{path}" if registry == _DOCKER and "/" not in path else f"{registry}/{path}"


def comes_from(image: str, places: Sequence[str]) -> bool:
    """Whether an image is in one of these registries, or below one of these paths in them."""
    name = repository(image)
    return any(name == place or name.startswith(f"{place}/") for place in places)


def registry_reasons(place: str) -> Sequence[str]:
    """What is wrong with a registry, or a path in one, that images are allowed from."""
    if not _PLACE.fullmatch(place) or not _is_registry(place.partition("/")[0]) or place.partition("/")[0] in _ALIASES:
        return ("must be a registry, with or without a path in it, for example ghcr.io/acme or docker.io/library",)
    return ()


def _is_registry(component: str) -> bool:
    """Of the part before the first slash: a short name has no dot, no port, and is not this machine."""
    return "." in component or ":" in component or component == "localhost" or component.lower() != component
