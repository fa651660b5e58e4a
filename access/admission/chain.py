"""The plugins in order, first all that change, then all that refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from access.admission.base import Attributes, NoopPlugin, Plugin
from kube.authorization.decisions import Decision, Verdict
from kube.objects.warnings.owners import merge_owners
from kube.requests.logicalclusters import ROOT
from kube.requests.status import StatusError
from store.types import Operation

_OUTSIDE: Final = frozenset({"MutatingAdmissionPolicy", "MutatingAdmissionWebhook"})
"""Plugins that change objects as they are told: all up to the last of them have another turn when they did."""


_Writes = tuple[tuple[str, str] | None, str, bool]
"""Writes that the same plugins are asked about: of a kind that any of them names, an operation, in the system space or not."""


class _Order:
    """Who is asked about the writes of one kind: twice when somebody outside has changed the object, once, and at last."""

    def __init__(self, plugins: Sequence[Plugin], kind: tuple[str, str] | None) -> None:
        first = [plugin for plugin in plugins if plugin.changes is None or kind in plugin.changes]
        changing = [(plugin.name, plugin.admit) for plugin in first if _has_say(plugin, "admit")]
        ends = max((index for index, (name, _) in enumerate(changing, 1) if name in _OUTSIDE), default=0)
        self.changing, self.settling = changing[:ends], changing[ends:]
        self.validate = [(plugin.name, plugin.validate) for plugin in plugins if _has_say(plugin, "validate")]


class AdmissionChain:
    """Runs the plugins that a write concerns. Who refuses one is noted, with the reason and the rule (AZ11).

    Those that refuse see each owner of the object once, whoever named it again.
    """

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self._plugins = tuple(plugins)
        self._named = frozenset(kind for plugin in plugins for kind in (*(plugin.kinds or ()), *(plugin.changes or ())))
        self._orders: dict[_Writes, _Order] = {}
        """Whom writes concern, worked out when there is the first of them."""

    async def admit(self, attributes: Attributes) -> list[Operation]:
        """Admit one write. Returns what must be kept or held together with it; raises ``StatusError`` to refuse."""
        place = attributes.place
        writes = (place if place in self._named else None, attributes.operation, attributes.cluster == ROOT)
        order, name = self._orders.get(writes) or self._order_of(writes), ""
        try:
            for name, admit in order.changing:  # noqa: B007 - the one that refuses
                await admit(attributes)
            if attributes.changed:
                attributes.round += 1
                for name, admit in order.changing:  # noqa: B007
                    await admit(attributes)
            for name, admit in order.settling:  # noqa: B007
                await admit(attributes)
            if attributes.object is not None:
                attributes.warnings += merge_owners(attributes.object, admitted=True)
            for name, validate in order.validate:  # noqa: B007
                attributes.together += await validate(attributes)
        except StatusError as refusal:
            attributes.notes.append(Decision(Verdict.DENY, f"admission/{name}", refusal.message, refusal.rule))
            raise
        return attributes.together

    def _order_of(self, writes: _Writes) -> _Order:
        concerned = [plugin for plugin in self._plugins if _concerns(plugin, *writes)]
        order = self._orders[writes] = _Order(concerned, writes[0])
        return order


def _concerns(plugin: Plugin, kind: tuple[str, str] | None, operation: str, in_system_space: bool) -> bool:
    return (
        (plugin.kinds is None or kind in plugin.kinds)
        and (plugin.operations is None or operation in plugin.operations)
        and (in_system_space or not plugin.system_only)
    )


def _has_say(plugin: Plugin, round_: str) -> bool:
    """Most plugins have one in one of the rounds only."""
    return getattr(type(plugin), round_) is not getattr(NoopPlugin, round_)
