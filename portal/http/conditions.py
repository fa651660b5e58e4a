"""Conditional requests (RFC 9110, section 13): entity tags, and what is refused because of them (GW14)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from kube.requests.status import BadRequest, StatusError

_TAG: Final = re.compile(r'(W/)?"([\x21\x23-\x7e]*)"')
_LIST: Final = re.compile(rf"\s*{_TAG.pattern}\s*(?:,\s*{_TAG.pattern}\s*)*")


class ChangedMeanwhile(StatusError):
    """412: the object is no longer the one that ``If-Match`` names (RFC 9110, 13.1.1)."""

    code = 412
    reason = "PreconditionFailed"


def entity_tag(shown: Any, *, settable: Collection[str] = (), form: str = "") -> str:
    """The strong tag of what is shown: another one whenever another byte is.

    It begins with what ``If-Match`` is about: of a mapping the ``settable`` members, where the rest moves by itself.
    ``form`` tells the same in another format apart.
    """
    whole = _digest(shown)
    own = _digest({name: shown[name] for name in settable}) if settable and isinstance(shown, Mapping) else whole
    return '"' + ".".join(part for part in (own, whole if own != whole else "", form) if part) + '"'


def is_known(if_none_match: str, tag: str) -> bool:
    """Whether the sender has it already (``If-None-Match``, compared weakly). Raises ``BadRequest``."""
    named = _named(if_none_match)
    return named is None or tag.strip('"') in {opaque for _, opaque in named}


def require_match(if_match: str, tag: str) -> None:
    """Raises ``ChangedMeanwhile`` where the sender has seen something else, ``BadRequest`` for no list of tags."""
    named = _named(if_match)
    if named is not None and _own(tag.strip('"')) not in {_own(opaque) for weak, opaque in named if not weak}:
        raise ChangedMeanwhile(
            "It has changed since you read it: read it again, and send the change with the new ETag as If-Match."
        )


def _named(header: str) -> list[tuple[str, str]] | None:
    """The tags of a header, ``None`` for ``*``."""
    if header.strip() == "*":
        return None
    if len(header) > 4096 or not _LIST.fullmatch(header):
        raise BadRequest('Entity tags are quoted and separated by commas, as "3f0a…"; * means any.')
    return _TAG.findall(header)


def _own(opaque: str) -> str:
    return opaque.split(".", 1)[0]


def _digest(shown: Any) -> str:
    text = json.dumps(shown, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
