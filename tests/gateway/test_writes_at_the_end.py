"""No write passes the end of its workspace: one that was allowed just before is refused like any other (KC4, KC13)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson
import pytest

from access.admission.base import Attributes
from access.authorization.workspaces.state import closing, logical_cluster_key
from gateway.filters.authorization import authorize_with_trace, require_allowed
from gateway.handlers import dispatch
from gateway.http.certificates import prepare
from gateway.http.errors import as_status_error, render
from gateway.http.messages import Request, Response
from gateway.options import Options
from gateway.process.runtime import Runtime
from gateway.server.assembly import build_runtime
from kube.authentication.identity import MASTERS, Principal
from kube.requests.requestinfo import parse, resolve
from store.types import Key, Operation, Update
from tests.gateway.callers import Caller, config_map
from tests.gateway.conftest import Server, completed
from tests.gateway.organization import inside, organization, ready

OLGA = Principal(
    name="olga", groups=("tenantry:owner", "system:authenticated"), tenant="umbrella", authenticator="x509"
)
MASTER = Principal(name="root", groups=(MASTERS, "system:authenticated"), tenant="system", authenticator="x509")

MAPS = "/api/v1/namespaces/default/configmaps"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
APPLIED = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "2"}}
Ends = Callable[[], Awaitable[None]]

WRITES = [
    ("POST", MAPS, "", config_map("b")),
    ("PUT", f"{MAPS}/a", "", config_map("a", {"a": "2"})),
    ("PATCH", f"{MAPS}/a", "application/merge-patch+json", {"data": {"a": "2"}}),
    ("PATCH", f"{MAPS}/a", "application/strategic-merge-patch+json", {"data": {"a": "2"}}),
    ("PATCH", f"{MAPS}/a", "application/json-patch+json", [{"op": "replace", "path": "/data/a", "value": "2"}]),
    ("PATCH", f"{MAPS}/a?fieldManager=m&force=true", "application/apply-patch+yaml", APPLIED),
    ("PATCH", "/api/v1/namespaces/default/pods/p/status", "application/merge-patch+json", {"status": {"reason": "R"}}),
    ("PUT", "/apis/apps/v1/namespaces/default/deployments/d/scale", "", None),
    ("POST", "/api/v1/namespaces/default/pods/p/eviction", "", None),
    ("DELETE", f"{MAPS}/a", "", None),
    ("DELETE", f"{MAPS}/held", "", None),
    ("DELETE", MAPS, "", None),
    ("DELETE", "/apis/tenancy.kcp.io/v1alpha1/workspaces/below", "", None),
]


@pytest.fixture
async def runtime(server: Server, tmp_path: Path) -> AsyncIterator[Runtime]:
    options = Options(database_url=server.database, data_folder=tmp_path)
    async with build_runtime(options, prepare(options), background=False) as made:
        yield made


@pytest.fixture(scope="module")
def olga(server: Server, gina: Caller) -> Caller:
    return organization(server, gina)["olga"]


@pytest.fixture(scope="module")
def place(olga: Caller) -> str:
    """A workspace below another, with something in it."""
    top = f"end-{uuid4().hex[:6]}"
    ready(olga, "/clusters/root:umbrella", top)
    ready(olga, inside(top), "sub")
    prefix = inside(f"{top}:sub")
    ready(olga, prefix, "below")
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": POD["spec"]}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    for path, body in (
        (MAPS, config_map("a")),
        (MAPS, config_map("held", finalizers=["example.com/wait"])),
        ("/api/v1/namespaces/default/pods", POD),
        ("/apis/apps/v1/namespaces/default/deployments", deployment),
    ):
        answer = olga.post(f"{prefix}{path}", body)
        assert answer.status == 201, answer.body
    for namespace in olga.get(f"{prefix}/api/v1/namespaces").body["items"]:
        completed(olga, namespace["metadata"]["name"], prefix=prefix)
    return f"root:umbrella:{top}:sub"


def _body(path: str, body: Any) -> bytes:
    if path.endswith("/scale"):
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "default"}}
        return orjson.dumps({**scale, "spec": {"replicas": 3}})
    if path.endswith("/eviction"):
        return orjson.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}})
    return b"" if body is None else orjson.dumps(body)


async def ask(
    runtime: Runtime, principal: Principal, cluster: str, write: tuple[str, str, str, Any], between: Ends
) -> Response:
    """One write; ``between`` comes after its authorization."""
    method, path, media, body = write
    path, _, query = f"/clusters/{cluster}{path}".partition("?")
    try:
        parsed = parse(method, path.encode(), query.encode())
        info = resolve(parsed, principal.tenant)
        require_allowed(principal, info, await authorize_with_trace(runtime, principal, info))
        await between()
        request = Request(
            principal=principal,
            info=info,
            query={name: values[0] for name, values in parsed.parameters.items()},
            headers={b"content-type": (media or "application/json").encode(), b"accept": b"application/json"},
            body=_body(path, body),
            now=time.time(),
        )
        answer = await dispatch.dispatch(runtime, request, between)
    except Exception as error:  # noqa: BLE001 - every failure has an answer
        return render(as_status_error(error))
    assert isinstance(answer, Response)
    return answer


async def opened(runtime: Runtime, cluster: str) -> None:
    stored = await runtime.store.get(logical_cluster_key(cluster))
    assert stored is not None
    body = orjson.loads(stored.data)
    body["status"]["phase"] = "Ready"
    await runtime.store.commit(Update(stored.key, stored.revision, body))


async def contents(runtime: Runtime, cluster: str) -> dict[Key, int]:
    """Everything in a logical cluster but that itself."""
    found = {}
    for key in await runtime.store.keys_containing(b"{"):
        if key.space == cluster and key != logical_cluster_key(cluster):
            stored = await runtime.store.get(key)
            found[key] = stored.revision if stored else 0
    return found


@pytest.mark.parametrize("late", [False, True], ids=["before admission", "after admission"])
@pytest.mark.parametrize("above", [False, True], ids=["itself", "the one above"])
@pytest.mark.parametrize("write", WRITES, ids=lambda write: f"{write[0]} {write[1]} {write[2]}"[:80])
async def test_what_was_allowed_before_the_end_is_not_kept_after_it(
    runtime: Runtime, place: str, write: tuple[str, str, str, Any], above: bool, late: bool
) -> None:
    ending = place.rpartition(":")[0] if above else place
    before = await contents(runtime, place)
    closed = []

    async def close() -> None:
        if not closed:
            closed.append(await runtime.store.commit(*await closing(runtime.store, ending)))

    async def nothing() -> None:
        return

    admit = runtime.admission.admit

    async def admitted(attributes: Attributes) -> Sequence[Operation]:
        held = await admit(attributes)
        await close()
        return held

    if late:
        runtime.admission.admit = admitted  # type: ignore[assignment]
    try:
        answer = await ask(runtime, OLGA, place, write, nothing if late else close)
        assert closed
        assert (answer.status, orjson.loads(answer.body)["reason"]) == (403, "Forbidden"), answer.body
        assert await contents(runtime, place) == before
    finally:
        await opened(runtime, ending)


async def test_masters_still_change_and_remove_what_waits_and_make_nothing(runtime: Runtime, place: str) -> None:
    """So that an end can come."""

    async def nothing() -> None:
        return

    await runtime.store.commit(*await closing(runtime.store, place))
    try:
        patch = ("PATCH", f"{MAPS}/a", "application/merge-patch+json", {"data": {"a": uuid4().hex}})
        assert (await ask(runtime, MASTER, place, patch, nothing)).status == 200
        assert (await ask(runtime, MASTER, place, ("POST", MAPS, "", config_map("c")), nothing)).status == 403
    finally:
        await opened(runtime, place)
