"""One request must not stop the server: what takes long is refused or done beside the event loop (DOS-03)."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import replace
from types import FrameType
from typing import Any

import orjson
import pytest

from access.requestlimits import PAUSE_SECONDS, TenantThrottle
from gateway.filters.authorization import throttle
from gateway.handlers.acrossnamespaces.listing import _read_token, _token_of
from gateway.process.fairexecutor import WAITING_MAX, FairExecutor
from gateway.process.runtime import Runtime
from gateway.process.watchdog import HOLD_SECONDS, TICK_SECONDS, Watchdog
from kube.requests.decoding import decode_json
from kube.requests.fielderrors import CAUSES_MAX
from kube.requests.ratelimits import Limits
from kube.requests.requestinfo import parse, resolve
from kube.requests.status import Expired, TooManyRequests
from kube.requests.tokenbuckets import TokenBucket
from tests.gateway.definitions import definition
from tests.gateway.loopturns import Compilations, Decodings, LoopTurns
from tests.gateway.overloading import (
    APPLY,
    JSON,
    MERGE,
    NAMESPACED,
    OWNER,
    TABLE,
    YAML,
    Expensive,
    answers,
    ask,
    corpus,
    defined,
    kept,
    multiplied,
    pod,
    queries,
    runtime,
)

__all__ = ["runtime"]

STEPS = 30_000
"""Calls of functions in one turn of the loop: a small write takes 2,000, and 20 ms have room for far more than these."""


async def test_a_flood_asks_no_more_often_than_it_has_connections_a_second(runtime: Runtime) -> None:
    """AD6: what is refused at once would be asked again at once, and each refusal takes from everybody's turn."""
    runtime.throttle = TenantThrottle(Limits(read=TokenBucket(0.001, 1), person_share=100), lambda *_: 0)
    info, connections, refused = resolve(parse("GET", f"{NAMESPACED}/pods".encode()), "acme"), 64, 0

    async def connection() -> None:
        nonlocal refused
        while True:
            with suppress(TooManyRequests):
                await throttle(runtime, OWNER, info)
            refused += 1

    begun = time.monotonic()
    flood = [asyncio.create_task(connection()) for _ in range(connections)]
    await asyncio.sleep(0.5)
    await throttle(runtime, replace(OWNER, tenant="globex"), info)
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    assert refused <= connections * (time.monotonic() - begun) / PAUSE_SECONDS + 2 * connections


@pytest.mark.parametrize("many", [4_000, 20_000])
async def test_no_body_holds_the_loop(runtime: Runtime, many: int) -> None:
    """However expensive, in no turn does the loop take more steps than a few small requests do."""
    small = Expensive("small", "POST", f"{NAMESPACED}/pods", JSON, orjson.dumps(pod("victim")))
    assert (await ask(runtime, small)).status in (201, 409)
    turns, held = LoopTurns(), {}
    for asked in corpus(many):
        with turns.counting():
            answer = await ask(runtime, asked)
        assert answer.status < 500, (asked.name, answer.body[:300])
        assert len(orjson.loads(answer.body).get("details", {}).get("causes", ())) <= CAUSES_MAX, asked.name
        if turns.most > STEPS:
            held[asked.name] = turns.most
    assert not held
    assert runtime.heavy
    assert runtime.heavy.done


async def test_no_query_holds_the_loop(runtime: Runtime) -> None:
    """However much it selects by, and whatever is wrong with it; a list, a watch and what is deleted read it alike."""
    small = Expensive("small", "POST", f"{NAMESPACED}/pods", JSON, orjson.dumps(pod("victim")))
    assert (await ask(runtime, small)).status in (201, 409)
    turns, held = LoopTurns(), {}
    for name, query in queries():
        for method, more in (("GET", ""), ("GET", "&watch=1&timeoutSeconds=1"), ("DELETE", "&dryRun=All")):
            path = f"{NAMESPACED}/pods?{query}{more}".replace(" ", "+")
            with turns.counting():
                answer = await ask(runtime, Expensive(name, method, path, JSON, b""))
            assert answer.status < 500, (name, answer.body[:300])
            if turns.most > STEPS:
                held[name, method, more] = turns.most
    manager = Expensive(
        "manager", "POST", f"{NAMESPACED}/pods?fieldManager={'m' * 60_000}", JSON, orjson.dumps(pod("x"))
    )
    with turns.counting():
        assert (await ask(runtime, manager)).status == 422
    assert not held
    assert turns.most <= STEPS


