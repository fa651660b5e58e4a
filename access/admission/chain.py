"""The plugins in order, first all that change, then all that refuse; and the locks that keep quota writers in line."""

from __future__ import annotations

from collections.abc import Sequence

from access.admission.base import Attributes, NoopPlugin, Plugin
from store.types import Operation


class AdmissionChain:
    """Runs every plugin on every write."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._admit = [plugin.admit for plugin in plugins if _has_say(plugin, "admit")]
        self._validate = [plugin.validate for plugin in plugins if _has_say(plugin, "validate")]

    async def admit(self, attributes: Attributes) -> list[Operation]:
        """Admit one write. Returns what must be kept or held together with it; raises ``StatusError`` to refuse."""
        for admit in self._admit:
            await admit(attributes)
        operations: list[Operation] = []
        for validate in self._validate:
            operations += await validate(attributes)
        return operations


def _has_say(plugin: Plugin, round_: str) -> bool:
    """Most plugins have one in one of the rounds only."""
    return getattr(type(plugin), round_) is not getattr(NoopPlugin, round_)
