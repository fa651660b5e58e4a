"""The plugins in order, first all that change, then all that refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from access.admission.base import Attributes, NoopPlugin, Plugin
from kube.authorization.decisions import Decision, Verdict
from kube.requests.status import StatusError
from store.types import Operation

_OUTSIDE: Final = frozenset({"MutatingAdmissionPolicy", "MutatingAdmissionWebhook"})
"""Plugins that change objects as they are told: all up to the last of them have another turn when they did."""


class _Order:
    """Who is asked about the writes of one kind: twice when somebody outside has changed the object, once, and at last."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        changing = [(plugin.name, plugin.admit) for plugin in plugins if _has_say(plugin, "admit")]
        ends = max((index for index, (name, _) in enumerate(changing, 1) if name in _OUTSIDE), default=0)
        self.changing, self.settling = changing[:ends], changing[ends:]
        self.validate = [(plugin.name, plugin.validate) for plugin in plugins if _has_say(plugin, "validate")]


class AdmissionChain:
    """Runs the plugins that a write's kind concerns. Who refuses one is noted, with the reason and the rule (AZ11)."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._orders = {
            kind: _Order([plugin for plugin in plugins if plugin.kinds is None or kind in plugin.kinds])
            for kind in {kind for plugin in plugins for kind in plugin.kinds or ()}
        }
        self._others = _Order([plugin for plugin in plugins if plugin.kinds is None])

    async def admit(self, attributes: Attributes) -> list[Operation]:
        """Admit one write. Returns what must be kept or held together with it; raises ``StatusError`` to refuse."""
        order, name = self._orders.get(attributes.place, self._others), ""
        try:
            for name, admit in order.changing:  # noqa: B007 - the one that refuses
                await admit(attributes)
            if attributes.changed:
                attributes.round += 1
                for name, admit in order.changing:  # noqa: B007
                    await admit(attributes)
            for name, admit in order.settling:  # noqa: B007
                await admit(attributes)
            for name, validate in order.validate:  # noqa: B007
                attributes.together += await validate(attributes)
        except StatusError as refusal:
            attributes.notes.append(Decision(Verdict.DENY, f"admission/{name}", refusal.message, refusal.rule))
            raise
        return attributes.together


def _has_say(plugin: Plugin, round_: str) -> bool:
    """Most plugins have one in one of the rounds only."""
    return getattr(type(plugin), round_) is not getattr(NoopPlugin, round_)
