"""Exports that have moved on to another schema: what is kept from before is shown as from a changed definition (KC11)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.apiexports import APIS, binds, export, schema, status_of
from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server
from tests.gateway.definitions import CRDS
from tests.gateway.organization import made, ready

ORG = "/clusters/root:shift"
PROVIDER, CONSUMER = f"{ORG}:provider", f"{ORG}:consumer"
VIEW = "/services/apiexport/root:shift:provider/dials/clusters"
DIALS = "/apis/example.org/v1/namespaces/default/dials"
STRING = {"type": "string"}


def versioned(prefix: str, *names: str, **fields: Any) -> dict[str, Any]:
    """A schema with these versions, of which the last is stored."""
    one = schema("Dial", prefix=prefix, **fields)
    (version,) = one["spec"]["versions"]
    one["spec"]["versions"] = [{**version, "name": name, "storage": name == names[-1]} for name in names]
    return one


@pytest.fixture(scope="module")
def olga(server: Server) -> Caller:
    """Of an export whose consumer has an object from before it moved on to another schema."""
    made(server.admin.post("/api/v1/tenants", {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": "shift"}}))
    olga = server.user("shift", "olga", "tenantry:owner")
    for name in ("provider", "consumer"):
        ready(olga, ORG, name)
    for one in (
        versioned("first", "v1alpha1", kept=STRING, lost=STRING),
        versioned("second", "v1alpha1", "v1", kept=STRING),
        versioned("third", "v1alpha1", "v1", kept=STRING),
    ):
        made(olga.post(f"{PROVIDER}{APIS}/apiresourceschemas", one))
    made(olga.post(f"{PROVIDER}{APIS}/apiexports", export("dials", "first.dials.example.org")))
    binds(olga, CONSUMER, "dials", "root:shift:provider:dials")
    older = {"kind": "Dial", "metadata": {"name": "old"}, "spec": {"kept": "a", "lost": "b"}}
    path = f"{CONSUMER}{DIALS.replace('v1', 'v1alpha1')}"
    assert "lost" in made(olga.post(path, {"apiVersion": "example.org/v1alpha1", **older}))["spec"]
    moved(olga, "second")
    return olga


def moved(olga: Caller, prefix: str) -> None:
    name = f"{prefix}.dials.example.org"
    spec = {"spec": {"latestResourceSchemas": [name]}}
    assert olga.patch(f"{PROVIDER}{APIS}/apiexports/dials", spec).status == 200
    assert eventually(lambda: status_of(olga, CONSUMER, "dials")["boundResources"][0]["schema"]["name"] == name)


@pytest.mark.parametrize("door", [CONSUMER, f"{VIEW}/root:shift:consumer", f"{VIEW}/*"], ids=["own", "view", "views"])
def test_what_was_kept_in_another_version_is_read_in_the_one_that_is_asked_for(olga: Caller, door: str) -> None:
    everything = f"{door}{DIALS if '*' not in door else '/apis/example.org/v1/dials'}"
    listed = olga.get(everything)
    assert listed.status == 200, listed.body
    seen = list(listed.body["items"])
    with olga.watch(everything) as watch:
        seen.append(watch.take(1)[0]["object"])
    if "*" not in door:
        seen.append(olga.get(f"{everything}/old").body)
    for one in seen:
        assert (one["apiVersion"], one["spec"]) == ("example.org/v1", {"kept": "a"})
    assert len(seen) == (2 if "*" in door else 3)


def test_the_bound_definition_has_changed_and_says_what_is_kept(olga: Caller) -> None:
    """Of the same words in another schema it is none."""

    def bound() -> tuple[int, list[str]]:
        found = olga.get(f"{CONSUMER}{CRDS}/dials.example.org").body
        return found["metadata"]["generation"], found["status"]["storedVersions"]

    assert bound() == (2, ["v1alpha1", "v1"])
    assert status_of(olga, CONSUMER, "dials")["boundResources"][0]["storageVersions"] == ["v1alpha1", "v1"]
    moved(olga, "third")
    assert bound() == (2, ["v1alpha1", "v1"])
