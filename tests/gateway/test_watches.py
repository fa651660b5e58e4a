"""Watches: nothing lost, selectors respected, and an end at once for whoever loses access (GW5, AZ1)."""

from __future__ import annotations

import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPSConnection
from typing import Any
from uuid import uuid4

import pytest

from tests.gateway.callers import Caller, config_map, eventually, names
from tests.gateway.conftest import Server

RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def test_watch_from_a_list_sees_every_change_once_and_in_order(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("before"))
    version = alice.get(maps).body["metadata"]["resourceVersion"]
    with alice.watch(maps, resourceVersion=version) as watch:
        alice.post(maps, config_map("a"))
        alice.patch(f"{maps}/a", {"data": {"a": "2"}})
        alice.delete(f"{maps}/before")
        events = watch.take(3)
    assert names(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "before")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(version)


def test_watch_without_version_begins_with_what_is_there(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("there"))
    for query in ({}, {"resourceVersion": "0"}):
        with alice.watch(maps, **query) as watch:
            assert names(watch.take(2)) == [("ADDED", "kube-root-ca.crt"), ("ADDED", "there")]


def test_concurrent_writes_reach_the_watcher_exactly_once(alice: Caller, maps: str) -> None:
    with alice.watch(maps, resourceVersion=alice.get(maps).body["metadata"]["resourceVersion"]) as watch:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: alice.post(maps, config_map(f"w{i}")), range(40)))
        events = watch.take(40)
    assert {name for _, name in names(events)} == {f"w{i}" for i in range(40)}
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


def test_selected_watch_sees_objects_come_and_leave(alice: Caller, maps: str) -> None:
    version = alice.get(maps).body["metadata"]["resourceVersion"]
    with alice.watch(maps, resourceVersion=version, labelSelector="color=red") as watch:
        alice.post(maps, config_map("blue", labels={"color": "blue"}))
        alice.patch(f"{maps}/blue", {"metadata": {"labels": {"color": "red"}}})
        alice.patch(f"{maps}/blue", {"data": {"a": "2"}})
        alice.patch(f"{maps}/blue", {"metadata": {"labels": {"color": "green"}}})
        alice.delete(f"{maps}/blue")
        alice.post(maps, config_map("red", labels={"color": "red"}))
        events = watch.take(4)
    assert names(events) == [("ADDED", "blue"), ("MODIFIED", "blue"), ("DELETED", "blue"), ("ADDED", "red")]


def test_initial_events_end_with_a_marked_bookmark(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("one"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with alice.watch(maps, **query) as watch:
        *added, bookmark = watch.take(3)
    assert names(added) == [("ADDED", "kube-root-ca.crt"), ("ADDED", "one")]
    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert alice.watch(maps, sendInitialEvents="true").status == 422


def test_table_watch_names_its_columns_once(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("one"))
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    with alice.watch(maps, headers=accept) as watch:
        first = watch.take(2)[0]["object"]
        alice.post(maps, config_map("two"))
        second = watch.take(1)[0]["object"]
    assert first["kind"] == second["kind"] == "Table"
    assert [column["name"] for column in first["columnDefinitions"]][:2] == ["Name", "Data"]
    assert not second["columnDefinitions"]
    assert second["rows"][0]["cells"][0] == "two"


def test_watch_ends_at_its_timeout(alice: Caller, maps: str) -> None:
    began = time.monotonic()
    with alice.watch(maps, timeoutSeconds="600") as kept:
        assert names(alice.watch(maps, timeoutSeconds="1").until_end()) == [("ADDED", "kube-root-ca.crt")]
        assert time.monotonic() - began > 0.8
        assert not kept.ended


def test_version_from_the_future_and_nonsense_are_refused(alice: Caller, maps: str) -> None:
    assert alice.get(maps, resourceVersion="abc").status == 400
    assert alice.watch(maps, resourceVersion="abc").status == 400
    assert alice.get(maps, resourceVersion="9999999999").status == 504


def ended_with(events: list[dict[str, Any]], code: int) -> bool:
    return bool(events) and events[-1]["type"] == "ERROR" and events[-1]["object"]["code"] == code


@pytest.fixture
def viewer(server: Server, alice: Caller, namespace: str) -> Caller:
    """Somebody who may only read config maps of the namespace."""
    user = f"v-{uuid4().hex[:6]}"
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "viewers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    assert alice.post(f"{RBAC}/namespaces/{namespace}/rolebindings", body).status == 201
    return server.user("acme", user)


def test_watch_ends_when_the_binding_goes(alice: Caller, viewer: Caller, namespace: str, maps: str) -> None:
    """AZ2."""
    with viewer.watch(maps) as watch, alice.watch(maps) as kept:
        alice.post(maps, config_map("seen"))
        assert names(watch.take(2)) == [("ADDED", "kube-root-ca.crt"), ("ADDED", "seen")]
        alice.delete(f"{RBAC}/namespaces/{namespace}/rolebindings/viewers")
        assert ended_with(watch.until_end(), 403)
        assert viewer.get(maps).status == 403
        alice.post(maps, config_map("unseen"))
        assert names(kept.take(3))[-1] == ("ADDED", "unseen")


def test_watch_and_token_end_with_the_service_account(server: Server, alice: Caller, namespace: str, maps: str) -> None:
    """AN6."""
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    alice.post(accounts, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}})
    body = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "robots"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}],
    }
    assert alice.post(f"{RBAC}/namespaces/{namespace}/rolebindings", body).status == 201
    answer = alice.post(f"{accounts}/robot/token", {"spec": {}})
    robot = server.bearer(answer.body["status"]["token"])
    with robot.watch(maps) as watch:
        alice.post(maps, config_map("seen"))
        watch.take(1)
        alice.delete(f"{accounts}/robot")
        assert ended_with(watch.until_end(), 401)
    assert robot.get(maps).status == 401


