"""Writes that others overtake at a cluster: tried for long, judged anew where they have to be, and never without end (AD5)."""

from __future__ import annotations

import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import orjson
import pytest

from gateway.handlers.placednamespaces.dryruns import Overtaken, Patience, Rehearsal
from gateway.handlers.placednamespaces.forwarding import target_of
from gateway.handlers.placednamespaces.lastapplied import correction
from gateway.http.messages import LARGE, Request
from gateway.upstream import answers
from gateway.upstream.answers import HeldAnswers
from gateway.upstream.client import Answer
from kube.authentication.identity import Principal
from kube.objects.managedfields import LAST_APPLIED
from kube.objects.patches import merge_patch
from kube.requests.fielderrors import CAUSES_CHARACTERS
from kube.requests.requestinfo import parse, resolve
from kube.requests.status import Conflict, StatusError, TooManyRequests
from tests.gateway.upstream.asking import upstream_of, whole
from tests.gateway.upstream.rawcluster import Visit, ok

DEPLOYMENT = b"/apis/apps/v1/namespaces/acme-web/deployments/web"
POD = b"/api/v1/namespaces/acme-web/pods/web"
MERGE = "application/merge-patch+json"
REFUSED = orjson.dumps({"kind": "Status", "code": 409, "message": "the object has been modified"})
CONFLICT = b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n%b" % (len(REFUSED), REFUSED)


class Busy:
    """A cluster with one object, to which somebody else writes each time before it is changed."""

    def __init__(self, race: Callable[[dict[str, Any]], None], times: int) -> None:
        metadata = {"name": "web", "namespace": "acme-web", "uid": "u", "resourceVersion": "1"}
        self.object: dict[str, Any] = {"metadata": metadata, "spec": {}, "status": {}}
        self.race, self.times = race, times
        self.heard: list[str] = []

    def _next(self) -> None:
        self.object["metadata"]["resourceVersion"] = str(int(self.object["metadata"]["resourceVersion"]) + 1)

    async def behave(self, visit: Visit) -> None:
        while True:
            line, _, body = await visit.request()
            method, target, _ = line.decode().split(" ")
            dry = "dryRun=All" in target
            self.heard.append(method + " dry" * dry)
            if method == "GET":
                await visit.say(ok(orjson.dumps(self.object)))
                continue
            if not dry and self.times:
                self.times -= 1
                self.race(self.object)
                self._next()
            changes = orjson.loads(body)
            stated = changes.get("metadata", {}).get("resourceVersion")
            if stated not in (None, self.object["metadata"]["resourceVersion"]):
                await visit.say(CONFLICT)
                continue
            result = merge_patch(self.object, changes)
            if not dry:
                self.object = result
                self._next()
            await visit.say(ok(orjson.dumps(result)))


@asynccontextmanager
async def rehearsed(
    busy: Busy, path: bytes, seconds: float = 300, held: HeldAnswers | None = None
) -> AsyncIterator[tuple[Rehearsal, Any]]:
    async with upstream_of(busy.behave) as (_, upstream):

        async def ask(request: Request) -> Answer:
            return await upstream.request(
                request.info.method,
                target_of(request),
                request.raw_headers,
                request.body,
                token="workspace",
                audit_id="a-1",
            )

        request = Request(
            principal=Principal(name="anna", tenant="acme", groups=(), authenticator="test"),
            info=resolve(parse("PATCH", path), "acme"),
            query={},
            headers={b"content-type": MERGE.encode()},
            raw_headers=((b"content-type", MERGE.encode()),),
            body=b'{"spec":{"replicas":3}}',
            now=time.time(),
        )
        yield Rehearsal(ask, request, "prod", Patience(seconds), held, "acme"), ask


async def made(rehearsal: Rehearsal, ask: Any) -> Answer:
    await rehearsal.current()
    judged: Request | None = await rehearsal.judged()
    while judged is not None:
        answer: Answer = await ask(judged)
        judged = await rehearsal.again(answer)
    return answer


def write_status(body: dict[str, Any]) -> None:
    body["status"] = {"observedGeneration": int(body["metadata"]["resourceVersion"])}


