"""What anybody may ask by any name leaves nothing behind: memory that requests could fill is the next restart (DOS-03)."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any, Final

import orjson
import pytest

from gateway.process.runtime import Runtime
from kube.kinds.builtins import TENANT_BUILTINS
from store.cache import Cache, ResourceCache
from store.types import Range
from tests.gateway.overloading import JSON, NAMESPACED, REVIEW, Expensive, ask, runtime

__all__ = ["runtime"]

MANY: Final = 40
"""Names that are asked for in one way."""

BOUNDED: Final = frozenset(
    {
        "TenantPolicies._known",
        "PolicyCache._held",
        "PolicyCache._held_in[]",
        "RbacAuthorizer._met",
        "Cache._caches",
        "WatchBroadcaster._window",
    }
)
"""What remembers answers, or events, and lets them go at a bound of its own."""


def _dry_runs(name: str) -> Iterator[Expensive]:
    """A new object of every kind, in a namespace that there is not."""
    for resource in TENANT_BUILTINS:
        if not (resource.namespaced and resource.persistent):
            continue
        group = f"/apis/{resource.group}" if resource.group else "/api"
        version = resource.preferred.name
        body = {
            "apiVersion": f"{resource.group}/{version}" if resource.group else version,
            "kind": resource.kind,
            "metadata": {"name": "x"},
            "spec": {},
        }
        path = f"{group}/{version}/namespaces/{name}/{resource.plural}?dryRun=All"
        yield Expensive(f"{resource.plural} elsewhere", "POST", path, JSON, orjson.dumps(body))


def _looks(name: str) -> Iterator[Expensive]:
    pods = f"/api/v1/namespaces/{name}/pods"
    for what, method, path in (
        ("a list elsewhere", "GET", pods),
        ("an object elsewhere", "GET", f"{pods}/x"),
        ("a deletion elsewhere", "DELETE", f"{pods}/x"),
        ("a collection elsewhere", "DELETE", pods),
        ("an object", "GET", f"{NAMESPACED}/pods/{name}"),
        ("a namespace", "GET", f"/api/v1/namespaces/{name}"),
        ("a resource", "GET", f"{NAMESPACED}/{name}"),
        ("a group", "GET", f"/apis/{name}.example.org/v1/things"),
        ("a space", "GET", f"/clusters/root:{name}/api/v1/namespaces"),
        ("a workspace", "GET", f"/clusters/root:acme:{name}/api/v1/namespaces"),
    ):
        yield Expensive(what, method, path, JSON, b"")
    asked = {"namespace": name, "verb": name, "group": name, "resource": name, "name": name}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    body = orjson.dumps({**review, "spec": {"resourceAttributes": asked}})
    yield Expensive("a review", "POST", REVIEW, JSON, body)


def _bindings(name: str) -> Iterator[Expensive]:
    """Whom a binding names need not be there, and the binding does not stay."""
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    subjects = [{"kind": "Group", "name": f"system:cluster:root:{name}", "apiGroup": "rbac.authorization.k8s.io"}]
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "lent"},
        "subjects": subjects,
        "roleRef": {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"},
    }
    yield Expensive("a binding", "POST", path, JSON, orjson.dumps(body))
    yield Expensive("a look", "GET", f"{NAMESPACED}/pods", JSON, b"")
    yield Expensive("its end", "DELETE", f"{path}/lent", JSON, b"")


WAYS: Final[Mapping[str, Callable[[str], Iterator[Expensive]]]] = {
    "dry runs": _dry_runs,
    "looks": _looks,
    "bindings": _bindings,
}


@pytest.mark.parametrize("way", WAYS)
async def test_no_name_that_is_asked_for_stays(runtime: Runtime, way: str) -> None:
    """Whatever the names, and however the requests end, nothing in the process has grown by them."""
    for asked in WAYS[way]("first"):
        await ask(runtime, asked)
    before, answered = _sizes(runtime), set[int]()
    for number in range(MANY):
        for asked in WAYS[way](f"name-{number}"):
            answered.add((await ask(runtime, asked)).status)
    grown = {name: size - before.get(name, 0) for name, size in _sizes(runtime).items()}
    assert {name: more for name, more in grown.items() if more >= MANY // 2} == {}, answered
    assert max(answered) < 500


def test_spaces_that_there_are_not_take_their_room_in_memory() -> None:
    """Nothing is in them, and what says so is let go like anything else."""
    cache = Cache(100_000)
    for number in range(10_000):
        cache.put(Range(f"root:acme:s{number}", "", "pods"), ResourceCache(()), 0.0)
    assert len(cache) <= 100


def _sizes(root: object) -> dict[str, int]:
    """How many entries there are in whatever an object holds, by who holds it."""
    sizes: dict[str, int] = {}
    seen, waiting = {id(root)}, deque([("", root)])
    while waiting:
        name, found = waiting.popleft()
        if isinstance(found, Mapping | AbstractSet | deque | list) and name not in BOUNDED:
            sizes[name] = sizes.get(name, 0) + len(found)
        for below, each in _held_by(name, found):
            if id(each) not in seen:
                seen.add(id(each))
                waiting.append((below, each))
    return sizes


def _held_by(name: str, found: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(found, str | bytes | int | float | type | ModuleType | None):
        return
    if isinstance(found, Mapping):
        yield from ((f"{name}[]", each) for each in list(found.values()))
    elif isinstance(found, Sequence | AbstractSet | deque):
        yield from ((f"{name}[]", each) for each in list(found))
    elif isinstance(found, FunctionType):
        yield from ((found.__qualname__, each) for each in found.__closure__ or ())
    elif isinstance(found, CellType):
        yield name, found.cell_contents
    elif isinstance(found, MethodType):
        yield name, found.__self__
    elif isinstance(found, functools.partial):
        yield from ((name, each) for each in (found.func, *found.args, *found.keywords.values()))
    elif type(found).__module__.split(".")[0] in ("gateway", "access", "store"):
        for field in _fields_of(found):
            yield f"{type(found).__name__}.{field}", getattr(found, field, None)


def _fields_of(found: object) -> Iterator[str]:
    yield from getattr(found, "__dict__", ())
    for base in type(found).__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots
