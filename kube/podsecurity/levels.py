"""Levels and versions of the Pod Security Standards, and what the labels of a namespace ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from kube.requests.fielderrors import invalid, key_path
from kube.requests.status import Cause

_PREFIX: Final = "pod-security.kubernetes.io/"
_LABELS: Final = "metadata.labels"
_VERSION: Final = re.compile(r"v1\.([0-9]|[1-9][0-9]{1,18})")
_MINOR_MAX: Final = 2**63 - 1


class Level(IntEnum):
    """How strict a standard is; a greater one is stricter."""

    PRIVILEGED = 0
    BASELINE = 1
    RESTRICTED = 2


@dataclass(frozen=True, slots=True)
class Standard:
    """A level of one version. ``minor`` is that of Kubernetes 1.x; ``None`` is the latest."""

    level: Level = Level.PRIVILEGED
    minor: int | None = None

    def __str__(self) -> str:
        return f"{self.level.name.lower()}:{'latest' if self.minor is None else f'v1.{self.minor}'}"


_NONE: Final = Standard()


@dataclass(frozen=True, slots=True)
class PodPolicy:
    """What is asked of the pods of a namespace, for each mode."""

    enforce: Standard = _NONE
    audit: Standard = _NONE
    warn: Standard = _NONE

    @property
    def is_privileged(self) -> bool:
        """Whether no mode asks for anything."""
        return not (self.enforce.level or self.audit.level or self.warn.level)

    def means(self, other: PodPolicy) -> bool:
        """Whether both ask for the same: where nothing is asked for, the version does not matter."""
        modes = ((self.enforce, other.enforce), (self.audit, other.audit), (self.warn, other.warn))
        return all(mine == theirs or not (mine.level or theirs.level) for mine, theirs in modes)


def policy_of(labels: Mapping[str, str], defaults: PodPolicy) -> tuple[PodPolicy, list[Cause]]:
    """The policy of a namespace with these labels, and what is wrong with them.

    A level that is none enforces ``restricted``, and neither audits nor warns; a version that is none is the latest.
    """
    causes: list[Cause] = []
    found = []
    for mode, standard in (("enforce", defaults.enforce), ("audit", defaults.audit), ("warn", defaults.warn)):
        level, version = labels.get(_PREFIX + mode), labels.get(f"{_PREFIX}{mode}-version")
        if level is None and version is None:
            found.append(standard)
            continue
        asked, minor = standard.level, standard.minor
        if level is not None:
            try:
                asked = parse_level(level)
            except ValueError as error:
                causes.append(invalid(key_path(_LABELS, _PREFIX + mode), level, str(error)))
                asked = Level.RESTRICTED if mode == "enforce" else Level.PRIVILEGED
        if version is not None:
            try:
                minor = parse_version(version)
            except ValueError as error:
                causes.append(invalid(key_path(_LABELS, f"{_PREFIX}{mode}-version"), version, str(error)))
                minor = None
        found.append(Standard(asked, minor))
    policy = PodPolicy(*found)
    enforced = _is_level(labels.get(_PREFIX + "enforce"))
    if _PREFIX + "warn" not in labels and enforced and policy.enforce.level > policy.warn.level:
        minor = policy.warn.minor if _PREFIX + "warn-version" in labels else policy.enforce.minor
        policy = replace(policy, warn=Standard(policy.enforce.level, minor))
    return policy, causes


def labelled_modes(labels: Mapping[str, str]) -> tuple[str, ...]:
    """The modes that a namespace's labels name a level or a version for."""
    modes = ("enforce", "audit", "warn")
    return tuple(mode for mode in modes if _PREFIX + mode in labels or f"{_PREFIX}{mode}-version" in labels)


def parse_level(text: str) -> Level:
    """A level by its name. Raises ``ValueError`` in Kubernetes' words."""
    if not _is_level(text):
        raise ValueError("must be one of privileged, baseline, restricted")
    return Level[text.upper()]


def parse_version(text: str) -> int | None:
    """The minor version of ``v1.x``, or ``None`` for ``latest``. Raises ``ValueError`` in Kubernetes' words."""
    if text == "latest":
        return None
    matched = _VERSION.fullmatch(text)
    if matched is None or int(matched[1]) > _MINOR_MAX:
        raise ValueError('must be "latest" or "v1.x"')
    return int(matched[1])


def _is_level(text: str | None) -> bool:
    return text in ("privileged", "baseline", "restricted")
