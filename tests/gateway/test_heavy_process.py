"""The process beside the server, for requests that would hold its loop: how it begins and ends, and what it may hold (DOS-03)."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import time
from pathlib import Path

import orjson

from gateway.process.runtime import Runtime
from gateway.process.streams import PROMPT_SECONDS
from kube.requests.status import Forbidden
from tests.gateway.conftest import Server, start
from tests.gateway.definitions import CRDS, definition
from tests.gateway.overloading import (
    JSON,
    NAMESPACED,
    Expensive,
    ask,
    runtime,
)

__all__ = ["runtime"]


def _small(name: str, text: str = "") -> Expensive:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}}
    return Expensive("small", "POST", f"{NAMESPACED}/configmaps", JSON, orjson.dumps(body))


def _large(name: str) -> Expensive:
    data = {f"k{number}": "" for number in range(5_000)}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}
    return Expensive("large", "POST", f"{NAMESPACED}/configmaps", JSON, orjson.dumps(body))


def _has_ended(child: int) -> bool:
    """With all of its threads."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


async def test_the_end_of_its_process_costs_one_heavy_request_alone(runtime: Runtime) -> None:
    """DOS-03: killed while a request is in it, and while none is; the next one has another process."""
    heavy = runtime.heavy
    assert heavy
    lost = asyncio.ensure_future(ask(runtime, _large("lost")))
    while heavy.pid is None:
        await asyncio.sleep(0.01)
    assert (await ask(runtime, _small("meanwhile"))).status == 201
    os.kill(heavy.pid, signal.SIGKILL)
    answer = await lost
    assert (answer.status, orjson.loads(answer.body)["reason"]) == (500, "InternalError")
    assert not dict(answer.headers).get(b"retry-after")
    assert (await ask(runtime, _large("kept"))).status == 201
    first = heavy.pid
    assert first
    os.kill(first, signal.SIGKILL)
    while not _has_ended(first):
        await asyncio.sleep(0.01)
    assert (await ask(runtime, _large("kept"))).status == 409
    assert heavy.pid not in (None, first)


async def test_its_process_holds_nothing_of_what_was_written_before_it_began(runtime: Runtime) -> None:
    """DOS-03: or the last writes of one tenant would be more than it may hold, and it would end at each beginning."""
    heavy = runtime.heavy
    assert heavy
    assert (await ask(runtime, _large("before"))).status == 201
    first = heavy.pid
    assert first
    held = _data_of(first)
    for number in range(40):
        assert (await ask(runtime, _small(f"long-{number}", "x" * 900_000))).status == 201
    os.kill(first, signal.SIGKILL)
    while not _has_ended(first):
        await asyncio.sleep(0.01)
    assert (await ask(runtime, _large("behind"))).status == 201
    second = heavy.pid
    assert second not in (None, first)
    assert _data_of(second) - held < 20_000_000


def _data_of(process: int) -> int:
    """Bytes of memory that count against its limit."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:"))


async def test_a_process_that_hangs_is_given_up(runtime: Runtime) -> None:
    """DOS-03: nobody else waits for it."""
    heavy = runtime.heavy
    assert heavy
    assert (await ask(runtime, _large("first"))).status == 201
    hanging = heavy.pid
    assert hanging
    os.kill(hanging, signal.SIGSTOP)
    patience, heavy.seconds = heavy.seconds, 300
    waiting = asyncio.ensure_future(ask(runtime, _large("second")))
    await asyncio.sleep(0)
    assert (await ask(runtime, _small("beside"))).status == 201
    assert not waiting.done()
    os.kill(hanging, signal.SIGCONT)
    assert (await waiting).status == 201
    os.kill(hanging, signal.SIGSTOP)
    heavy.seconds = 1
    assert (await ask(runtime, _large("third"))).status == 504
    heavy.seconds = patience
    assert (await ask(runtime, _large("fourth"))).status == 201
    assert heavy.pid != hanging


async def test_nobody_is_served_for_rights_that_ended_while_he_waited(runtime: Runtime) -> None:
    """GW5, DOS-03."""
    heavy = runtime.heavy
    assert heavy
    assert (await ask(runtime, _large("warm"))).status == 201
    assert heavy.pid
    os.kill(heavy.pid, signal.SIGSTOP)
    first = asyncio.ensure_future(ask(runtime, _large("one")))
    asked = []

    async def refused() -> None:
        asked.append(True)
        raise Forbidden("no longer")

    second = asyncio.ensure_future(ask(runtime, _large("two"), recheck=refused))
    await asyncio.sleep(2 * PROMPT_SECONDS)
    os.kill(heavy.pid, signal.SIGCONT)
    assert (await first).status == 201
    assert (await second).status == 403
    assert asked


def _searched(name: str, text: str) -> Expensive:
    body = {"apiVersion": "example.com/v1", "kind": "Searched", "metadata": {"name": name}, "spec": {"text": text}}
    return Expensive("searched", "POST", "/apis/example.com/v1/namespaces/default/searcheds", JSON, orjson.dumps(body))


async def test_a_long_search_of_a_rule_is_left_to_it(runtime: Runtime) -> None:
    """DOS-03: a rule of a tenant's own definition looks through a text of its own, and nobody waits for that."""
    heavy = runtime.heavy
    assert heavy
    rule = {"rule": "self.text.findAll('[ab]+c').size() == 0", "message": "no c, please"}
    spec = {"type": "object", "properties": {"text": {"type": "string"}}, "x-kubernetes-validations": [rule]}
    made = Expensive("made", "POST", CRDS, JSON, orjson.dumps(definition("Searched", spec)))
    assert (await ask(runtime, made)).status == 201
    try:
        while (answer := await ask(runtime, _searched("first", "ab"))).status == 404:
            await asyncio.sleep(0.01)
        assert answer.status == 201
        assert (await ask(runtime, _large("searching"))).status == 201
        assert heavy.pid
        os.kill(heavy.pid, signal.SIGSTOP)
        patience, heavy.seconds = heavy.seconds, 300
        waiting = asyncio.ensure_future(ask(runtime, _searched("long", "ab" * 20_000)))
        assert (await ask(runtime, _small("meanwhile-here"))).status == 201
        assert not waiting.done()
        os.kill(heavy.pid, signal.SIGCONT)
        assert (await waiting).status == 201
        refused = await ask(runtime, _searched("refused", "ab" * 20_000 + "c"))
        assert refused.status == 422
        assert "no c, please" in orjson.loads(refused.body)["message"]
        heavy.seconds = patience
    finally:
        gone = Expensive("gone", "DELETE", f"{CRDS}/searcheds.example.com", JSON, b"")
        assert (await ask(runtime, gone)).status == 200


