"""Writes kubeconfigs in the seed's shape, by a serializer: in a text template a hostile answer became a command."""

from __future__ import annotations

import base64

import yaml


def kubeconfig_yaml(*, server: str, ca: str, namespace: str, user: str, token: str) -> str:
    """A kubeconfig (GATEWAY 4.2): one cluster, one user with a token, one context locked to ``namespace``.

    ``ca`` is PEM. The values are quoted by the serializer, whatever they hold.
    """
    config = {
        "apiVersion": "v1",
        "clusters": [
            {
                "cluster": {
                    "server": server,
                    "certificate-authority-data": base64.b64encode(ca.encode()).decode(),
                },
                "name": "internal-cluster",
            }
        ],
        "contexts": [
            {
                "context": {"cluster": "internal-cluster", "namespace": namespace, "user": user},
                "name": "tenant-context",
            }
        ],
        "current-context": "tenant-context",
        "kind": "Config",
        "users": [{"name": user, "user": {"token": token}}],
    }
    return yaml.safe_dump(config, sort_keys=False, width=2**31)