def test_lock_ends_watches_and_requests_of_its_namespace_alone(
    server: Server, alice: Caller, namespace: str, maps: str
) -> None:
    """GW5."""
    lock = "INSERT INTO locks (space, namespace, reason, created_at) VALUES ('root:acme', %s, 'unpaid', now())"
    with alice.watch(maps) as watch, alice.watch("/api/v1/namespaces/default/configmaps") as other:
        alice.post(maps, config_map("seen"))
        watch.take(1)
        server.sql(lock, namespace)
        events = watch.until_end()
        assert ended_with(events, 403)
        assert "unpaid" in events[-1]["object"]["message"]
        try:
            assert alice.get(maps).status == 403
            assert alice.post(maps, config_map("x")).status == 403
            assert server.admin.get(f"/api/v1/tenants/acme/namespaces/{namespace}/configmaps").status == 200
            assert alice.get("/api/v1/namespaces/default/configmaps").status == 200
            assert not other.ended
        finally:
            server.sql("DELETE FROM locks WHERE namespace = %s", namespace)
            server.sql("NOTIFY tenantry_locks")
    assert eventually(lambda: alice.get(maps).status == 200)


def test_nobody_looks_into_a_closed_namespace_by_looking_into_all(
    server: Server, alice: Caller, namespace: str, maps: str
) -> None:
    """GW5: lists, tables, watches and collections of all namespaces leave it out, whoever in the tenant asks."""
    everywhere = "/api/v1/configmaps"
    alice.post(maps, config_map("inside"))
    alice.post("/api/v1/namespaces/default/configmaps", config_map("outside"))
    lock = "INSERT INTO locks (space, namespace, reason, created_at) VALUES ('root:acme', %s, 'unpaid', now())"

    def seen(**query: object) -> set[str]:
        answer = alice.get(everywhere, **query)
        assert answer.status == 200
        return {item["metadata"]["name"] for item in answer.body["items"]}

    assert {"inside", "outside"} <= seen()
    try:
        with alice.watch(everywhere) as watch:
            server.sql(lock, namespace)
            server.sql("NOTIFY tenantry_locks")
            # Whoever has seen what is closed now has to look again.
            assert ended_with(watch.until_end(), 410)
        assert "outside" in seen()
        assert "outside" in seen(limit=500)
        for query in ({}, {"fieldSelector": f"metadata.namespace={namespace}"}, {"labelSelector": "!none"}):
            assert "inside" not in seen(**query)
        with alice.watch(everywhere) as watch:
            server.admin.post(f"/clusters/root:acme{maps}", config_map("written"))
            alice.post("/api/v1/namespaces/default/configmaps", config_map("after"))
            names: set[str] = set()
            while "after" not in names:
                names |= {event["object"]["metadata"]["name"] for event in watch.take(1)}
            assert names.isdisjoint({"inside", "written"})
        listed = server.admin.get("/clusters/root:acme/api/v1/configmaps").body["items"]
        assert "inside" in {item["metadata"]["name"] for item in listed}
    finally:
        server.sql("DELETE FROM locks WHERE namespace = %s", namespace)
        server.sql("NOTIFY tenantry_locks")
        for name in ("outside", "after"):
            alice.delete(f"/api/v1/namespaces/default/configmaps/{name}")
    assert eventually(lambda: "inside" in seen())


def test_lock_of_a_space_closes_all_of_it_and_only_it(server: Server, alice: Caller, gina: Caller) -> None:
    """GW5."""
    path = "/api/v1/namespaces/default/configmaps"
    with gina.watch(path) as watch, alice.watch(path) as other:
        server.sql("INSERT INTO locks (space, namespace, reason, created_at) VALUES ('root:globex', '', 'gone', now())")
        server.sql("NOTIFY tenantry_locks")
        try:
            assert ended_with(watch.until_end(), 403)
            assert gina.get("/api/v1/namespaces").status == 403
            assert gina.get("/version").status == 403
            assert not other.ended
        finally:
            server.sql("DELETE FROM locks WHERE space = 'root:globex'")
            server.sql("NOTIFY tenantry_locks")
    assert eventually(lambda: gina.get("/api/v1/namespaces").status == 200)