async def test_a_rule_that_ends_the_evaluator_costs_its_own_request_alone(runtime: Runtime) -> None:
    """DOS-03: native code is given what it cannot take, in the process that a request can take with it."""
    heavy = runtime.heavy
    assert heavy
    spec = {"type": "object", "x-kubernetes-validations": [{"rule": "[optional.none()].sort() == []"}]}
    made = Expensive("made", "POST", CRDS, JSON, orjson.dumps(definition("Ending", spec)))
    assert (await ask(runtime, made)).status == 201
    path = "/apis/example.com/v1/namespaces/default/endings"
    body = {"apiVersion": "example.com/v1", "kind": "Ending", "metadata": {"name": "one"}, "spec": {}}
    try:
        while (answer := await ask(runtime, Expensive("one", "POST", path, JSON, orjson.dumps(body)))).status == 404:
            await asyncio.sleep(0.01)
        assert answer.status in (422, 500)
        assert (await ask(runtime, _small("after"))).status == 201
        assert (await ask(runtime, _large("after-it"))).status == 201
    finally:
        gone = Expensive("gone", "DELETE", f"{CRDS}/endings.example.com", JSON, b"")
        assert (await ask(runtime, gone)).status == 200


async def test_json_within_a_text_is_left_to_it(runtime: Runtime) -> None:
    """DOS-03: in a Secret, which shows nothing of it, and in an annotation whose commas are written as escapes."""
    heavy = runtime.heavy
    assert heavy
    for many, left in ((3, 0), (20_000, 1)):
        kind, key = "kubernetes.io/dockerconfigjson", ".dockerconfigjson"
        plain = orjson.dumps({"auths": {f"r{number}": {} for number in range(many)}}).decode()
        secret = {"metadata": {"name": f"json-{many}"}, "type": kind}
        metrics = orjson.dumps([{"type": "Object"}] * many).decode()
        scaler = {
            "metadata": {"name": f"json-{many}", "annotations": {"autoscaling.alpha.kubernetes.io/metrics": metrics}},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "maxReplicas": 2},
        }
        encoded = base64.b64encode(plain.encode()).decode()
        for status, resource, body in (
            (201, "api/v1/namespaces/default/secrets", {**secret, "data": {key: encoded}}),
            (409, "api/v1/namespaces/default/secrets", {**secret, "stringData": {key: plain}}),
            (422, "apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", scaler),
        ):
            done, hidden = (
                heavy.done,
                orjson.dumps(body).replace(b"},{", b"}\\u002c{").replace(b'},\\"', b'}\\u002c\\"'),
            )
            answer = await ask(runtime, Expensive("json", "POST", f"/{resource}", JSON, hidden))
            assert answer.status == status, (resource, answer.body[:300])
            assert heavy.done - done == left, (resource, many)


def _children(process: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{process}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _runs(process: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_the_process_ends_with_a_server_that_is_killed(server: Server, tmp_path: Path) -> None:
    """DOS-03."""
    running = start(tmp_path / "data", server.database)
    asked = _large("seen")
    assert running.admin.post(f"{asked.path}?dryRun=All", orjson.loads(asked.body)).status == 201
    children = _children(running.process.pid)
    assert children
    running.process.kill()
    running.process.wait()
    deadline = time.monotonic() + 300
    while any(map(_runs, children)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