def write_spec(body: dict[str, Any]) -> None:
    body["spec"] = {"paused": True}


async def test_a_status_that_is_written_all_the_time_holds_up_no_patch() -> None:
    busy = Busy(write_status, times=20)
    async with rehearsed(busy, DEPLOYMENT) as (rehearsal, ask):
        answer = await made(rehearsal, ask)
        result = orjson.loads(await whole(answer))
    assert (answer.status, result["spec"], result["status"]) == (200, {"replicas": 3}, {"observedGeneration": 20})
    assert busy.heard == ["GET", "PATCH dry", *["PATCH", "GET"] * 20, "PATCH"]


@pytest.mark.parametrize(("race", "path"), [(write_spec, DEPLOYMENT), (write_status, POD)])
async def test_what_is_judged_by_is_judged_anew(race: Callable[[dict[str, Any]], None], path: bytes) -> None:
    """All but the status; that of a pod too, by which quotas count it."""
    busy = Busy(race, times=1)
    async with rehearsed(busy, path) as (rehearsal, ask):
        with pytest.raises(Overtaken):
            await made(rehearsal, ask)
    assert busy.object["spec"].get("replicas") is None


async def test_nobody_is_tried_for_without_end() -> None:
    busy = Busy(write_status, times=10**9)
    async with rehearsed(busy, DEPLOYMENT, seconds=0.2) as (rehearsal, ask):
        with pytest.raises(Conflict, match="the object has been modified"):
            await made(rehearsal, ask)


async def test_a_large_object_is_taken_apart_beside_the_loop() -> None:
    """DOS-03: what is there, and what the write would make of it."""
    busy = Busy(write_status, times=0)
    busy.object["data"] = {"a": "x" * (4 * LARGE)}
    beside = 0

    async def in_turn(work: Callable[[], Awaitable[Any]]) -> Any:
        nonlocal beside
        beside += 1
        return await work()

    async with rehearsed(busy, DEPLOYMENT) as (rehearsal, _):
        rehearsal._request.in_turn = in_turn
        await rehearsal.outcome()
    assert beside == 2


async def test_what_writes_have_read_counts_as_held_until_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """GW4: however many a tenant makes at once, and however much its cluster says of each."""
    monkeypatch.setattr(answers, "HELD_MAX", 2 * 1024 * 1024)
    held = HeldAnswers()
    busy = Busy(write_status, times=0)
    busy.object["data"] = {"a": "x" * (64 * 1024)}
    async with AsyncExitStack() as stack:
        begun = []
        with pytest.raises(TooManyRequests, match="reads too much of its clusters at once"):
            while len(begun) < 100:
                rehearsal, _ = await stack.enter_async_context(rehearsed(busy, DEPLOYMENT, held=held))
                begun.append(rehearsal)
                await rehearsal.outcome()
        # Of each what it was, what comes of it, and what may be newer.
        assert held.total >= (len(begun) - 1) * 3 * 64 * 1024
        assert len(begun) > 3
        assert rehearsal.refusal is None, "no cluster has said so"
    del begun, rehearsal
    gc.collect()
    assert held.total == 0


@pytest.mark.parametrize("part", ["message", "causes"])
async def test_the_words_of_a_refusal_are_as_many_as_anybody_looks_into(part: str) -> None:
    """DOS-03: amounts and names are looked for in them, on the loop."""
    amounts = ",".join(f"count/a{number}.example.org=1" for number in range(50_000))
    said = f"exceeded quota: q, requested: {amounts}, used: {amounts}, limited: {amounts}"
    causes = [{"reason": "FieldValueInvalid", "message": "x" * 64, "field": "spec"} for _ in range(50_000)]
    body = {"kind": "Status", "code": 422, "message": said if part == "message" else "no"}
    told = orjson.dumps({**body, "details": {"name": "web", "causes": causes if part == "causes" else causes[:2]}})

    class Wordy(Busy):
        async def behave(self, visit: Visit) -> None:
            while True:
                line, *_ = await visit.request()
                found = b"HTTP/1.1 422 No\r\nContent-Length: %d\r\n\r\n%b" % (len(told), told)
                await visit.say(ok(orjson.dumps(self.object)) if line.startswith(b"GET") else found)

    async with rehearsed(Wordy(write_spec, times=0), DEPLOYMENT) as (rehearsal, _):
        with pytest.raises(StatusError) as refused:
            await rehearsal.outcome()
    error = refused.value
    assert len(error.message) <= CAUSES_CHARACTERS
    assert 2 <= len(error.causes) < 2_000
    assert sum(len(cause.message) for cause in error.causes) <= CAUSES_CHARACTERS
    assert (error.code, error.name, error.message[:2]) == (422, "web", str(body["message"])[:2])


