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
from gateway.upstream.client import Cluster
from kube.requests.requestinfo import RequestInfo

_PARTIAL: Final = frozenset({b"range", b"if-range"})
"""Of a part nobody would be told which it is."""

_PLAIN: Final = re.compile(rb"(?:(?!%2[eEfF]|%5[cC])[!-~](?<!\\))+")
"""Of an address: what no two clients read in two ways."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


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
