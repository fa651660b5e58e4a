"""The plugins in order, first all that change, then all that refuse."""

from __future__ import annotations

from collections.abc import Sequence

from access.admission.base import Attributes, NoopPlugin, Plugin
from kube.authorization.decisions import Decision, Verdict
from kube.requests.status import StatusError
from store.types import Operation


class AdmissionChain:
    """Runs every plugin on every write. Who refuses one is noted, with the reason and the rule (AZ11)."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._admit = [(plugin.name, plugin.admit) for plugin in plugins if _has_say(plugin, "admit")]
        self._validate = [(plugin.name, plugin.validate) for plugin in plugins if _has_say(plugin, "validate")]

    async def admit(self, attributes: Attributes) -> list[Operation]:
        """Admit one write. Returns what must be kept or held together with it; raises ``StatusError`` to refuse."""
        name = ""
        try:
            for name, admit in self._admit:  # noqa: B007 - the one that refuses
                await admit(attributes)
            for name, validate in self._validate:  # noqa: B007
                attributes.together += await validate(attributes)
        except StatusError as refusal:
            attributes.notes.append(Decision(Verdict.DENY, f"admission/{name}", refusal.message, refusal.rule))
            raise
        return attributes.together


def _has_say(plugin: Plugin, round_: str) -> bool:
    """Most plugins have one in one of the rounds only."""
    return getattr(type(plugin), round_) is not getattr(NoopPlugin, round_)
