"""Every answer to the script agrees with a real kube-apiserver's, or is on the list of differences (TS15).

With ``KUBEBUILDER_ASSETS`` the real server is asked now; without it, its recorded answers count
(``tests.conformance.recording`` writes them).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import kubeapiserver
from tests.apiserver import OwnApiserver
from tests.conformance.conversation import Exchange, differences
from tests.conformance.recording import hold, recorded
from tests.conformance.script import flagged, sections
from tests.speaking import Speaker

ALLOWED: list[dict[str, str]] = yaml.safe_load((Path(__file__).parent / "differences.yaml").read_text())
OPEN = frozenset((Path(__file__).parent / "open.txt").read_text().splitlines())
"""What is not equal yet, a line each: request and path. It may only become shorter."""

OLD_ETCD = "RequestWatchProgress is disabled"
"""With an etcd before 3.4.31 or 3.5.13 a watch that begins with what is there ends so, if other kinds were written since."""

_answers: dict[str, list[Exchange]] = {}
_asked: set[tuple[str, bool]] = set()
_met: set[int] = set()
"""Which entries of the list some answer has needed; the first that fits counts."""

_UNSAID: dict[str, Any] = {"status": 0, "body": "not asked"}

SECTIONS = {name: (section, system) for name, section, system in sections()}


@pytest.fixture(scope="module")
def space(apiserver: OwnApiserver) -> Speaker:
    """A tenant's space."""
    return apiserver.tenant("equal")


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest) -> Speaker | None:
    """The real server where there is one."""
    return request.getfixturevalue("kube_apiserver").admin if kubeapiserver.PRESENT else None


@pytest.mark.parametrize("name", [name for name, (_, system) in SECTIONS.items() if not system])
def test_a_tenants_space_answers_as_the_real_server(name: str, space: Speaker, real: Speaker | None) -> None:
    assert _found(name, space, real) == []
    _asked.add((name, False))


@pytest.mark.parametrize("name", SECTIONS)
def test_the_system_space_answers_as_the_real_server(name: str, apiserver: OwnApiserver, real: Speaker | None) -> None:
    assert _found(name, apiserver.admin, real) == []
    _asked.add((name, True))


def test_every_difference_of_the_list_is_met() -> None:
    """What has come to be equal is taken off the list; ``test_flags`` needs the entries about its own sections."""
    every = {(name, True) for name in SECTIONS} | {
        (name, False) for name, (_, system) in SECTIONS.items() if not system
    }
    if _asked != every:
        pytest.skip("only some sections were asked here")
    others = tuple(f"^{name}" for name, _, _ in flagged())
    unmet = [entry for number, entry in enumerate(ALLOWED) if number not in _met]
    assert [entry for entry in unmet if not entry.get("request", "").startswith(others)] == []


def _found(name: str, ours: Speaker, real: Speaker | None) -> list[str]:
    section, _ = SECTIONS[name]
    if name not in _answers:
        # Asked a second time, the real one would meet what it was told before.
        _answers[name] = _told(real, name) if real is not None else recorded(name)
    expected = _answers[name]
    return list(unlisted(name, hold(ours, name, section), expected))


def _told(real: Speaker, name: str) -> list[Exchange]:
    """What the real one answers; what an older etcd keeps it from answering, as it was recorded with a newer."""
    said = hold(real, name, SECTIONS[name][0])
    kept = {exchange.request: exchange for exchange in recorded(name)} if OLD_ETCD in str(said) else {}
    return [kept[exchange.request] if OLD_ETCD in str(exchange.answer) else exchange for exchange in said]


def unlisted(name: str, ours: list[Exchange], theirs: list[Exchange]) -> Iterator[str]:
    """What differs and stands in neither list, in words."""
    for request, path, mine, other in unequal(name, ours, theirs):
        if line(name, request, path) not in OPEN:
            yield f"{request}\n    {path}: {_shown(mine)} instead of {_shown(other)}"


def unequal(name: str, ours: list[Exchange], theirs: list[Exchange]) -> Iterator[tuple[str, str, Any, Any]]:
    """Every difference that is not on purpose: (request, path, ours, theirs)."""
    mine_by, theirs_by = _numbered(ours), _numbered(theirs)
    for key in {**mine_by, **theirs_by}:
        our, their = mine_by.get(key, _UNSAID), theirs_by.get(key, _UNSAID)
        for path, mine, other in _compared(our, their):
            if not _listed(f"{name} {key[0]}", path, mine, other):
                yield key[0], path, mine, other


def _numbered(exchanges: list[Exchange]) -> dict[tuple[str, int], dict[str, Any]]:
    """The answers by request and how often it was asked before: an answer may decide what is asked next."""
    count: Counter[str] = Counter()
    answers = {}
    for exchange in exchanges:
        answers[exchange.request, count[exchange.request]] = exchange.answer
        count[exchange.request] += 1
    return answers


def line(name: str, request: str, path: str) -> str:
    """How a difference is written in ``open.txt``."""
    return f"{name} | {request} | {path}".replace("\n", " ")


def _compared(ours: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """The differences; of answers with different statuses only that, with what was said."""
    if ours["status"] != theirs["status"]:
        return [("status", _outcome(ours), _outcome(theirs))]
    return differences(ours, theirs)


def _outcome(answer: dict[str, Any]) -> str:
    body = answer["body"]
    return f"{answer['status']} {body.get('message', '') if isinstance(body, dict) else body}".strip()


def _listed(request: str, path: str, mine: Any, other: Any) -> bool:
    found = next((number for number, entry in enumerate(ALLOWED) if _means(entry, request, path, mine, other)), None)
    if found is not None:
        _met.add(found)
    return found is not None


def _means(entry: dict[str, str], request: str, path: str, mine: Any, other: Any) -> bool:
    return bool(
        re.search(entry.get("request", ""), request)
        and re.fullmatch(entry.get("path", ".*"), path)
        and re.search(entry.get("ours", ""), str(mine), re.DOTALL)
        and re.search(entry.get("theirs", ""), str(other), re.DOTALL)
        and _agree(entry.get("same"), mine, other)
    )


def _agree(part: str | None, mine: Any, other: Any) -> bool:
    """Whether both values have this part, and say the same in its groups."""
    if part is None:
        return True
    found = [re.search(part, str(value), re.DOTALL) for value in (mine, other)]
    return all(found) and found[0].groups() == found[1].groups()  # type: ignore[union-attr]


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) < 1200 else f"{text[:1200]}…"