def test_a_token_names_no_more_parts_than_there_are() -> None:
    """DOS-03: whoever has one can write others, and what they say of their parts is not gone through for that."""
    wide = _token_of("1", {f"{number:x}": {} for number in range(20_000)}, "mine")
    turns = LoopTurns()
    with turns.counting(), pytest.raises(Expired):
        _read_token(wide, "mine", {"stored"})
    # With whatever the collector ends meanwhile.
    assert turns.most < 2_000


async def test_a_long_selector_is_paid_for_by_its_length(runtime: Runtime) -> None:
    """AD6: whoever has sent one owes more than for a short one, and is refused until that is paid."""
    runtime.throttle = TenantThrottle(Limits(read=TokenBucket(0.001, 5), person_share=100), lambda *_: 0)
    # What is listed costs as well: where nothing is, nothing.
    pods = "/api/v1/namespaces/empty/pods"
    short = Expensive("short", "GET", f"{pods}?labelSelector=a", JSON, b"")
    long = replace(short, path=f"{pods}?labelSelector=a+in+({'b,' * 30_000})")
    assert [(await ask(runtime, short)).status for _ in range(20)] == [200] * 20
    assert [(await ask(runtime, long)).status for _ in range(2)] == [200, 429]


LONGEST = 1 << 20
"""Bytes of an answer to a request of at most as many."""

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.mark.parametrize("many", [60, 900])
async def test_no_definition_makes_more_of_an_object_than_it_is(runtime: Runtime, many: int) -> None:
    """A tenant writes both. By itself each is small; judged, filled in and told of, they are not each other's product."""
    turns, held, long = LoopTurns(), {}, {}
    for number, (name, schema, value) in enumerate(multiplied(many)):
        kind = f"Multiplied{many}x{number}"
        crd, plural = definition(kind, schema), f"{kind.lower()}s"
        path = f"/apis/example.com/v1/namespaces/default/{plural}"
        body = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "x"}, "spec": value}
        posted = [
            Expensive("definition", "POST", DEFINITIONS, JSON, orjson.dumps(crd)),
            Expensive("created", "POST", path, JSON, orjson.dumps(body)),
            Expensive("applied", "PATCH", f"{path}/x?fieldManager=m", APPLY, orjson.dumps(body)),
            Expensive("listed", "GET", path, JSON, b""),
        ]
        for asked in posted:
            with turns.counting():
                answer = await ask(runtime, asked)
            assert answer.status < 500, (name, asked.name, answer.body[:300])
            if turns.most > STEPS:
                held[name, asked.name] = turns.most
            if len(answer.body) > LONGEST + 2 * len(asked.body):
                long[name, asked.name] = len(answer.body)
        gone = Expensive("gone", "DELETE", f"{DEFINITIONS}/{plural}.example.com", JSON, b"")
        assert (await ask(runtime, gone)).status in (200, 404)
    assert not held
    assert not long


@pytest.mark.parametrize("disguise", [(b"", b""), (b"pattern", b"p\\u0061ttern"), (b"rule", b"r\\u0075le")])
async def test_no_compiling_holds_the_loop(runtime: Runtime, disguise: tuple[bytes, bytes]) -> None:
    """DOS-03: neither of a definition nor, once it stands, of what its objects are judged by."""
    heavy = runtime.heavy
    assert heavy
    for number, (name, schema, value) in enumerate(defined()):
        kind = f"Compiled{number}"
        crd, plural = orjson.dumps(definition(kind, schema)).replace(*disguise), f"{kind.lower()}s"
        path = f"/apis/example.com/v1/namespaces/default/{plural}"
        body = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "x"}, "spec": value}
        posted = [
            (201, Expensive("definition", "POST", DEFINITIONS, JSON, crd)),
            (200, Expensive("changed", "PATCH", f"{DEFINITIONS}/{plural}.example.com", MERGE, crd)),
            (201, Expensive("created", "POST", path, JSON, orjson.dumps(body))),
            (200, Expensive("changed", "PATCH", f"{path}/x", MERGE, b'{"metadata":{"labels":{"a":"b"}}}')),
        ]
        for status, asked in posted:
            done = heavy.done
            answer = await ask(runtime, asked)
            assert answer.status == status, (name, answer.body[:300])
            assert heavy.done > done, (name, asked.name)
        gone = Expensive("gone", "DELETE", f"{DEFINITIONS}/{plural}.example.com", JSON, b"")
        assert (await ask(runtime, gone)).status == 200


