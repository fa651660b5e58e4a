"""Lists and watches across namespaces, some stored and some on a cluster: one list, one version, every event once (GW4)."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from tenants.models import Cluster, Role, Tier, Workspace
from tenants.services import cluster_register, workspace_suspend
from tests.faultproxy import Fault
from tests.gateway.callers import Caller, Watch, config_map, eventually
from tests.gateway.placed.conftest import STANDING_IN, Door, namespace, phase_of, said
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

ALL = "/api/v1/configmaps"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
OURS = "test=ours"
"""Clusters have config maps of their own in every namespace."""


def made(name: str) -> dict[str, Any]:
    return config_map(name, labels={"test": "ours"})


def path(where: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{where}/configmaps" + (f"/{name}" if name else "")


def shown(body: dict[str, Any]) -> list[str]:
    return [f"{item['metadata']['namespace']}/{item['metadata']['name']}" for item in body["items"]]


@pytest.fixture
def owner(door: Door) -> Caller:
    return door.person("olga", Role.OWNER)


@pytest.fixture
def places(door: Door, owner: Caller) -> list[str]:
    """A stored namespace and two on the cluster."""
    Tier.objects.update(workspaces_per_user=9)
    assert owner.post("/api/v1/namespaces", {"metadata": {"name": "here"}}).status == 201
    return ["here", door.place(owner, f"{door.name}-a"), door.place(owner, f"{door.name}-b")]


def told(watch: Watch) -> Iterator[tuple[str, str, str]]:
    """Events, without the bookmarks between them: type, namespace, name."""
    for event in watch:
        if event["type"] != "BOOKMARK":
            metadata = event["object"].get("metadata", {})
            yield event["type"], metadata.get("namespace", ""), metadata.get("name", "")


def test_a_list_has_what_is_stored_and_what_is_on_clusters(
    owner: Caller, places: list[str], kubectl: Callable[..., str]
) -> None:
    for where in places:
        assert owner.post(path(where), made("one")).status == 201
    whole = owner.get(ALL, labelSelector=OURS)
    assert whole.status == 200
    assert shown(whole.body) == [f"{where}/one" for where in places]
    again = owner.get(ALL, labelSelector=OURS).body["metadata"]["resourceVersion"]
    assert int(again) >= int(whole.body["metadata"]["resourceVersion"]) > 0
    lines = kubectl(owner, "get", "configmaps", "-A", "-l", OURS).splitlines()
    assert [line.split()[:2] for line in lines] == [["NAMESPACE", "NAME"], *([where, "one"] for where in places)]
    partial = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    metadata = owner.get(ALL, partial, labelSelector=OURS).body
    assert metadata["kind"] == "PartialObjectMetadataList"
    assert {item["metadata"]["namespace"] for item in metadata["items"]} == set(places)


@pytest.mark.parametrize("limit", [1, 2, 4, 100])
def test_chunks_together_are_the_list(owner: Caller, places: list[str], limit: int) -> None:
    """Each object once, at the version of the first chunk, however the parts fall into the chunks."""
    for number in range(3):
        for where in places:
            assert owner.post(path(where), made(f"m{number}")).status == 201
    whole = sorted(shown(owner.get(ALL, labelSelector=OURS).body))
    assert len(whole) == 9
    found: list[str] = []
    query: dict[str, object] = {"labelSelector": OURS, "limit": limit}
    versions = set()
    late = made("late")
    while True:
        chunk = owner.get(ALL, **query)
        assert chunk.status == 200, chunk.body
        assert len(chunk.body["items"]) <= limit
        found += shown(chunk.body)
        versions.add(chunk.body["metadata"]["resourceVersion"])
        token = chunk.body["metadata"].get("continue")
        if not token:
            break
        if late:
            # What comes between two chunks is not in any of them.
            for where in places:
                assert owner.post(path(where), late).status == 201
            late = {}
        query["continue"] = token
    assert sorted(found) == whole
    assert len(versions) == 1


def test_a_watch_tells_of_every_place_once_and_goes_on_from_its_bookmarks(
    door: Door, owner: Caller, places: list[str]
) -> None:
    version = owner.get(ALL, labelSelector=OURS).body["metadata"]["resourceVersion"]
    expected = []
    with owner.watch(ALL, labelSelector=OURS, resourceVersion=version, allowWatchBookmarks="true") as watch:
        for where in places:
            assert owner.post(path(where), made("w")).status == 201
            assert owner.patch(path(where, "w"), {"data": {"a": "2"}}).status == 200
            assert owner.delete(path(where, "w")).status == 200
            expected += [(type_, where, "w") for type_ in ("ADDED", "MODIFIED", "DELETED")]
        events = told(watch)
        seen = [next(events) for _ in expected]
        # Places are told of side by side; within one the order holds.
        assert sorted(seen, key=lambda event: places.index(event[1])) == expected
        after = next(event for event in watch if event["type"] == "BOOKMARK")["object"]["metadata"]["resourceVersion"]
    assert int(after) > int(version)
    for where in places:
        assert owner.post(path(where), made("later")).status == 201
    with owner.watch(ALL, labelSelector=OURS, resourceVersion=after) as watch:
        events = told(watch)
        assert sorted(next(events) for _ in places) == sorted(("ADDED", where, "later") for where in places)
    other = owner.watch("/api/v1/secrets", resourceVersion=after)
    assert (other.status, other.error["reason"]) == (410, "Expired")


def test_a_watch_may_begin_with_what_is_there(owner: Caller, places: list[str]) -> None:
    """As informers of today ask: first everything, then the mark, then what happens."""
    for where in places:
        assert owner.post(path(where), made("one")).status == 201
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with owner.watch(ALL, labelSelector=OURS, **query) as watch:
        first = watch.take(4)
        assert {(event["type"], event["object"]["metadata"].get("namespace")) for event in first[:3]} == {
            ("ADDED", where) for where in places
        }
        assert {event["object"]["kind"] for event in first} == {"ConfigMap"}
        assert first[3]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert owner.delete(path(places[2], "one")).status == 200
        assert next(told(watch)) == ("DELETED", places[2], "one")


def test_a_watch_follows_namespaces_that_come_and_go(door: Door, owner: Caller, places: list[str]) -> None:
    version = owner.get(ALL, labelSelector=OURS).body["metadata"]["resourceVersion"]
    with owner.watch(ALL, labelSelector=OURS, resourceVersion=version) as watch:
        events, comes = told(watch), f"{door.name}-c"
        door.place(owner, comes)
        assert owner.post(path(comes), made("new")).status == 201
        assert next(events) == ("ADDED", comes, "new")
        assert owner.delete(f"/api/v1/namespaces/{comes}").status == 200
        # A namespace that is being deleted is closed to its tenant at once: the client is told to list again.
        assert watch.until_end()[-1]["object"]["reason"] == "Expired"
    door.until(lambda: phase_of(owner, comes) == "")
    assert shown(owner.get(ALL, labelSelector=OURS).body) == []


def test_the_first_and_the_last_placed_namespace_have_everybody_list_anew(new_door: Callable[[], Door]) -> None:
    """What was listed while all was stored says nothing of what is on clusters, nor the other way round."""
    door = new_door()
    owner = door.person("olga", Role.OWNER)
    assert owner.post("/api/v1/namespaces", {"metadata": {"name": "here"}}).status == 201
    for name in ("one", "two"):
        assert owner.post(path("here"), made(name)).status == 201
    stored = owner.get(ALL, labelSelector=OURS, limit=1).body["metadata"]
    with owner.watch(ALL, labelSelector=OURS, resourceVersion=stored["resourceVersion"]) as watch:
        where = door.place(owner, f"{door.name}-a")
        assert watch.until_end()[-1]["object"]["reason"] == "Expired"
    refused = owner.get(ALL, labelSelector=OURS, limit=1, **{"continue": stored["continue"]})
    assert (refused.status, refused.reason) == (410, "Expired"), refused.body
    assert owner.watch(ALL, labelSelector=OURS, resourceVersion=stored["resourceVersion"]).status == 410
    for name in ("one", "two"):
        assert owner.post(path(where), made(name)).status == 201
    placed = owner.get(ALL, labelSelector=OURS, limit=1).body["metadata"]
    assert owner.delete(f"/api/v1/namespaces/{where}").status == 200
    for gone in (False, True):
        if gone:
            door.until(lambda: phase_of(owner, where) == "")
        refused = owner.get(ALL, labelSelector=OURS, limit=1, **{"continue": placed["continue"]})
        assert (refused.status, refused.reason) == (410, "Expired"), refused.body
        assert owner.watch(ALL, labelSelector=OURS, resourceVersion=placed["resourceVersion"]).status == 410


def test_nobody_who_asks_across_tenants_takes_what_is_stored_for_all_there_is(
    new_standing_door: Callable[[], Door], kubectl: Callable[..., str]
) -> None:
    """TS14: while any cluster may hold more. Watches that began before end; people are told, and where to ask."""
    door = new_standing_door()
    owner, admin, everywhere = door.person("olga", Role.OWNER), door.server.admin, "/api/v1/tenants/*/configmaps"
    assert owner.post("/api/v1/namespaces", {"metadata": {"name": "here"}}).status == 201
    assert owner.post(path("here"), made("one")).status == 201
    listed = admin.get(everywhere, labelSelector=OURS)
    assert (listed.status, shown(listed.body)) == (200, ["here/one"])
    version = listed.body["metadata"]["resourceVersion"]
    capacities = "/apis/storage.k8s.io/v1/tenants/*/csistoragecapacities"
    with (
        admin.watch(everywhere, labelSelector=OURS, resourceVersion=version) as watch,
        admin.watch(capacities, allowWatchBookmarks="true") as other,
    ):
        where = door.place(owner, on=STANDING_IN)
        assert watch.until_end()[-1]["object"]["reason"] == "Expired"
        assert owner.post(path(where), made("two")).status == 201
        remedy = "ask in one tenant, at /clusters/root:NAME"
        for query in ({}, {"watch": "true"}, {"limit": "1"}, {"resourceVersion": "0"}):
            refused = admin.get(everywhere, labelSelector=OURS, **query)
            assert (refused.status, refused.reason) == (400, "BadRequest"), refused.body
            assert remedy in refused.body["message"]
        table = admin.get(everywhere, TABLE, labelSelector=OURS)
        assert table.status == 200
        assert [row["cells"][0] for row in table.body["rows"]] == ["one"]
        assert remedy in table.headers["warning"]
        assert shown(admin.get(f"/clusters/root:{door.name}{ALL}", labelSelector=OURS).body) == [
            "here/one",
            f"{where}/two",
        ]
        # What is in no namespace is the product's own, and what no account of workspaces may read is none of the tenant's.
        for complete in ("/api/v1/tenants/*/namespaces", capacities):
            whole = admin.get(complete)
            assert (whole.status, "warning" in whole.headers) == (200, False), whole.body
        assert not other.ended
    assert owner.delete(f"/api/v1/namespaces/{where}").status == 200
    assert shown(admin.get(everywhere, labelSelector=OURS).body) == ["here/one"]


def test_what_is_closed_is_shown_by_nothing_from_the_moment_on(owner: Caller, places: list[str]) -> None:
    """GW5: before any worker has told the cluster, and before the Namespace itself says so."""
    for where in places:
        assert owner.post(path(where), made("one")).status == 201
    version = owner.get(ALL, labelSelector=OURS).body["metadata"]["resourceVersion"]
    with owner.watch(ALL, labelSelector=OURS, resourceVersion=version) as watch:
        closed = Workspace.objects.get(k8s_namespace=places[1])
        workspace_suspend(actor=OPERATOR, workspace_id=closed.pk, reason="mining")
        assert watch.until_end()[-1]["object"]["reason"] == "Expired"
    assert phase_of(owner, places[1]) == "Active"
    assert shown(owner.get(ALL, labelSelector=OURS).body) == [f"{where}/one" for where in (places[0], places[2])]
    with owner.watch(ALL, labelSelector=OURS) as watch:
        events = told(watch)
        assert sorted(next(events)[1] for _ in range(2)) == sorted((places[0], places[2]))
        assert owner.post(path("here"), made("two")).status == 201
        assert next(events) == ("ADDED", "here", "two")


def test_versions_that_cannot_be_are_refused_as_for_one_place(owner: Caller, places: list[str]) -> None:
    for where in places:
        assert owner.post(path(where), made("one")).status == 201
    for query in (
        {"resourceVersion": "12", "resourceVersionMatch": "Exact"},
        {"limit": "1", "continue": "nonsense"},
        {"resourceVersion": "x"},
        {"labelSelector": "!!"},
    ):
        refused = owner.get(ALL, **query)
        assert refused.status in (400, 410), (query, refused.body)
    token = owner.get(ALL, limit=1).body["metadata"]["continue"]
    assert owner.get("/api/v1/secrets", limit=1, **{"continue": token}).status == 400
    number, following, binding = json.loads(zlib.decompress(base64.urlsafe_b64decode(token + "===")))
    # One that was tampered with is answered as the part that it names answers.
    for asked in ({"continue": "nonsense"}, {"resourceVersion": "x", "resourceVersionMatch": "Exact"}):
        changed = zlib.compress(json.dumps([number, {**following, "": asked}, binding]).encode())
        refused = owner.get(ALL, limit=1, **{"continue": base64.urlsafe_b64encode(changed).decode()})
        assert (refused.status, refused.reason) == (400, "BadRequest"), refused.body


def test_nothing_of_another_tenant(new_door: Callable[[], Door], owner: Caller, places: list[str], door: Door) -> None:
    """Not by the list, not by another's version or token."""
    for where in places:
        assert owner.post(path(where), made("secret")).status == 201
    chunk = owner.get(ALL, limit=1).body["metadata"]
    other = new_door()
    stranger = other.person("sam", Role.OWNER)
    mine = other.place(stranger, f"{other.name}-a")
    theirs = shown(stranger.get(ALL).body)
    assert {item.split("/")[0] for item in theirs} <= {mine, "default", "kube-system", "kube-public"}
    assert not [item for item in theirs if item.endswith("/secret")]
    assert stranger.get(ALL, limit=1, **{"continue": chunk["continue"]}).status == 400
    refused = stranger.get(ALL, resourceVersion=chunk["resourceVersion"], resourceVersionMatch="Exact")
    assert (refused.status, refused.reason) == (410, "Expired")
    assert stranger.watch(ALL, resourceVersion=chunk["resourceVersion"]).status == 410


