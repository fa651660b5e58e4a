"""Namespaces exist before what is in them, and take nothing new while they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from access.admission.base import CREATE, DELETE, Attributes, NoopPlugin
from access.admission.notending import NotEnding
from kube.requests.status import Cause, Forbidden, NotFound
from store.interface import Store
from store.types import Key, Operation

IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle(NoopPlugin):
    """Refuses creations in namespaces that are missing or terminating, and the deletion of the first namespaces.

    The namespace's revision is held in the same transaction, so that a creation and a deletion cannot pass each other.
    """

    name = "NamespaceLifecycle"
    operations = frozenset({CREATE, DELETE})

    def __init__(self, store: Store) -> None:
        self._store = store
        self._not_ending = NotEnding()

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Hold the namespace as it is; raises ``NotFound`` and ``Forbidden`` in kube-apiserver's words."""
        resource = attributes.resource
        if attributes.operation == DELETE:
            if not resource.group and resource.plural == "namespaces" and attributes.name in IMMORTAL:
                raise Forbidden(
                    f'namespaces "{attributes.name}" is forbidden: this namespace may not be deleted',
                    kind="namespaces",
                    name=attributes.name,
                )
            return ()
        if not attributes.namespace or not resource.namespaced:
            return ()
        key = Key(attributes.cluster, "", "namespaces", "", attributes.namespace)
        stored = self._store.peek(key) or await self._store.get(key, cached=True) or await self._store.get(key)
        if stored is None:
            raise NotFound(
                f'namespaces "{attributes.namespace}" not found', kind="namespaces", name=attributes.namespace
            )
        check = self._not_ending.check(stored)
        if check is None:
            raise self._terminating(attributes)
        return (check,)

    @staticmethod
    def _terminating(attributes: Attributes) -> Forbidden:
        resource = attributes.resource
        return Forbidden(
            f'{resource.qualified_name} "{attributes.name}" is forbidden: unable to create new content in namespace '
            f"{attributes.namespace} because it is being terminated",
            group=resource.group,
            kind=resource.plural,
            name=attributes.name,
            causes=[
                Cause(
                    "NamespaceTerminating",
                    f"namespace {attributes.namespace} is being terminated",
                    "metadata.namespace",
                )
            ],
        )