async def test_rules_are_compiled_one_a_turn(runtime: Runtime) -> None:
    """DOS-03: many short ones, of a kind whose objects are judged on the loop."""
    rules = [{"rule": f"self.n > {number}"} for number in range(60)]
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "x-kubernetes-validations": rules}
    made = Expensive("one", "POST", DEFINITIONS, JSON, orjson.dumps(definition("Ruled", schema)))
    assert (await ask(runtime, made)).status == 201
    body = {"apiVersion": "example.com/v1", "kind": "Ruled", "metadata": {"name": "x"}, "spec": {"n": 99}}
    path = "/apis/example.com/v1/namespaces/default/ruleds"
    turns = Compilations()
    with turns.counting():
        answer = await ask(runtime, Expensive("one", "POST", path, JSON, orjson.dumps(body)))
    assert answer.status == 201, answer.body
    assert turns.most == 1
    gone = Expensive("gone", "DELETE", f"{DEFINITIONS}/ruleds.example.com", JSON, b"")
    assert (await ask(runtime, gone)).status == 200


@pytest.fixture
async def filled(runtime: Runtime) -> AsyncIterator[Runtime]:
    """With objects that answers take long to be made of."""
    made = list(kept(20_000))
    for path, body in made:
        assert (await ask(runtime, Expensive("kept", "POST", path, JSON, orjson.dumps(body)))).status == 201
    yield runtime
    places = [f"{path}/{body['metadata']['name']}" for path, body in made]
    for place in reversed(places):
        assert (await ask(runtime, Expensive("gone", "DELETE", place, JSON, b""))).status == 200
    while (await ask(runtime, Expensive("gone", "GET", places[0], JSON, b""))).status != 404:
        await asyncio.sleep(0.05)


async def test_no_answer_holds_the_loop(filled: Runtime) -> None:
    """What is made of what is kept is made beside the loop as well, whoever has kept it and however small the question."""
    turns, held = LoopTurns(), {}
    for path, media in answers():
        with turns.counting():
            answer = await ask(filled, Expensive(path, "GET", path, JSON, b""), accept=media)
        assert answer.status in (200, 406), (path, media, answer.body[:300])
        if turns.most > STEPS:
            held[path, media] = turns.most
    assert not held


