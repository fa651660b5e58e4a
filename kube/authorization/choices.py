"""Which things selectors choose by their labels, without looking at each thing for each selector."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kube.requests.labelselectors import Operator, Selector

LOOKS_MAX: Final = 50_000
"""Comparisons that one question makes, of one requirement with one thing. Tenants write both, in any number (DOS-03)."""

_EQUAL: Final = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN})
_THERE: Final = frozenset({Operator.EXISTS, Operator.GREATER, Operator.LESS})


class TooManyLooks(Exception):
    """The question goes through more than ``LOOKS_MAX``."""


class Choices:
    """Things by name, to be chosen by their labels."""

    def __init__(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        self.labels = {name: labels[name] for name in sorted(labels)}
        self._by_label: dict[tuple[str, str], list[str]] = {}
        self._by_key: dict[str, list[str]] = {}
        for name, own in self.labels.items():
            for key, value in own.items():
                self._by_label.setdefault((key, value), []).append(name)
                self._by_key.setdefault(key, []).append(name)

    def candidates(self, selector: Selector) -> Collection[str]:
        """The fewest among which those are that it chooses, in order: by one label that they must have, or all."""
        if selector.never:
            return ()
        fewest: Collection[str] = self.labels
        for requirement in selector.requirements:
            if requirement.operator in _EQUAL:
                lists = [self._by_label.get((requirement.key, value), []) for value in requirement.values]
                narrowed = lists[0] if len(lists) == 1 else sorted(name for each in lists for name in each)
            elif requirement.operator in _THERE:
                narrowed = self._by_key.get(requirement.key, [])
            else:
                continue
            fewest = min(fewest, narrowed, key=len)
        return fewest


class Question:
    """What is chosen from some choices by one selector after another, each name once and in order."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        self._left = LOOKS_MAX
        self._asked: set[Selector] = set()

    def chosen(self, selectors: Collection[Selector], seen: Collection[str]) -> list[str]:
        """The names that these choose and that are not ``seen``. Raises ``TooManyLooks``."""
        found: dict[str, None] = {}
        for selector in selectors:
            if selector in self._asked:
                continue
            self._asked.add(selector)
            candidates = self._choices.candidates(selector)
            self._left -= len(candidates) * (1 + len(selector.requirements))
            if self._left < 0:
                raise TooManyLooks
            labels = self._choices.labels
            found |= dict.fromkeys(
                name for name in candidates if name not in seen and name not in found and selector.matches(labels[name])
            )
        return list(found)
