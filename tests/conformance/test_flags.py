"""What an operator's flags do agrees with a real kube-apiserver that is started with the same ones (TS15, AZ3, AD7)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import kubeapiserver
from tests.apiserver import ROOT, OwnApiserver, running
from tests.conformance.conversation import Exchange
from tests.conformance.recording import hold, recorded
from tests.conformance.script import flagged
from tests.conformance.script.flagged import MODES, flags
from tests.conformance.test_equality import unlisted
from tests.databases import migrated

SECTIONS = {name: (section, system) for name, section, system in flagged()}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The flags that both servers have."""
    return list(flags(tmp_path_factory.mktemp("flags")))


@pytest.fixture(scope="module")
def ours(told: list[str]) -> Iterator[OwnApiserver]:
    """A server with these flags, whose tenants' pods are free as in Kubernetes."""
    free = f"--admission-control-config-file={ROOT / 'tests' / 'openpolicies.yaml'}"
    with migrated("flags") as database, running(database, flags=(MODES, free, *told)) as server:
        yield server


@pytest.fixture(scope="module")
def answers(told: list[str]) -> dict[str, list[Exchange]]:
    """What the real server says where there is one, else what it said."""
    if not kubeapiserver.PRESENT:
        return {name: recorded(name) for name in SECTIONS}
    with kubeapiserver.running(authorization=[MODES], flags=told) as server:
        return {name: hold(server.admin, name, section) for name, (section, _) in SECTIONS.items()}


@pytest.mark.parametrize("name", SECTIONS)
def test_the_system_space_does_as_the_real_server(
    name: str, ours: OwnApiserver, answers: dict[str, list[Exchange]]
) -> None:
    assert list(unlisted(name, hold(ours.admin, name, SECTIONS[name][0]), answers[name])) == []


@pytest.mark.parametrize("name", [name for name, (_, system) in SECTIONS.items() if not system])
def test_a_tenants_space_does_as_the_real_server(
    name: str, ours: OwnApiserver, answers: dict[str, list[Exchange]]
) -> None:
    assert list(unlisted(name, hold(ours.tenant("flags"), name, SECTIONS[name][0]), answers[name])) == []