@pytest.fixture
def far(door: Door, owner: Caller, places: list[str]) -> Iterator[str]:
    """A namespace on another cluster, behind a proxy that spoils what it says."""
    door.cluster.proxy.heal()
    cluster_register(actor=OPERATOR, name="second", kubeconfig=door.cluster.gateway_kubeconfig)
    name = f"{door.name}-far-{uuid4().hex[:4]}"
    assert owner.post("/api/v1/namespaces", namespace(name, "second")).status == 201
    door.until(lambda: phase_of(owner, name) == "Active")
    yield name
    door.cluster.proxy.heal()
    Cluster.objects.filter(name="second").update(away_until=None)


SPOILED = pytest.mark.parametrize("action", ["500", "400", "410", "html"])


@SPOILED
def test_a_cluster_that_does_not_answer_is_named_to_people_and_an_error_to_others(
    door: Door, owner: Caller, far: str, action: str
) -> None:
    """An informer never takes some of a list for the whole; a table says what is missing."""
    assert owner.post(path("here"), made("one")).status == 201
    assert owner.post(path(far), made("two")).status == 201
    assert shown(owner.get(ALL).body)[-1] == f"{far}/two"
    door.cluster.proxy.faults.append(Fault(action, path="configmaps", times=1000))
    failed = owner.get(ALL)
    assert (failed.status, "second" in said(failed)) == (502, True), failed.body
    table = owner.get(ALL, TABLE)
    assert table.status == 200
    spaces = {row["object"]["metadata"]["namespace"] for row in table.body["rows"]}
    assert ("here" in spaces, far in spaces) == (True, False)
    assert far in table.headers["warning"]
    door.cluster.proxy.heal()
    assert shown(owner.get(ALL, labelSelector=OURS).body) == ["here/one", f"{far}/two"]


@SPOILED
def test_a_watch_goes_on_whatever_a_cluster_answers(
    door: Door, owner: Caller, places: list[str], far: str, action: str
) -> None:
    """D8: what may be true, that a version has expired, ends it once; then everything is listed and watched anew."""
    proxy = door.cluster.proxy
    for round_ in range(2 if action == "410" else 1):
        proxy.heal()
        version = owner.get(ALL, labelSelector=OURS).body["metadata"]["resourceVersion"]
        fault = Fault(action, path="configmaps", times=1000)
        proxy.faults.append(fault)
        with owner.watch(ALL, labelSelector=OURS, resourceVersion=version) as watch:
            if action == "410" and not round_:
                assert watch.until_end()[-1]["object"]["reason"] == "Expired"
                continue
            assert eventually(lambda fault=fault: fault.hits > 2)
            for where in places:
                assert owner.post(path(where), made("w")).status == 201
            events = told(watch)
            assert sorted(next(events) for _ in places) == sorted(("ADDED", where, "w") for where in places)
            assert not watch.ended
            # And what happens there meanwhile is told when it answers again.
            proxy.faults.clear()
            assert owner.post(path(far), made("w")).status == 201
            assert next(events) == ("ADDED", far, "w")
