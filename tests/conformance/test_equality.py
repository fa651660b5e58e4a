"""Every answer to the script agrees with a real kube-apiserver's, or is on the list of differences (TS15).

With ``KUBEBUILDER_ASSETS`` the real server is asked now; without it, its recorded answers count
(``tests.conformance.recording`` writes them).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import kubeapiserver
from tests.apiserver import OwnApiserver
from tests.conformance.conversation import Exchange, differences
from tests.conformance.recording import hold, recorded
from tests.conformance.script import sections
from tests.speaking import Speaker

ALLOWED: list[dict[str, str]] = yaml.safe_load((Path(__file__).parent / "differences.yaml").read_text())
OPEN = frozenset((Path(__file__).parent / "open.txt").read_text().splitlines())
"""What is not equal yet, a line each: request and path. It may only become shorter."""

SECTIONS = {name: (section, system) for name, section, system in sections()}
pytestmark = pytest.mark.xdist_group("apiserver")


@pytest.fixture(scope="module")
def space(apiserver: OwnApiserver) -> Speaker:
    """A tenant's space."""
    return apiserver.tenant("equal")


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest) -> Speaker | None:
    """The real server where there is one."""
    return request.getfixturevalue("kube_apiserver").admin if kubeapiserver.PRESENT else None


@pytest.mark.parametrize("name", SECTIONS)
def test_a_tenants_space_answers_as_the_real_server(name: str, space: Speaker, real: Speaker | None) -> None:
    if SECTIONS[name][1]:
        pytest.skip("a kind of the system space")
    assert _found(name, space, real) == []


@pytest.mark.parametrize("name", SECTIONS)
def test_the_system_space_answers_as_the_real_server(name: str, apiserver: OwnApiserver, real: Speaker | None) -> None:
    assert _found(name, apiserver.admin, real) == []


def _found(name: str, ours: Speaker, real: Speaker | None) -> list[str]:
    section, _ = SECTIONS[name]
    expected = hold(real, name, section) if real is not None else recorded(name)
    return list(_unlisted(name, hold(ours, name, section), expected))


def _unlisted(name: str, ours: list[Exchange], theirs: list[Exchange]) -> Iterator[str]:
    if [exchange.request for exchange in ours] != [exchange.request for exchange in theirs]:
        yield f"the recording of {name} is of another script: run python -m tests.conformance.recording {name}"
        return
    for our, their in zip(ours, theirs, strict=True):
        for path, mine, other in _compared(our.answer, their.answer):
            if not _listed(f"{name} {our.request}", path, mine, other) and line(name, our.request, path) not in OPEN:
                yield f"{our.request}\n    {path}: {_shown(mine)} instead of {_shown(other)}"


def line(name: str, request: str, path: str) -> str:
    """How a difference is written in ``open.txt``."""
    return f"{name} | {request} | {path}"


def _compared(ours: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """The differences; of answers with different statuses only that, with what was said."""
    if ours["status"] != theirs["status"]:
        return [("status", _outcome(ours), _outcome(theirs))]
    return differences(ours, theirs)


def _outcome(answer: dict[str, Any]) -> str:
    body = answer["body"]
    return f"{answer['status']} {body.get('message', '') if isinstance(body, dict) else body}".strip()


def _listed(request: str, path: str, mine: Any, other: Any) -> bool:
    return any(
        re.search(entry.get("request", ""), request)
        and re.fullmatch(entry.get("path", ".*"), path)
        and re.search(entry.get("ours", ""), str(mine), re.DOTALL)
        and re.search(entry.get("theirs", ""), str(other), re.DOTALL)
        for entry in ALLOWED
    )


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) < 1200 else f"{text[:1200]}…"
