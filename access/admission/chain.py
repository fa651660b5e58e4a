"""The plugins in order, first all that change, then all that refuse; and the locks that keep quota writers in line."""

from __future__ import annotations

from collections.abc import Sequence

from access.admission.base import Attributes, Plugin
from store.types import Operation


class AdmissionChain:
    """Runs every plugin on every write."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = tuple(plugins)

    async def admit(self, attributes: Attributes) -> list[Operation]:
        """Admit one write. Returns what must be kept or held together with it; raises ``StatusError`` to refuse."""
        for plugin in self._plugins:
            await plugin.admit(attributes)
        operations: list[Operation] = []
        for plugin in self._plugins:
            operations.extend(await plugin.validate(attributes))
        return operations
