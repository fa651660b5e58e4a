"""Pods run as a service account that exists, pull images with its secrets, and use no others where it says so."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from access.admission.base import CREATE, Attributes, NoopPlugin
from kube.authorization.nodegraph import MIRROR, reference_of
from kube.objects.mountablesecrets import (
    ANNOTATION,
    ephemeral_container_problems,
    limits_secrets,
    new_pod_problems,
)
from kube.requests.names import path_segment
from kube.requests.status import Forbidden
from kube.workspaces.namespacecontents import service_account
from store.interface import Store
from store.types import Create, Key, Operation, Stored

_NAMESPACES: Final = ("", "namespaces")
_PODS: Final = ("", "pods")
_PULLING: Final = b'"imagePullSecrets"'
_LIMITING: Final = ANNOTATION.encode()
"""Most accounts do neither, and do not have the words in them: those need not be read."""


class ServiceAccount(NoopPlugin):
    """A new pod runs as ``default`` when that account exists and nothing else is asked; a named one must exist.

    A pod that names no secrets to pull images with gets the account's. No token is mounted: no container runs.
    ``default`` is made together with its namespace, as a cluster's controllers would.
    """

    name = "ServiceAccount"
    kinds = frozenset({_NAMESPACES, _PODS})

    def __init__(self, store: Store) -> None:
        self._store = store

    async def admit(self, attributes: Attributes) -> None:
        """Name the account in both fields, and its secrets for pulling images where the pod names none."""
        body = attributes.object
        if body is None or not _concerns(attributes):
            return
        spec = body.get("spec") or {}
        name = spec.get("serviceAccountName") or spec.get("serviceAccount")
        account = await self._account(attributes, name or "default")
        if not name and account is not None:
            name = "default"
        if name:
            spec["serviceAccountName"] = spec["serviceAccount"] = name
        if account is not None and _PULLING in account.data and not spec.get("imagePullSecrets"):
            secrets = orjson.loads(account.data).get("imagePullSecrets")
            if secrets:
                spec["imagePullSecrets"] = secrets

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` when the account is not there, or limits what the pod may use.

        A new namespace gets its first account.
        """
        body = attributes.object
        if _is_new_namespace(attributes):
            return (_first_account(attributes),)
        if body is not None and _is_new_pod(attributes) and _is_mirror(body):
            _check_mirror(attributes, body)
        if body is None or not (_concerns(attributes) or _adds_containers(attributes)):
            return ()
        spec = body.get("spec") or {}
        name = spec.get("serviceAccountName")
        if not name:
            return ()
        account = await self._account(attributes, name)
        if account is None:
            wrong = path_segment(name)
            detail = f'invalid resource name "{name}": [{wrong[0]}]' if wrong else f'serviceaccount "{name}" not found'
            raise _forbidden(attributes, f"error looking up service account {attributes.namespace}/{name}: {detail}")
        if _LIMITING in account.data and limits_secrets(limiting := orjson.loads(account.data)):
            problems = new_pod_problems if _is_new_pod(attributes) else ephemeral_container_problems
            for problem in problems(spec, limiting):
                raise _forbidden(attributes, problem)
        return ()

    async def _account(self, attributes: Attributes, name: str) -> Stored | None:
        key = Key(attributes.cluster, "", "serviceaccounts", attributes.namespace, name)
        return await self._store.get(key, cached=True) or await self._store.get(key)


def _forbidden(attributes: Attributes, why: str) -> Forbidden:
    return Forbidden(f'pods "{attributes.name}" is forbidden: {why}', kind="pods", name=attributes.name)


def _concerns(attributes: Attributes) -> bool:
    return _is_new_pod(attributes) and not _is_mirror(attributes.object)


def _is_new_pod(attributes: Attributes) -> bool:
    return attributes.place == _PODS and attributes.operation == CREATE and not attributes.subresource


def _adds_containers(attributes: Attributes) -> bool:
    return attributes.place == _PODS and attributes.subresource == "ephemeralcontainers"


def _is_mirror(body: dict[str, Any] | None) -> bool:
    """Whether a kubelet shows a pod here that it runs by itself: it has no account (AZ4)."""
    annotations = ((body or {}).get("metadata") or {}).get("annotations")
    return isinstance(annotations, dict) and MIRROR in annotations


def _check_mirror(attributes: Attributes, body: dict[str, Any]) -> None:
    """What runs on a node by itself has no credentials of the API, whoever shows it here. Raises ``Forbidden``."""
    referred = reference_of(body.get("spec") or {}).partition(" ")[0]
    words = {"serviceaccounts": "service accounts", "secrets": "secrets"}
    if referred in words:
        raise _forbidden(attributes, f"a mirror pod may not reference {words[referred]}")


def _is_new_namespace(attributes: Attributes) -> bool:
    return attributes.place == _NAMESPACES and attributes.operation == CREATE


def _first_account(attributes: Attributes) -> Create:
    key = Key(attributes.cluster, "", "serviceaccounts", attributes.name, "default")
    now = datetime.fromtimestamp(int(attributes.now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Create(key, service_account(key.space, key.namespace, uid=str(uuid.uuid4()), now=now))