async def test_a_definition_is_judged_beside_its_siblings_one_a_turn(runtime: Runtime) -> None:
    """DOS-03: each may hold a hundred thousand values."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    bodies = [definition(f"Sibling{number}") for number in range(20)]
    turns = Decodings()
    for number, body in enumerate(bodies):
        last = number == len(bodies) - 1
        with turns.counting() if last else nullcontext():
            answer = await ask(runtime, Expensive("one", "POST", path, JSON, orjson.dumps(body)))
        assert answer.status == 201, answer.body
    assert 0 < turns.most < 10
    for body in bodies:
        place = f"{path}/{body['metadata']['name']}"
        assert (await ask(runtime, Expensive("gone", "DELETE", place, JSON, b""))).status == 200


async def test_answers_are_charged_and_writes_never_refused_by_them(filled: Runtime) -> None:
    before, filled.throttle = (
        filled.throttle,
        TenantThrottle(Limits(read=TokenBucket(1, 20), write=TokenBucket(0, 0), person_share=100), lambda *_: 0),
    )
    one = Expensive("one", "GET", f"{NAMESPACED}/configmaps", JSON, b"")
    assert [(await ask(filled, one, accept=TABLE)).status for _ in range(3)] == [200, 429, 429]
    touch = Expensive("touch", "PATCH", f"{NAMESPACED}/configmaps/long0", MERGE, b'{"metadata":{"labels":{"x":"y"}}}')
    answer = await ask(filled, touch, accept=YAML)
    filled.throttle = before
    assert answer.status == 200
    assert orjson.loads(answer.body)["metadata"]["labels"] == {"x": "y"}


@pytest.mark.parametrize(("by", "padding"), [("create", 0), ("patch", 0), ("patch", 66_000)])
async def test_what_is_written_is_charged_by_its_bytes_however_short_or_long_the_request(
    runtime: Runtime, by: str, padding: int
) -> None:
    """Fifty objects of a mebibyte a second, or fifty touches of one, would fill any disk; spaces buy nothing."""
    body = orjson.dumps({"metadata": {"name": "wide"}, "data": {"word": "x" * 500_000}})
    wide = Expensive("wide", "POST", f"{NAMESPACED}/configmaps", JSON, body)
    touch = b'{"metadata":{"labels":{"x":"%d"}}}'
    touches = [
        Expensive("touch", "PATCH", f"{NAMESPACED}/configmaps/wide", MERGE, touch % number + b" " * padding)
        for number in range(3)
    ]
    before = runtime.throttle
    if by == "patch":
        assert (await ask(runtime, wide)).status == 201
    limits = Limits(write=TokenBucket(0.001, 20), person_share=100)
    runtime.throttle = TenantThrottle(limits, lambda *_: 0)
    try:
        asked = touches if by == "patch" else [wide, wide, wide]
        statuses = [(await ask(runtime, each)).status for each in asked]
    finally:
        runtime.throttle = before
        gone = Expensive("gone", "DELETE", f"{NAMESPACED}/configmaps/wide", JSON, b"")
        assert (await ask(runtime, gone)).status == 200
    assert statuses == [200 if by == "patch" else 201, 429, 429]


async def test_who_owes_nothing_is_let_in_with_what_costs_more_than_there_is(runtime: Runtime) -> None:
    """By its values, by its bytes and by what it takes the place of: charged three times, it is asked once."""
    data = {f"key-{number}": "x" * 100 for number in range(2_500)}
    made = orjson.dumps({"metadata": {"name": "wide"}, "data": data})
    changed = orjson.dumps({"metadata": {"name": "wide"}, "data": dict.fromkeys(data, "y")})
    writes = [
        Expensive("create", "POST", f"{NAMESPACED}/configmaps", JSON, made),
        Expensive("replace", "PUT", f"{NAMESPACED}/configmaps/wide", JSON, changed),
    ]
    before, statuses = runtime.throttle, []
    try:
        for write in writes:
            limits = Limits(write=TokenBucket(0.001, 10), person_share=100)
            runtime.throttle = TenantThrottle(limits, lambda *_: 0)
            statuses += [(await ask(runtime, write)).status for _ in range(2)]
    finally:
        runtime.throttle = before
        gone = Expensive("gone", "DELETE", f"{NAMESPACED}/configmaps/wide", JSON, b"")
        assert (await ask(runtime, gone)).status == 200
    assert statuses == [201, 429, 200, 429]


async def test_tenants_take_turns_beside_the_loop() -> None:
    """A hundred pieces of one tenant's work do not stand before another's first."""
    executor, order, begun = FairExecutor(), [], asyncio.Event()

    def work(name: str) -> Callable[[], Awaitable[str]]:
        async def done() -> str:
            await begun.wait()
            order.append(name)
            return name

        return done

    many = [asyncio.ensure_future(executor.run("many", work("many"))) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    one = asyncio.ensure_future(executor.run("one", work("one")))
    gone = asyncio.ensure_future(executor.run("gone", work("gone")))
    await asyncio.sleep(0)
    gone.cancel()
    more = asyncio.ensure_future(executor.run("many", work("many")))
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests):
        await executor.run("many", work("many"))
    begun.set()
    assert await one == "one"
    await asyncio.gather(*many, more)
    assert order.index("one") <= 2
    assert "gone" not in order

    async def failing() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await executor.run("one", failing)
    await executor.close()


class Ticks(Watchdog):
    """Counts how often it looks."""

    seen = 0

    def _tick(self, number: int, frame: FrameType | None) -> None:
        self.seen += 1
        super()._tick(number, frame)


async def test_the_watchdog_lets_a_loop_sleep_that_has_nothing_to_do() -> None:
    """It looks as often as the process works: one that sleeps is not woken."""
    watchdog = Ticks()
    async with watchdog.watching():
        used = time.process_time()
        while time.process_time() - used < 10 * TICK_SECONDS:
            pass
        assert watchdog.seen > 1
        seen, used = watchdog.seen, time.process_time()
        await asyncio.sleep(50 * TICK_SECONDS)
        assert watchdog.seen - seen <= 2 + (time.process_time() - used) / TICK_SECONDS
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


async def _turns(seconds: float) -> int:
    """Many steps of the loop that take so much of its processor time; how many seemed to be long.

    A machine that lends its processor to others may count their time as this thread's.
    """
    longer, now = 0, time.thread_time()
    ready = now + seconds
    while now < ready:
        before = now
        await asyncio.sleep(0)
        now = time.thread_time()
        longer += now - before > HOLD_SECONDS
    return longer


async def test_one_long_step_of_compiled_code_is_a_hold() -> None:
    """In which no tick is heard; it is named by who made it. The loop is not held by one step after the other of its own."""
    watchdog = Watchdog()
    async with watchdog.watching():
        for _ in range(3):
            await asyncio.sleep(0)
            used = time.thread_time()
            _long_step(used)
        longer = await _turns(10 * HOLD_SECONDS)
    assert 3 <= sum(watchdog.holds.values()) <= 3 + longer
    assert watchdog.longest > HOLD_SECONDS


class SeldomHeard(Watchdog):
    """Of a machine that is busy with others: one tick in twenty comes at all, and late."""

    ticks = 0

    def _tick(self, number: int, frame: FrameType | None) -> None:
        self.ticks += 1
        if self.ticks % 20 == 0:
            super()._tick(number, frame)


async def test_a_tick_that_comes_late_is_no_hold_where_the_loop_goes_on() -> None:
    """A busy machine lets nobody believe that requests hold the loop."""
    watchdog = SeldomHeard()
    async with watchdog.watching():
        longer = 0
        while watchdog.ticks < 100:
            longer += await _turns(HOLD_SECONDS)
    assert sum(watchdog.holds.values()) <= longer + 1, "before the first tick is heard nobody has noted anything"


def _long_step(used: float) -> None:
    """Several times ``HOLD_SECONDS`` in one call, whatever the machine."""
    number = 1 << 20
    while time.thread_time() - used < 5 * HOLD_SECONDS:
        number *= 2
        used = time.thread_time()
        sum(range(number))


def test_a_loop_beside_the_main_thread_goes_unwatched() -> None:
    """There no signals are handled; nothing is disturbed there either."""

    async def watched() -> tuple[float, float]:
        async with Watchdog().watching():
            return signal.getitimer(signal.ITIMER_PROF)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(asyncio.run, watched()).result() == (0.0, 0.0)


async def test_the_watchdog_names_what_held_the_loop() -> None:
    """Counted by the processor time of the loop's own thread."""
    watchdog = Watchdog()
    async with watchdog.watching():
        await asyncio.sleep(0.05)
        ready = time.thread_time() + 20 * HOLD_SECONDS
        body: Any = orjson.dumps([[number] for number in range(2_000)])
        while time.thread_time() < ready:
            decode_json(body)
        await asyncio.sleep(0.1)
    assert watchdog.longest > HOLD_SECONDS
    assert sum(watchdog.holds.values()) >= 1
    text = "\n".join(watchdog.render())
    assert 'tenantry_event_loop_holds_total{place="' in text
    assert 'place="kube.requests.decoding.' in text
