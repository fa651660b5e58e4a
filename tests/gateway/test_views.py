"""What a view across consumers costs: what they hold, whatever others have bound or keep (KC6, DOS-03)."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import pytest

from gateway.handlers import dispatch
from gateway.http.certificates import prepare
from gateway.http.errors import render
from gateway.http.messages import Request, Response
from gateway.options import Options
from gateway.process.runtime import Runtime
from gateway.resources import consumers
from gateway.resources.consumers import Look, Wanted
from gateway.server.assembly import build_runtime
from kube.authentication.identity import Principal
from kube.requests.requestinfo import parse, resolve
from kube.requests.status import StatusError
from kube.workspaces.apiexports import BINDINGS, EXPORTS
from store.engine import Engine
from store.postgresql.dedicatedconnection import ConnectionPool
from store.postgresql.statements import CURRENT
from store.types import AllSpaces, Create, Delete, Key, Stored, Update
from tests.databases import migrated
from tests.gateway.loopturns import Decodings

OWNER = Principal(name="olga", groups=("system:authenticated",), tenant="prov", authenticator="test")
SECRETS = {"group": "", "resource": "secrets", "all": True}
PROVIDER = "root:prov"
OTHERS = 40


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """The parts of a server whose provider has one export, which claims Secrets."""
    with migrated("views") as database:
        options = Options(database_url=database, data_folder=tmp_path)
        async with build_runtime(options, prepare(options), background=False) as made:
            await exported(made, PROVIDER, "x")
            yield made


async def exported(runtime: Runtime, path: str, name: str) -> None:
    body = {
        "metadata": {"name": name},
        "spec": {"permissionClaims": [SECRETS]},
        "status": {"identityHash": path + name},
    }
    await runtime.store.commit(Create(Key(path, *EXPORTS, "", name), body))


async def bound(
    runtime: Runtime, space: str, path: str = PROVIDER, name: str = "x", *, binding: str = "b", size: int = 0
) -> Key:
    """A logical cluster that has bound an export and accepted its claim."""
    key = Key(space, *BINDINGS, "", binding)
    names = [{"namespace": "default", "name": f"{number:060}"} for number in range(size)]
    more = [{"group": "", "resource": "pods", "state": "Accepted", "resourceSelector": names}] if size else []
    claims = [{**SECRETS, "state": "Accepted"}, *more]
    spec = {"reference": {"export": {"path": path, "name": name}}, "permissionClaims": claims}
    status = {"phase": "Bound", "exportIdentityHash": path + name}
    body = {"metadata": {"name": binding}, "spec": spec, "status": status}
    await runtime.store.commit(Create(key, body))
    return key


async def secret(runtime: Runtime, space: str, name: str, size: int = 10) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}}
    body["data"] = {"x": "x" * size}
    await runtime.store.commit(Create(Key(space, "", "secrets", "default", name), body))


async def view(runtime: Runtime, resource: str = "secrets", more: str = "", cluster: str = "*") -> Response:
    """Behind authorization."""
    path = f"/services/apiexport/{PROVIDER}/x/clusters/{cluster}/api/v1/{resource}"
    parsed = parse("GET", path.encode(), more.encode())
    request = Request(
        principal=OWNER,
        info=resolve(parsed, OWNER.tenant),
        query={name: values[0] for name, values in parsed.parameters.items()},
        headers={b"accept": b"application/json"},
        body=b"",
        now=time.time(),
    )
    try:
        answer = await dispatch.dispatch(runtime, request, _no_recheck)
    except StatusError as error:
        return render(error)
    assert isinstance(answer, Response)
    return answer


async def _no_recheck() -> None:
    return


def names(answer: Response) -> list[str]:
    assert answer.status == 200, answer.body
    return [item["metadata"]["name"] for item in orjson.loads(answer.body)["items"]]


class Decoded(Decodings):
    """Counts all texts that are decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.all = 0

    def _count(self, frame: FrameType, event: str, called: object) -> None:
        super()._count(frame, event, called)
        self.all += self._counts(event, called)


