"""Objects over HTTP: what is kept, what the server adds, and what it refuses (TS2, TS5, TS15)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.gateway.callers import Answer, Caller, config_map, eventually
from tests.gateway.conftest import Server


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def test_created_object_carries_tenant_full_path_and_identity(alice: Caller, maps: str, namespace: str) -> None:
    """TS2, TS5."""
    created = alice.post(maps, config_map("one"))
    assert created.status == 201
    metadata = created.body["metadata"]
    assert metadata["tenant"] == "acme"
    assert metadata["selfLink"] == f"/api/v1/tenants/acme/namespaces/{namespace}/configmaps/one"
    assert metadata["uid"]
    assert metadata["creationTimestamp"].endswith("Z")
    assert metadata["resourceVersion"].isdigit()
    assert alice.get(metadata["selfLink"]).body == alice.get(f"{maps}/one").body == created.body


def test_object_of_the_system_space_has_the_plain_path_and_no_tenant(admin: Caller) -> None:
    """TS4."""
    body = admin.get("/api/v1/namespaces/default").body
    assert body["metadata"]["selfLink"] == "/api/v1/namespaces/default"
    assert "tenant" not in body["metadata"]


def test_body_naming_another_tenant_is_refused_never_moved(alice: Caller, maps: str) -> None:
    """TS2."""
    refused = alice.post(maps, config_map("moved", tenant="globex"))
    assert (refused.status, refused.reason) == (400, "BadRequest")
    assert alice.get(f"{maps}/moved").status == 404
    assert alice.post(maps, config_map("stays", tenant="acme")).status == 201


def test_taken_name_is_a_conflict(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("twice"))
    again = alice.post(maps, config_map("twice"))
    assert (again.status, again.reason) == (409, "AlreadyExists")
    assert again.body["message"] == 'configmaps "twice" already exists'


def test_generated_names_differ(alice: Caller, maps: str) -> None:
    body = config_map("")
    body["metadata"] = {"generateName": "g-"}
    found = {alice.post(maps, body).body["metadata"]["name"] for _ in range(3)}
    assert len(found) == 3
    assert all(name.startswith("g-") for name in found)


@pytest.mark.parametrize("dry_run", [{}, {"dryRun": "All"}])
def test_a_name_that_is_given_is_kept_beside_the_prefix_of_another(
    alice: Caller, maps: str, dry_run: dict[str, str]
) -> None:
    """TS15: what was exported has both, and is made once."""
    exported = config_map(f"both-{len(dry_run)}", generateName="both-")
    assert alice.post(maps, exported).status == 201
    again = alice.post(maps, exported, **dry_run)
    assert (again.status, again.reason) == (409, "AlreadyExists")
    assert len([item for item in alice.get(maps).body["items"] if item["metadata"].get("generateName")]) == 1


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"apiVersion": "v2"}, 400),
        ({"kind": "Secret"}, 400),
        ({"kind": 1}, 400),
        ({"metadata": {"name": "Upper_Case"}}, 422),
        ({"metadata": {}}, 422),
        ({"metadata": {"name": "x", "namespace": "elsewhere"}}, 400),
        ({"metadata": {"name": "x", "resourceVersion": "5"}}, 400),
        ({"metadata": "text"}, 400),
        ({"data": {"a": 1}}, 400),
        ({"data": {"a b": "x"}}, 422),
        ({"metadata": {"name": "x", "labels": {"a": "-"}}}, 422),
    ],
)
def test_bad_body_is_refused_with_its_reason(alice: Caller, maps: str, change: dict[str, Any], status: int) -> None:
    refused = alice.post(maps, {**config_map("bad"), **change})
    assert refused.status == status, refused.body
    assert refused.body["kind"] == "Status"


def test_every_cause_is_named_at_once(alice: Caller, namespace: str) -> None:
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {"replicas": -1}}
    refused = alice.post(f"/apis/apps/v1/namespaces/{namespace}/deployments", body)
    assert refused.status == 422
    fields = {cause["field"] for cause in refused.body["details"]["causes"]}
    assert {"spec.replicas", "spec.selector"} <= fields


def test_an_owner_that_is_named_twice_is_kept_once_with_a_warning(alice: Caller, maps: str) -> None:
    """TS15: whichever way it is written, whoever named it again."""
    owner = alice.post(maps, config_map("owner")).body["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner}
    blocking = {**reference, "blockOwnerDeletion": True}
    words = ".metadata.ownerReferences contains duplicate entries"

    def says(answer: Answer, words: str) -> bool:
        assert answer.body["metadata"]["ownerReferences"] == [reference, blocking]
        return words in answer.headers.get("warning", "") and f"observed: {owner}" in answer.headers["warning"]

    twice = config_map("owned", ownerReferences=[reference, blocking, reference])
    assert says(alice.post(maps, twice), f"{words};")
    assert says(alice.put(f"{maps}/owned", twice), f"{words};")
    again = {"metadata": {"ownerReferences": [reference, blocking, blocking]}}
    assert says(alice.patch(f"{maps}/owned", again), f"{words} after mutating admission happens;")
    once = config_map("owned", ownerReferences=[reference, blocking])
    assert "warning" not in alice.put(f"{maps}/owned", once).headers


@pytest.mark.parametrize(("mode", "status"), [("Strict", 400), ("Warn", 201), ("Ignore", 201)])
def test_unknown_field_is_handled_as_asked(alice: Caller, maps: str, mode: str, status: int) -> None:
    answer = alice.post(maps, {**config_map(f"fv-{mode.lower()}"), "surprise": 1}, fieldValidation=mode)
    assert answer.status == status
    assert ("warning" in answer.headers) == (mode == "Warn")
    if status == 400:
        assert 'unknown field "surprise"' in answer.body["message"]
    else:
        assert "surprise" not in answer.body


def test_dry_run_keeps_nothing(alice: Caller, maps: str) -> None:
    assert alice.post(maps, config_map("ghost"), dryRun="All").status == 201
    assert alice.get(f"{maps}/ghost").status == 404
    alice.post(maps, config_map("real"))
    assert alice.patch(f"{maps}/real", {"data": {"a": "2"}}, dryRun="All").body["data"] == {"a": "2"}
    assert alice.delete(f"{maps}/real", dryRun="All").status == 200
    assert alice.get(f"{maps}/real").body["data"] == {"a": "1"}
    assert alice.post(maps, config_map("ghost"), dryRun="Some").status == 422


def test_stale_update_is_a_conflict_and_a_fresh_one_wins(alice: Caller, maps: str) -> None:
    old = alice.post(maps, config_map("opt")).body
    new = alice.put(f"{maps}/opt", {**old, "data": {"a": "2"}})
    assert new.status == 200
    assert int(new.body["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])
    stale = alice.put(f"{maps}/opt", {**old, "data": {"a": "3"}})
    assert (stale.status, stale.reason) == (409, "Conflict")
    assert "the object has been modified" in stale.body["message"]


def test_concurrent_unconditional_updates_all_count(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("many"))
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda i: alice.patch(f"{maps}/many", {"data": {f"k{i}": "v"}}), range(24)))
    assert {answer.status for answer in answers} == {200}
    assert len(alice.get(f"{maps}/many").body["data"]) == 25


def test_of_many_who_make_an_object_by_put_all_are_heard(alice: Caller, namespace: str) -> None:
    """TS15: one makes it, the others replace it."""
    path = f"/api/v1/namespaces/{namespace}/endpoints"
    heard = []
    with ThreadPoolExecutor(8) as pool:
        for name in (f"e{number}" for number in range(8)):
            body = {"metadata": {"name": name, "generateName": "e-"}}
            heard.append(sorted(pool.map(lambda _, n=name, b=body: alice.put(f"{path}/{n}", b).status, range(8))))
    assert heard == [[200] * 7 + [201]] * 8
    assert len(alice.get(path).body["items"]) == 8


def test_what_is_still_there_is_said_to_who_asks_for_it(alice: Caller, maps: str) -> None:
    """TS15: as with kube-apiserver, to nobody else."""
    for name, options, status in (
        ("a", {"orphanDependents": False}, 202),
        ("b", {"orphanDependents": True}, 200),
        ("c", {"propagationPolicy": "Background"}, 200),
        ("d", {}, 200),
    ):
        alice.post(maps, config_map(name, finalizers=["example.com/hold"]))
        assert alice.delete(f"{maps}/{name}", options).status == status, name
    alice.post(maps, config_map("free"))
    assert alice.delete(f"{maps}/free", {"orphanDependents": False}).status == 200
    assert alice.delete(f"{maps}/a", orphanDependents="false").status == 202


BOTH = 'Invalid value: "{}": orphanDependents and deletionPropagation cannot be both set'
NO_POLICY = 'Unsupported value: "{}": supported values: "Foreground", "Background", "Orphan", "nil"'
NO_DRY_RUN = 'Unsupported value: ["All","Some"]: supported values: "All"'
MISREAD = "json: cannot unmarshal {} into Go struct field {}"


@pytest.mark.parametrize(
    ("options", "query", "causes"),
    [
        (
            {"orphanDependents": False, "propagationPolicy": "Up", "dryRun": ["All", "Some"]},
            {},
            [BOTH.format("Up"), NO_POLICY.format("Up"), NO_DRY_RUN],
        ),
        ({"propagationPolicy": ""}, {}, [NO_POLICY.format("")]),
        (None, {"propagationPolicy": ""}, [NO_POLICY.format("")]),
        (None, {"orphanDependents": "0", "propagationPolicy": "Up"}, [BOTH.format("Up"), NO_POLICY.format("Up")]),
    ],
)
def test_all_that_is_wrong_with_how_to_delete_is_said(
    alice: Caller, maps: str, options: object, query: dict[str, str], causes: list[str]
) -> None:
    """TS15: what the object is does not matter, nor whether it is there."""
    answer = alice.delete(f"{maps}/none", options, **query)
    assert answer.status == 422
    assert [cause["message"] for cause in answer.body["details"]["causes"]] == causes
    kind = {key: answer.body["details"][key] for key in ("group", "kind")}
    assert kind == {"group": "meta.k8s.io", "kind": "DeleteOptions"}


@pytest.mark.parametrize(
    ("options", "query", "said"),
    [
        (
            {"gracePeriodSeconds": 1.5},
            {},
            MISREAD.format("number 1.5", "DeleteOptions.gracePeriodSeconds of type int64"),
        ),
        (
            {"gracePeriodSeconds": 2**63},
            {},
            MISREAD.format(f"number {2**63}", "DeleteOptions.gracePeriodSeconds of type int64"),
        ),
        ({"dryRun": ["All", 5]}, {}, MISREAD.format("number", "DeleteOptions.dryRun of type string")),
        (
            {"preconditions": {"uid": 5}},
            {},
            MISREAD.format("number", "Preconditions.preconditions.uid of type types.UID"),
        ),
        (
            {"preconditions": {"resourceVersion": 5}},
            {},
            MISREAD.format("number", "Preconditions.preconditions.resourceVersion of type string"),
        ),
        (
            None,
            {"gracePeriodSeconds": 10**20},
            f'strconv.ParseInt: parsing "{10**20}": value out of range',
        ),
    ],
)
def test_options_of_a_deletion_are_read_as_what_they_are(
    alice: Caller, maps: str, options: object, query: dict[str, object], said: str
) -> None:
    """TS15."""
    answer = alice.delete(f"{maps}/none", options, **query)
    assert (answer.status, answer.body["message"]) == (400, said)


def test_a_query_says_nothing_about_a_deletion_that_has_a_body(alice: Caller, maps: str) -> None:
    """TS15: as with kube-apiserver; of a dry run see ``tests/conformance/test_own_ways.py``."""
    alice.post(maps, config_map("kept"))
    asked = {"propagationPolicy": "Foreground", "gracePeriodSeconds": "x"}
    assert alice.delete(f"{maps}/kept", {"dryRun": ["All", "All"]}, **asked).body["status"] == "Success"
    assert alice.delete(f"{maps}/kept", {}, **asked).body["status"] == "Success"
    assert alice.get(f"{maps}/kept").status == 404


@pytest.mark.parametrize(
    ("timeout", "status", "said"),
    [
        ("invalid", 400, 'time: invalid duration "invalid"'),
        ("5", 400, 'time: missing unit in duration "5"'),
        ("5y", 400, 'time: unknown unit "y" in duration "5y"'),
        ("9999999h", 400, 'time: invalid duration "9999999h"'),
        ("1m30s", 200, ""),
        ("-5s", 200, ""),
        ("0", 200, ""),
        ("", 200, ""),
    ],
)
def test_a_timeout_that_is_none_is_refused(alice: Caller, maps: str, timeout: str, status: int, said: str) -> None:
    """TS15: by the words of kube-apiserver; a watch has another."""
    answer = alice.get(maps, timeout=timeout)
    assert answer.status == status
    if said:
        assert answer.body["message"] == f"invalid timeout specified in the request URL - {said}"
        assert alice.watch(maps, timeout=timeout, timeoutSeconds=1).status == 200


def test_who_waits_for_a_second_is_answered_no_later(alice: Caller, maps: str) -> None:
    """TS15: here a body does not come, for which any other request is given half a minute."""
    answer = alice.open("POST", f"{maps}?timeout=1s", b"", {"Content-Length": "2"})
    assert answer.status == 504
    assert json.loads(answer.read()) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Timeout: request did not complete within the allotted timeout",
        "reason": "Timeout",
        "details": {},
        "code": 504,
    }


def test_update_that_changes_nothing_writes_nothing(alice: Caller, maps: str) -> None:
    body = alice.post(maps, config_map("calm")).body
    assert alice.put(f"{maps}/calm", body).body["metadata"]["resourceVersion"] == body["metadata"]["resourceVersion"]


def test_identity_of_an_object_cannot_be_changed(alice: Caller, maps: str) -> None:
    body = alice.post(maps, config_map("me")).body
    changed = {**body, "metadata": {**body["metadata"], "creationTimestamp": "2001-01-01T00:00:00Z", "selfLink": "/x"}}
    answer = alice.put(f"{maps}/me", {**changed, "data": {"a": "9"}}).body["metadata"]
    assert answer["creationTimestamp"] == body["metadata"]["creationTimestamp"]
    assert answer["selfLink"] == body["metadata"]["selfLink"]
    other = {**body, "metadata": {**body["metadata"], "uid": "another"}}
    assert alice.put(f"{maps}/me", other).status == 409
    assert alice.put(f"{maps}/you", body).status == 400


def test_generation_counts_changes_of_the_spec_alone(alice: Caller, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
        "status": {"replicas": 9},
    }
    created = alice.post(path, body).body
    assert created["metadata"]["generation"] == 1
    assert created["spec"]["replicas"] == 1
    assert "replicas" not in created.get("status", {})
    assert alice.patch(f"{path}/web", {"metadata": {"labels": {"x": "y"}}}).body["metadata"]["generation"] == 1
    assert alice.patch(f"{path}/web", {"spec": {"replicas": 3}}).body["metadata"]["generation"] == 2
    status = alice.patch(f"{path}/web/status", {"status": {"replicas": 3}, "spec": {"replicas": 7}}).body
    assert (status["status"]["replicas"], status["spec"]["replicas"], status["metadata"]["generation"]) == (3, 3, 2)
    scale = alice.get(f"{path}/web/scale").body
    assert (scale["kind"], scale["spec"]["replicas"], scale["status"]["selector"]) == ("Scale", 3, "a=b")
    scale["spec"]["replicas"] = 5
    assert alice.put(f"{path}/web/scale", scale).body["spec"]["replicas"] == 5
    assert alice.put(f"{path}/web/scale", scale).status == 409
    assert alice.get(f"{path}/web").body["metadata"]["generation"] == 3


def test_finalizers_hold_a_deleted_object_until_the_last_one_goes(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("held", finalizers=["example.com/a", "example.com/b"]))
    marked = alice.delete(f"{maps}/held").body
    assert marked["kind"] == "ConfigMap"
    assert marked["metadata"]["deletionTimestamp"]
    again = alice.delete(f"{maps}/held").body
    assert again["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    added = {"metadata": {"finalizers": ["example.com/a", "example.com/c"]}}
    assert alice.patch(f"{maps}/held", added).status == 422
    assert alice.patch(f"{maps}/held", {"metadata": {"finalizers": ["example.com/b"]}}).status == 200
    assert alice.patch(f"{maps}/held", {"metadata": {"finalizers": []}}).status == 200
    assert alice.get(f"{maps}/held").status == 404


def test_deletion_respects_preconditions(alice: Caller, maps: str) -> None:
    body = alice.post(maps, config_map("guarded")).body
    for preconditions in ({"uid": "other"}, {"resourceVersion": "1"}):
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        assert alice.delete(f"{maps}/guarded", options).status == 409
    gone = alice.delete(f"{maps}/guarded", {"preconditions": {"uid": body["metadata"]["uid"]}})
    assert (gone.status, gone.body["status"], gone.body["details"]["kind"]) == (200, "Success", "configmaps")
    assert alice.delete(f"{maps}/guarded").status == 404


def test_collection_is_deleted_by_selector_and_shown_as_it_was(alice: Caller, maps: str) -> None:
    for index in range(4):
        alice.post(maps, config_map(f"c{index}", labels={"even": str(index % 2 == 0).lower()}))
    gone = alice.delete(maps, labelSelector="even=true")
    assert gone.status == 200
    assert [item["metadata"]["name"] for item in gone.body["items"]] == ["c0", "c2"]
    left = alice.get(maps).body["items"]
    assert [item["metadata"]["name"] for item in left] == ["c1", "c3", "kube-root-ca.crt"]


def test_dependents_follow_their_owner(alice: Caller, maps: str) -> None:
    owner = alice.post(maps, config_map("owner")).body["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    alice.post(maps, config_map("dependent", ownerReferences=[reference]))
    assert alice.get(f"{maps}/dependent").status == 200
    alice.delete(f"{maps}/owner")
    assert eventually(lambda: alice.get(f"{maps}/dependent").status == 404)


def test_namespace_is_emptied_before_it_goes_and_takes_nothing_new(alice: Caller, namespace: str, maps: str) -> None:
    alice.post(maps, config_map("last", finalizers=["example.com/wait"]))
    terminating = alice.delete(f"/api/v1/namespaces/{namespace}").body
    assert terminating["status"]["phase"] == "Terminating"
    refused = alice.post(maps, config_map("late"))
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert "being terminated" in refused.body["message"]
    assert eventually(lambda: "deletionTimestamp" in alice.get(f"{maps}/last").body["metadata"])
    alice.patch(f"{maps}/last", {"metadata": {"finalizers": None}})
    assert eventually(lambda: alice.get(f"/api/v1/namespaces/{namespace}").status == 404)


def test_nothing_is_created_in_a_namespace_that_is_not_there(alice: Caller) -> None:
    refused = alice.post("/api/v1/namespaces/nowhere/configmaps", config_map("x"))
    assert (refused.status, refused.body["message"]) == (404, 'namespaces "nowhere" not found')


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_first_namespaces_cannot_be_deleted(admin: Caller, name: str) -> None:
    assert admin.delete(f"/api/v1/namespaces/{name}").status == 403


def test_daemonsets_and_nodes_have_no_place_in_a_tenant_space(alice: Caller, server: Server, namespace: str) -> None:
    """AD4."""
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    }
    assert alice.post(f"/apis/apps/v1/namespaces/{namespace}/daemonsets", body).status == 403
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    assert alice.post("/api/v1/nodes", node).status == 403
    assert server.admin.post("/api/v1/tenants/acme/nodes", node).status == 404


def test_pod_uses_the_default_account(alice: Caller, namespace: str) -> None:
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p1"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    assert alice.post(pods, pod).body["spec"]["serviceAccountName"] == "default"
    pod["metadata"]["name"] = "p2"
    pod["spec"]["serviceAccountName"] = "nobody"
    assert alice.post(pods, pod).status == 403
