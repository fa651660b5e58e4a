"""``/metrics`` of a server with several worker processes tells what all of them have counted, whoever is asked (AD7)."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.apiserver import OwnApiserver, running
from tests.databases import migrated
from tests.gateway.test_faults import program_of
from tests.speaking import Speaker
from tests.story.product import eventually

WORKERS = 2
CONFIGMAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def server() -> Iterator[OwnApiserver]:
    with migrated("figures") as database, running(database, workers=WORKERS) as server:
        yield server


def figures(speaker: Speaker, name: str, at: str = "", *, up: int | None = WORKERS, **labels: str) -> dict[str, float]:
    """By worker, the sum of the samples of this name that have these labels, once so many processes are heard of.

    One that has no turn in time is left out. Without ``up``, of those that are heard of at once.
    """
    while sum(samples(text := metrics(speaker, at), "tenantry_worker_up").values()) != up and up is not None:
        time.sleep(0.05)
    return samples(text, name, **labels)


def metrics(speaker: Speaker, at: str) -> str:
    """Asked over a connection of its own."""
    asking = speaker.at(at)
    try:
        answer = asking.send("GET", "/metrics")
    finally:
        asking.close()
    assert answer.status == 200
    return answer.body


def samples(text: str, name: str, **labels: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for labelled, value in re.findall(rf"^{name}\{{(.*)\}} (\S+)$", text, re.MULTILINE):
        given = dict(re.findall(r'(\w+)="([^"]*)"', labelled))
        if labels.items() <= given.items():
            found[given["worker"]] = found.get(given["worker"], 0) + float(value)
    return found


def counted(server: OwnApiserver, tenant: str) -> dict[str, float]:
    return figures(server.admin, "tenantry_tenant_requests_total", tenant=tenant)


def reader_of_figures(server: OwnApiserver) -> Speaker:
    """A program of the tenant ``counted``, which may view its space and its figures."""
    space = server.tenant("counted")
    program = program_of(server, space)
    rbac, group = "/apis/rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    role = {"metadata": {"name": "figures"}, "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}
    assert space.send("POST", f"{rbac}/clusterroles", role).status == 201
    binding = {
        "metadata": {"name": "figures"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "figures"},
    }
    assert space.send("POST", f"{rbac}/clusterrolebindings", binding).status == 201
    return program


def ask(space: Speaker, times: int) -> None:
    """Each over a connection of its own, so that the kernel spreads them over the processes."""
    for _ in range(times):
        asking = space.at("/clusters/root:counted")
        assert asking.send("GET", CONFIGMAPS).status == 200
        asking.close()


def test_every_request_is_counted_once_whichever_process_answers_and_whichever_is_asked(server: OwnApiserver) -> None:
    space = reader_of_figures(server)
    sent = 0
    while sent == 0 or len(counted(server, "counted")) < WORKERS:
        ask(space, 10)
        sent += 10
    eventually(lambda: sum(counted(server, "counted").values()) == sent)
    for _ in range(20):
        assert sum(counted(server, "counted").values()) == sent
    by_kind = figures(server.admin, "apiserver_request_total", verb="list", resource="configmaps", code="200")
    assert sum(by_kind.values()) == sent
    # The tenant is told of all of its own as well: each question is one more, which is counted when it is answered.
    whole = 0
    while whole < 5:
        before = counted(server, "counted")
        mine = figures(space, "tenantry_tenant_requests_total", "/clusters/root:counted", up=None)
        now = sum(before.values()) + 1
        eventually(lambda now=now: sum(counted(server, "counted").values()) == now)
        if mine.keys() == before.keys():
            assert mine == before
            whole += 1


def test_the_text_is_one_that_prometheus_reads(server: OwnApiserver) -> None:
    """Samples of one name stand together, under its type, and none is there twice."""
    lines = server.admin.send("GET", "/metrics").body.splitlines()
    types = [line for line in lines if line.startswith("#")]
    assert len(types) == len(set(types))
    samples = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(samples) == len(set(samples))
    family = ""
    for line in lines:
        if line.startswith("#"):
            family = line.split()[2]
        else:
            assert line.startswith(family)
            assert 'worker="' in line


def children(process: int) -> list[int]:
    """The worker processes of a supervisor."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return [child for child in found if is_worker(child)]


def is_worker(process: int) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False  # it has been gone since it was listed


@contextmanager
def frozen(process: int) -> Iterator[None]:
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def test_a_process_that_is_frozen_or_gone_is_said_to_be_so_and_its_follower_begins_anew(server: OwnApiserver) -> None:
    supervisor = server.processes[0].pid
    workers = children(supervisor)
    assert len(workers) == WORKERS
    up = {"0": 1.0, "1": 1.0}
    assert figures(server.admin, "tenantry_worker_up") == up
    with frozen(workers[0]):
        told = figures(server.admin, "tenantry_worker_up", up=1)
        assert sorted(told.values()) == [0.0, 1.0]
        (away,) = (number for number, state in told.items() if not state)
        assert away not in figures(server.admin, "tenantry_store_revision", up=1)
    eventually(lambda: figures(server.admin, "tenantry_worker_up") == up)
    before = counted(server, "counted")
    os.kill(workers[0], signal.SIGKILL)
    eventually(lambda: workers[0] not in (now := children(supervisor)) and len(now) == WORKERS)
    eventually(lambda: figures(server.admin, "tenantry_worker_up") == up)
    after = counted(server, "counted")
    (stayed,) = (number for number in up if number != away)
    assert after[stayed] == before[stayed]
    assert away not in after