class Steps:
    """Counts the steps of the interpreter in the module that is asked what consumers accept."""

    def __init__(self) -> None:
        self.all = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._traced)
        try:
            yield
        finally:
            sys.settrace(before)

    def _traced(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_globals.get("__name__") != consumers.__name__:
            return None
        frame.f_trace_opcodes = True
        self.all += event == "opcode"
        return self._traced


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the database is asked about any space."""
    found, ask_ = list[tuple[Any, ...]](), ConnectionPool.ask

    async def noted(self: ConnectionPool, statement: str, parameters: Sequence[Any] = (), **form: Any) -> Any:
        if any(isinstance(each, str) and each.startswith("root:") for each in parameters):
            found.append(tuple(parameters))
        return await ask_(self, statement, parameters, **form)

    monkeypatch.setattr(ConnectionPool, "ask", noted)
    return found


async def test_what_others_have_bound_costs_nothing(runtime: Runtime, asked: list[tuple[Any, ...]]) -> None:
    """Neither where a claim is accepted nor where the answer is 404; and of what changes each is read once."""
    await bound(runtime, "root:mine")
    await secret(runtime, "root:mine", "ours")
    for number in range(3):
        await bound(runtime, f"root:early-{number}", "root:else", "y", size=50)
    costs: dict[tuple[str, bool], tuple[int, int]] = {}
    for later in (False, True):
        for resource in ("secrets", "configmaps"):
            # What is known from then on is looked up once.
            assert (await view(runtime, resource)).status == (200 if resource == "secrets" else 404)
            decoded, before = Decoded(), len(asked)
            with decoded.counting():
                await view(runtime, resource)
            costs[resource, later] = decoded.all, len(asked) - before
        if not later:
            for number in range(OTHERS):
                await bound(runtime, f"root:other-{number}", "root:else", "y", size=50)
    assert costs["secrets", False] == costs["secrets", True]
    assert costs["configmaps", False] == costs["configmaps", True]
    assert names(await view(runtime)) == ["ours"]


async def test_objects_of_those_who_take_no_part_are_not_read(runtime: Runtime, asked: list[tuple[Any, ...]]) -> None:
    for space in ("root:mine", "root:yours", "root:victim"):
        await secret(runtime, space, f"of-{space[5:]}")
    await bound(runtime, "root:mine")
    yours = await bound(runtime, "root:yours")
    await bound(runtime, "root:victim", "root:else", "y")
    asked.clear()
    assert names(await view(runtime)) == ["of-mine", "of-yours"]
    about = [parameters for parameters in asked if parameters[:2] == ("", "secrets")]
    assert sorted(parameters[2] for parameters in about) == ["root:mine", "root:yours"]
    assert AllSpaces("", "secrets") not in runtime.store._cache._caches
    # Chunk by chunk it is the same, and the next answer knows of what has changed.
    answer = await view(runtime, more="limit=1")
    assert names(answer) == ["of-mine"]
    token = orjson.loads(answer.body)["metadata"]["continue"]
    assert names(await view(runtime, more=f"limit=1&continue={token}")) == ["of-yours"]
    stored = await runtime.store.get(yours)
    assert stored is not None
    rejected = orjson.loads(stored.data)
    rejected["spec"]["permissionClaims"][0]["state"] = "Rejected"
    (stored,) = await runtime.store.commit(Update(yours, stored.revision, rejected))
    assert names(await view(runtime)) == ["of-mine"]
    await runtime.store.commit(Delete(yours, stored.revision, rejected))
    await bound(runtime, "root:victim", binding="late")
    assert names(await view(runtime)) == ["of-mine", "of-victim"]
    runtime.consumers.forget()
    assert names(await view(runtime)) == ["of-mine", "of-victim"]


async def test_who_looks_again_reads_what_has_changed_alone(runtime: Runtime) -> None:
    """As the rights of open streams are looked at again, whatever anybody binds."""
    spaces = [f"root:c-{number}" for number in range(OTHERS)]
    bindings = [await bound(runtime, space) for space in spaces]
    at, unchanged, changed, read = Key(PROVIDER, *EXPORTS, "", "x"), Decoded(), Decoded(), list[int]()
    stored = await runtime.store.get(at)
    assert stored is not None
    export, wanted = orjson.loads(stored.data), Wanted("", "secrets", "watch")
    first = await runtime.consumers.accepted(at, export, wanted, Look(read.append))
    assert first.spaces == sorted(spaces)
    await bound(runtime, "root:other", "root:else", "y")
    again = Look(read.append, first)
    with unchanged.counting():
        assert await runtime.consumers.accepted(at, export, wanted, again) is first
    assert not unchanged.all
    assert len(read) == 1
    stored = await runtime.store.get(bindings[3])
    assert stored is not None
    await runtime.store.commit(Update(stored.key, stored.revision, {**orjson.loads(stored.data), "status": {}}))
    with changed.counting():
        second = await runtime.consumers.accepted(at, export, wanted, again)
    assert changed.all == 1
    assert second != first
    assert second.spaces == sorted({*spaces} - {bindings[3].space})
    other = wanted._replace(identity="of another")
    assert await runtime.consumers.accepted(at, export, other, again) is not first
    one = await runtime.consumers.accepted(at, export, wanted, Look(read.append), cluster=spaces[0])
    assert one.spaces == [spaces[0]]


@contextmanager
def charges(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    found: list[int] = []

    def noted(principal: Any, info: Any, cost: int, now: float, *, further: bool = False) -> None:
        found.append(cost)

    with monkeypatch.context() as patch:
        patch.setattr(runtime.throttle, "charge", noted)
        yield found


async def test_what_consumers_hold_is_charged_and_read_in_turns(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their bindings, the look at each, and what they keep, which is told by its key alone."""
    for number in range(OTHERS):
        await bound(runtime, f"root:c-{number:02}", size=100)
    decoded = Decoded()
    assert (await view(runtime, "configmaps")).status == 404
    with charges(runtime, monkeypatch) as costs, decoded.counting():
        assert not names(await view(runtime))
    looked = sum(costs)
    assert looked > OTHERS // 10
    # Some hundred bytes a name: no turn takes more than its part of them.
    assert decoded.all >= OTHERS
    assert decoded.most < OTHERS // 2
    for number in range(OTHERS):
        await secret(runtime, f"root:c-{number:02}", "large", 20_000)
    with charges(runtime, monkeypatch) as costs, decoded.counting():
        assert len(names(await view(runtime))) == OTHERS
    assert sum(costs) > OTHERS


async def test_an_object_costs_the_same_however_many_consumers_there_are(runtime: Runtime) -> None:
    """Each is held against what its own consumer says."""
    costs = []
    for number in range(OTHERS):
        await bound(runtime, f"root:c-{number:02}")
        if number in (0, OTHERS - 1):
            before = len(names(await view(runtime)))
            few, many = Steps(), Steps()
            with few.counting():
                await view(runtime)
            for further in range(OTHERS):
                await secret(runtime, "root:c-00", f"{number}-{further}")
            with many.counting():
                assert len(names(await view(runtime))) == before + OTHERS
            costs.append(many.all - few.all)
    assert costs[0] == costs[1] > 0


async def test_who_looks_into_one_cluster_looks_at_no_other(runtime: Runtime) -> None:
    """As a request and as the rights of a stream are looked at again, however many consumers there are."""
    stored = await runtime.store.get(at := Key(PROVIDER, *EXPORTS, "", "x"))
    assert stored is not None
    export, wanted, costs = orjson.loads(stored.data), Wanted("", "secrets", "list"), []
    await secret(runtime, "root:c-00", "ours")
    for number in range(OTHERS):
        await bound(runtime, f"root:c-{number:02}")
        await bound(runtime, f"root:c-{number:02}", "root:else", "y", binding="other")
        if number in (0, OTHERS - 1):
            await view(runtime, cluster="root:c-00")
            first, again = Steps(), Steps()
            with first.counting():
                assert names(await view(runtime, cluster="root:c-00")) == ["ours"]
            found = await runtime.consumers.accepted(at, export, wanted, Look(lambda _: None), cluster="root:c-00")
            look = Look(lambda _: None, found)
            with again.counting():
                assert await runtime.consumers.accepted(at, export, wanted, look, cluster="root:c-00") is found
            costs.append((first.all, again.all))
    assert costs[0] == costs[1]
    assert min(costs[0])


async def test_bindings_that_nobody_holds_in_memory_are_read_together(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question for hundreds, each charged before it is asked; what they hold beside them is not loaded."""
    spaces, asked, ask_ = [f"root:c-{number:02}" for number in range(OTHERS)], list[str](), ConnectionPool.ask

    async def noted(self: ConnectionPool, statement: str, parameters: Sequence[Any] = (), **form: Any) -> Any:
        if statement == CURRENT or tuple(parameters[:2]) == BINDINGS:
            asked.append(statement)
        return await ask_(self, statement, parameters, **form)

    bindings = [await bound(runtime, space, size=5) for space in spaces]
    stored = await runtime.store.get(at := Key(PROVIDER, *EXPORTS, "", "x"))
    assert stored is not None
    export, wanted, charged = orjson.loads(stored.data), Wanted("", "secrets", "list"), list[int]()
    # Which there are is learnt.
    await runtime.consumers.accepted(at, export, wanted._replace(resource="configmaps"), Look(charged.append))
    monkeypatch.setattr(ConnectionPool, "ask", noted)

    def charge(size: int) -> None:
        assert not asked
        charged.append(size)

    for together, questions in ((consumers._TOGETHER, 1), (10, OTHERS // 10)):
        monkeypatch.setattr(consumers, "_TOGETHER", together)
        runtime.store._cache.clear()
        asked.clear()
        found = await runtime.consumers.accepted(at, export, wanted, Look(charge))
        assert found.spaces == spaces
        assert asked == [CURRENT] * questions
        assert not [place for place in runtime.store._cache._caches if BINDINGS in (place, place[1:3])]
    # No question is for more than so many bytes.
    monkeypatch.setattr(consumers, "_ASKED_BYTES", 4_000)
    asked.clear()
    assert (await runtime.consumers.accepted(at, export, wanted, Look(charge))).spaces == spaces
    sizes = [len(stored.data) for stored in (await runtime.store.current(bindings)).values()]
    assert charged == [0, *[sum(sizes)] * 3]
    assert len(asked) - 1 >= sum(sizes) // 4_000
    # What is held is not asked for.
    for key in bindings:
        await runtime.store.get(key, cached=True)
    asked.clear()
    assert (await runtime.consumers.accepted(at, export, wanted, Look(charge))).spaces == spaces
    assert not asked


async def test_a_binding_that_changes_while_it_is_read_is_read_again(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the database says then is newer than what was noted of it."""
    stored = await runtime.store.get(at := Key(PROVIDER, *EXPORTS, "", "x"))
    kept = await runtime.store.get(await bound(runtime, "root:c"))
    assert stored is not None
    assert kept is not None
    export, wanted, read = orjson.loads(stored.data), Wanted("", "secrets", "list"), list[int]()
    found = await runtime.consumers.accepted(at, export, wanted, Look(read.append))
    assert found.spaces == ["root:c"]
    ask_ = Engine.current

    async def written(self: Engine, keys: Sequence[Key]) -> dict[Key, Stored]:
        await self.commit(Update(kept.key, kept.revision, {**orjson.loads(kept.data), "status": {}}))
        return await ask_(self, keys)

    runtime.store._cache.clear()
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "current", written)
        found = await runtime.consumers.accepted(at, export, wanted, Look(read.append))
    assert not found.spaces
    again = await runtime.consumers.accepted(at, export, wanted, Look(read.append, found))
    assert again is not found
    assert not again.spaces
    assert await runtime.consumers.accepted(at, export, wanted, Look(read.append, again)) is again
    assert len(read) == 3
