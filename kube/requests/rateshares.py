"""The part that one of several processes has in a rate which all of them share (AD6).

Every process says what it wants of each rate, as a part of the whole: what was asked of it lately, and all of it once
anything had to be refused. From what all have said each finds its own part, as the others find theirs.

1. While nobody wants more than an equal part, everybody has one.
2. Else whoever said nothing keeps its part of ``RESERVE``, and the rest goes to those who want it: what little is wanted
   is given, those who want more have equal parts of what is left, and what nobody wants is theirs as well.
3. The parts are one whole together, always: never does a part that somebody gives up stand for two.
4. What was last heard stands until it is heard again: nobody's silence counts while nothing can be heard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

RESERVE: Final = 0.1
"""What is kept for processes that want nothing yet, so that whoever comes to one of them next is served."""

SILENT_SECONDS: Final = 10.0
"""After which a process that says nothing has ended."""


def part_of(wanted: float, others: Iterable[float], processes: int) -> float:
    """The part of one that wants so much, of as many ``processes``; of ``others`` those that want anything are told."""
    all_wanted = [wanted, *others]
    if max(all_wanted) * processes <= 1:
        return 1 / processes
    least = RESERVE / processes
    needs = sorted(each - least for each in all_wanted if each > least)
    left = 1 - RESERVE
    for number, need in enumerate(needs):
        equal = left / (len(needs) - number)
        if need > equal:
            return least + min(max(wanted - least, 0), equal)
        left -= need
    return wanted + left / len(needs) if wanted > least else least


@dataclass(slots=True)
class _Said:
    wanted: dict[str, float] = field(default_factory=dict)
    at: float = 0.0


class RateShares:
    """What all living processes have said they want of each rate, as this one, ``process``, has heard it.

    There are as many ``processes`` until the first is heard. Moments are seconds of any clock.
    """

    def __init__(self, process: str, processes: int) -> None:
        self.process = process
        self._begun_with = processes
        self._said: dict[str, _Said] = {}

    @property
    def living(self) -> int:
        """How many processes share the rates."""
        return len(self._said) or self._begun_with

    def part(self, rate: str) -> float:
        """This process' own part in a rate."""
        wanted, others = 0.0, []
        for process, said in self._said.items():
            if process == self.process:
                wanted = said.wanted.get(rate, 0.0)
            elif rate in said.wanted:
                others.append(said.wanted[rate])
        return part_of(wanted, others, self.living)

    def worth_telling(self, wanted: Mapping[str, float]) -> dict[str, float]:
        """What has to be told: whoever wants no more than is kept for those who want nothing may as well be one of them."""
        least = RESERVE / self.living
        return {rate: part for rate, part in wanted.items() if part > least}

    def hear(
        self, process: str, wanted: Mapping[str, float], now: float, *, further: bool = False
    ) -> Sequence[str] | None:
        """Take down what a process says, ``further`` beside what it has said before: the rates whose parts may be others now.

        ``None`` stands for all of them: there is one process more.
        """
        known = self._said.get(process)
        said = self._said.setdefault(process, _Said())
        before = {} if further else said.wanted
        said.wanted, said.at = {**said.wanted, **wanted} if further else dict(wanted), now
        if known is None:
            return None
        return [rate for rate in {**before, **wanted} if before.get(rate) != wanted.get(rate)]

    def leave(self, process: str) -> bool:
        """Whether there is one process less now."""
        return self._said.pop(process, None) is not None

    def bury(self, now: float) -> bool:
        """Whether any process was silent for so long that it has ended; its part is the others' now."""
        ended = [process for process, said in self._said.items() if said.at < now - SILENT_SECONDS]
        for process in ended:
            del self._said[process]
        return bool(ended)

    def excuse(self, now: float) -> None:
        """Nothing could be heard up to ``now``: nobody has been silent."""
        for said in self._said.values():
            said.at = now