def noted(text: str, *owners: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "web", "resourceVersion": "8", "uid": "u", "annotations": {LAST_APPLIED: text}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {**metadata, "managedFields": list(owners)}}


def owner(manager: str, operation: str, **more: Any) -> dict[str, Any]:
    fields = {"f:metadata": {"f:annotations": {".": {}, f"f:{LAST_APPLIED}": {}}, **more}}
    return {"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": fields}


COPIED = '{"metadata":{"name":"web","resourceVersion":"7","uid":"u"}}\n'


LONG = COPIED.replace('"uid"', '"a":[' + ",".join(["[]"] * 100_000) + '],"uid"')
"""More than an annotation may be, and within it as many values as anybody likes."""


@pytest.mark.parametrize("text", ["", "{}", "[]", "no JSON", "right", COPIED.replace("7", "6"), LONG])
def test_what_somebody_else_noted_stays(text: str) -> None:
    assert correction(noted(text), "7", "right") is None


@pytest.mark.parametrize(
    ("owners", "manager"),
    [
        ((), "kubectl-last-applied"),
        ((owner("kubectl-client-side-apply", "Update"),), "kubectl-client-side-apply"),
        ((owner("kubectl-last-applied", "Apply"),), "kubectl-last-applied"),
        ((owner("all", "Apply", **{"f:labels": {}}), owner("me", "Update")), "me"),
        ((owner("all", "Apply", **{"f:labels": {}}),), None),
        (({**owner("odd", "Update"), "fieldsV1": "none"}, "none"), "kubectl-last-applied"),
    ],
)
def test_the_field_stays_whose_it_is(owners: tuple[Any, ...], manager: str | None) -> None:
    """An apply of the annotation alone, by who applies it alone; else a patch, by who has patched it."""
    found = correction(noted(COPIED, *owners), "7", "right")
    assert (found.manager if found is not None else None) == manager


@pytest.mark.parametrize(
    ("status", "media", "body", "reason"),
    [
        (429, b"text/plain; charset=utf-8", b"Too many requests, please try again later.\n", "TooManyRequests"),
        (503, b"text/plain", b"apiserver is shutting down", "ServiceUnavailable"),
        (504, b"", b"", "Timeout"),
        (
            429,
            b"application/json",
            orjson.dumps({"kind": "Status", "message": "later", "reason": "TooManyRequests", "code": 429}),
            "TooManyRequests",
        ),
        (500, b"application/json", orjson.dumps({"kind": "Status", "reason": "InternalError"}), "InternalError"),
    ],
)
async def test_a_cluster_that_is_busy_says_when_to_come_back(
    status: int, media: bytes, body: bytes, reason: str
) -> None:
    """GW4: whoever writes waits, as at the cluster itself; kube-apiserver has no time to make a Status then."""

    class TooBusy(Busy):
        async def behave(self, visit: Visit) -> None:
            while True:
                await visit.request()
                head = b"HTTP/1.1 %d No\r\nRetry-After: 7\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
                await visit.say(head % (status, media, len(body)) + body)

    async with rehearsed(TooBusy(write_spec, times=0), DEPLOYMENT) as (rehearsal, _):
        with pytest.raises(StatusError) as refused:
            await rehearsal.current()
    assert (refused.value.code, refused.value.reason, refused.value.retry_after) == (status, reason, 7)
