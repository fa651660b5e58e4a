"""Which things selectors choose by their labels, without looking at each thing for each selector."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from kube.requests.labelselectors import Operator, Requirement, Selector

LOOKS_MAX: Final = 50_000
"""Comparisons that one question makes, of one requirement with one thing. Tenants write both, in any number (DOS-03)."""

_SORTED_FOR_ONE_LOOK: Final = 8
"""Things that are sorted by the value of a label while one is compared with a requirement."""

_SORTED_MAX: Final = 400_000
"""Things that are kept sorted by all labels together: what has been sorted before is forgotten then."""

_EQUAL: Final = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN})
_THERE: Final = frozenset({Operator.EXISTS, Operator.GREATER, Operator.LESS})

_ByValue = Mapping[str, list[str]]


class TooManyLooks(Exception):
    """The question goes through more than ``LOOKS_MAX``."""


class Choices:
    """Things by name, to be chosen by their labels, as ``labels_of`` finds them: nobody looks at labels that no selector names."""

    def __init__(self, things: Mapping[str, Any], labels_of: Callable[[Any], Mapping[str, str]]) -> None:
        self._things = things
        self._labels_of = labels_of
        self._sorted: dict[str, _ByValue] = {}

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[str]:
        return iter(self._things)

    def labels(self, name: str) -> Mapping[str, str]:
        """Those of one thing."""
        return self._labels_of(self._things[name])

    def is_sorted(self, key: str) -> bool:
        """Whether ``by_value`` costs nothing."""
        return key in self._sorted

    def by_value(self, key: str) -> _ByValue:
        """The names of the things that have a label, by its value."""
        found = self._sorted.get(key)
        if found is None:
            by_value: dict[str, list[str]] = {}
            for name, thing in self._things.items():
                value = self._labels_of(thing).get(key)
                if value is not None:
                    by_value.setdefault(value, []).append(name)
            if (len(self._sorted) + 1) * len(self) > _SORTED_MAX:
                self._sorted.clear()
            found = self._sorted[key] = by_value
        return found


class Question:
    """What is chosen from some choices by one selector after another, each name once."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._left = LOOKS_MAX
        self._asked: set[Selector] = set()

    def chosen(self, selectors: Collection[Selector], seen: Collection[str]) -> list[str]:
        """The names that these choose and that are not ``seen``, by selector and then in order. Raises ``TooManyLooks``."""
        found: dict[str, None] = {}
        for selector in selectors:
            if selector in self._asked:
                continue
            self._asked.add(selector)
            if selector.never:
                continue
            labels = self._choices.labels
            names = [
                name
                for name in self._candidates(selector)
                if name not in seen and name not in found and selector.matches(labels(name))
            ]
            found |= dict.fromkeys(sorted(names))
        return list(found)

    def _candidates(self, selector: Selector) -> Iterable[str]:
        """The fewest among which those are that it chooses: by one label that they must have, or all."""
        many, fewest = len(self._choices), [self._choices]
        for requirement in selector.requirements:
            if requirement.operator in _EQUAL or requirement.operator in _THERE:
                narrowed = self._narrowed(requirement)
                if (size := sum(map(len, narrowed))) < many:
                    many, fewest = size, narrowed
        self._look(many * (1 + len(selector.requirements)))
        return chain.from_iterable(fewest)

    def _narrowed(self, requirement: Requirement) -> list[Any]:
        """Those that have the label, and one of the values where they are named."""
        if not self._choices.is_sorted(requirement.key):
            self._look(len(self._choices) // _SORTED_FOR_ONE_LOOK)
        by_value = self._choices.by_value(requirement.key)
        asked = by_value if requirement.operator in _THERE else requirement.values
        self._look(len(asked) // _SORTED_FOR_ONE_LOOK)
        if requirement.operator in _THERE:
            return list(by_value.values())
        return [by_value[value] for value in requirement.values if value in by_value]

    def _look(self, times: int) -> None:
        self._left -= times
        if self._left < 0:
            raise TooManyLooks