def test_right_that_ends_while_a_watch_waits_for_its_beginning_ends_the_watch(server: Server, alice: Caller) -> None:
    """CT-07: a watch from a revision that the revocation itself brings about."""
    bindings = f"{RBAC}/clusterrolebindings"
    binding = {
        "metadata": {"name": "waiting"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "walter"}],
    }
    walter = server.user("acme", "walter")
    events: list[dict[str, Any]] = []
    # One that comes only after the right has ended is refused, one that has waited too long is too, and one that another
    # write lets begin has not waited: none of them shows anything, and it is tried again.
    for seconds in itertools.chain(itertools.repeat(0.5, 3), itertools.cycle((0.1, 1, 2))):
        assert alice.post(bindings, binding).status == 201
        seen = walter.get("/api/v1/configmaps", limit=1)
        assert seen.status == 200
        with ThreadPoolExecutor(1) as pool:
            opening = pool.submit(
                walter.watch,
                "/api/v1/configmaps",
                resourceVersion=int(seen.body["metadata"]["resourceVersion"]) + 1,
                sendInitialEvents="true",
                resourceVersionMatch="NotOlderThan",
            )
            time.sleep(seconds)
            assert alice.delete(f"{bindings}/waiting").status == 200
            with opening.result() as watch:
                if watch.status in (403, 504):
                    continue
                events = watch.until_end()
        assert (events[-1]["type"], events[-1]["object"]["code"]) == ("ERROR", 403)
        if len(events) == 1:
            break
    assert len(events) == 1


def test_right_that_ends_while_a_body_trickles_in_ends_the_write(server: Server, alice: Caller, maps: str) -> None:
    """GW5: who is closed out writes nothing more, however slowly it was begun."""
    binding = {
        "metadata": {"name": "slow"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "sonja"}],
    }
    bindings = f"{RBAC}/clusterrolebindings"
    assert alice.post(bindings, binding).status == 201
    sonja = server.user("acme", "sonja")
    body = json.dumps(config_map("slow")).encode()
    connection = HTTPSConnection(sonja.host, context=sonja.context, timeout=300)
    connection.putrequest("POST", maps)
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body[:10])
    time.sleep(0.5)
    assert alice.delete(f"{bindings}/slow").status == 200
    connection.send(body[10:])
    assert connection.getresponse().status == 403
    connection.close()
    assert alice.get(f"{maps}/slow").status == 404


def test_what_is_frozen_is_read_and_watched_and_not_written(
    server: Server, alice: Caller, namespace: str, maps: str
) -> None:
    """GW28: from the commit on, with the reason; operators write, and other namespaces are none the wiser."""
    freeze = (
        "INSERT INTO freezes (id, tenant_id, space, namespace, reason, frozen_by, frozen_at)"
        " VALUES (gen_random_uuid(), 'acme', 'root:acme', %s, 'audit', 'olga', now())"
    )
    alice.post(maps, config_map("before"))
    with alice.watch(maps) as watch:
        server.sql(freeze, namespace)
        server.sql("NOTIFY tenantry_locks")
        try:
            assert eventually(lambda: alice.post(maps, config_map("x")).status == 403)
            for method, path in (("PUT", "/before"), ("PATCH", "/before"), ("DELETE", "/before"), ("DELETE", "")):
                answer = alice.call(method, f"{maps}{path}", config_map("before"))
                assert (answer.status, "frozen: audit" in str(answer.body)) == (403, True), (method, path)
            assert alice.call("DELETE", "/api/v1/configmaps").status in (403, 405)
            assert alice.delete(f"/api/v1/namespaces/{namespace}").status == 403
            assert alice.get(f"{maps}/before").status == 200
            assert alice.post("/api/v1/namespaces/default/configmaps", config_map("free")).status in (201, 409)
            assert server.admin.post(f"/clusters/root:acme{maps}", config_map("by-operator")).status == 201
            seen: set[str] = set()
            while "by-operator" not in seen:
                seen |= {event["object"]["metadata"]["name"] for event in watch.take(1)}
            rules = {"spec": {"namespace": namespace}}
            listed = alice.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", rules).body["status"]
            writes = [rule for rule in listed["resourceRules"] if {"*", "create", "delete"} & set(rule["verbs"])]
            questions = {"authorization.k8s.io", "authentication.k8s.io"}
            assert all(set(rule["apiGroups"]) <= questions for rule in writes), writes
        finally:
            server.sql("DELETE FROM freezes WHERE namespace = %s", namespace)
            server.sql("NOTIFY tenantry_locks")
    assert eventually(lambda: alice.post(maps, config_map("after")).status == 201)
    alice.delete("/api/v1/namespaces/default/configmaps/free")
