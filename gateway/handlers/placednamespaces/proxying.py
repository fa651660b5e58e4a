"""What listens in pods of a workspace, asked through its cluster's proxy where the workspace's tier opens it (GW4).

The cluster finds the pod or the service in the namespace of the path and nowhere else. It is asked with the token of the
account that the tier has bound for this, and takes that off before it asks the pod, which hears of no credential, no
cookie and nobody's identity. What answers is no API server, and nothing that it says is believed to be one's.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from gateway.http.messages import Headers
from gateway.process.runtime import Runtime
from gateway.upstream.client import Cluster
from gateway.upstream.placements import Placement, tier_of
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Forbidden
from tenants.policies import kept_proxies, tier_proxies_key

ROLE: Final = "editor"
"""Whose account the proxy is bound to."""

_PARTIAL: Final = frozenset({b"range", b"if-range"})
"""Of a part nobody would be told which it is."""

_PLAIN: Final = re.compile(rb"(?:(?!%2[eEfF]|%5[cC])[!-~](?<!\\))+")
"""Of an address: what no two clients read in two ways."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


async def require_open(runtime: Runtime, info: RequestInfo, placement: Placement) -> None:
    """Raise ``Forbidden`` unless the tier opens the proxy, as this process has seen it last."""
    tier = await tier_of(runtime.store, placement)
    kept = await runtime.store.get(tier_proxies_key(tier), cached=True) if tier else None
    if not kept_proxies(kept.data if kept is not None else None):
        raise Forbidden(
            f'"{info.resource}/proxy" is closed in placed namespaces unless an operator opens it for their tier: '
            "kubectl port-forward reaches the same",
            kind=info.resource,
            name=info.name,
        )


def asked(headers: Headers) -> Headers:
    """What of a client's headers is for the pod; credentials end where all do (``gateway.upstream.headers``)."""
    return tuple(pair for pair in headers if pair[0] not in _PARTIAL)


def redirection(info: RequestInfo, status: int, location: bytes, cluster: Cluster, target: bytes) -> Headers:
    """Where a pod sends its client, if that is behind the same proxy; no other place is named by this host.

    ``target`` is the path of the pod's own root at the ``cluster``, as kube-apiserver writes it into redirections.
    """
    if status not in _REDIRECTS or not info.path.isascii() or not _PLAIN.fullmatch(location):
        return ()
    try:
        found, root = urlsplit(location), urlsplit(cluster.url).path.rstrip("/").encode("ascii") + target
    except ValueError:
        return ()
    path = found.path.removeprefix(root)
    if not found.path.startswith(root) or b"/." in b"/" + path:
        return ()
    base = info.path[: len(info.path) - len(info.rest)].rstrip("/") + "/"
    return ((b"location", base.encode("ascii") + path + (b"?" + found.query if found.query else b"")),)
