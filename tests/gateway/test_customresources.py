"""CRDs per space: installed, published, taken over, taken away (TS10 to TS12)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from access.admission.tenancy.tenantscope import OWN_DOMAINS
from kube.kinds.builtins import OWN
from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server, another
from tests.gateway.definitions import CRDS, collection, custom, definition, install, remove

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


def spec(**properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties}


def groups(caller: Caller) -> list[str]:
    return [group["name"] for group in caller.get("/apis").body["groups"]]


def test_two_tenants_use_the_same_definition_with_different_schemas_at_once(
    admin: Caller, alice: Caller, gina: Caller
) -> None:
    """TS10: objects, discovery, OpenAPI and explain of one never show in the other."""
    install(alice, definition("Crontab", spec(size=NUMBER)))
    assert "example.com" not in groups(gina)
    assert gina.get(collection("crontabs")).status == 404
    install(gina, definition("Crontab", spec(size=TEXT, colour=TEXT), scope="Namespaced"))
    assert alice.post(collection("crontabs"), custom("Crontab", "a", {"size": 1, "colour": "red"})).body["spec"] == {
        "size": 1
    }
    assert gina.post(collection("crontabs"), custom("Crontab", "b", {"size": "1", "colour": "red"})).status == 201
    refused = alice.post(collection("crontabs"), custom("Crontab", "c", {"size": "1"}))
    assert refused.status == 422
    assert refused.body["details"]["causes"][0]["field"] == "spec.size"
    for caller, other in ((alice, "b"), (gina, "a")):
        listed = caller.get(collection("crontabs")).body["items"]
        assert other not in [item["metadata"]["name"] for item in listed]
        assert caller.get(f"{collection('crontabs')}/{other}").status == 404
    for caller, has in ((alice, False), (gina, True)):
        model = caller.get("/openapi/v3/apis/example.com/v1").body["components"]["schemas"]["com.example.v1.Crontab"]
        assert ("colour" in model["properties"]["spec"]["properties"]) is has
        assert ('"colour"' in caller.get("/openapi/v2").raw.decode()) is has
    assert "example.com" not in groups(admin)
    remove(alice, "crontabs.example.com")
    assert alice.get(collection("crontabs")).status == 404
    assert gina.get(f"{collection('crontabs')}/b").status == 200
    remove(gina, "crontabs.example.com")


def test_a_published_definition_reaches_every_tenant_and_no_other_does(
    admin: Caller, alice: Caller, gina: Caller
) -> None:
    """TS11: live, in both directions; tenants neither see nor change the definition itself."""
    crd = definition("Backup", spec(size=NUMBER))
    install(admin, crd)
    assert alice.get(collection("backups")).status == 404
    path = f"{CRDS}/backups.example.com"
    for value, status in (("yes", 404), ("true", 200), (None, 404), ("true", 200)):
        admin.patch(path, {"metadata": {"annotations": {"multi-tenancy.k8s.io/published": value}}})
        assert {alice.get(collection("backups")).status, gina.get(collection("backups")).status} == {status}
        if status == 200 and not alice.get(collection("backups")).body["items"]:
            assert alice.post(collection("backups"), custom("Backup", "mine", {"size": 1})).status == 201
    assert alice.get(f"{collection('backups')}/mine").body["metadata"]["tenant"] == "acme"
    assert gina.get(collection("backups")).body["items"] == []
    assert alice.get(path).status == 404
    assert alice.get(CRDS).body["items"] == []
    assert alice.delete(path).status == 404
    everywhere = admin.get("/apis/example.com/v1/tenants/*/backups")
    assert [item["metadata"]["tenant"] for item in everywhere.body["items"]] == ["acme"]
    remove(admin, "backups.example.com")
    assert alice.get(collection("backups")).status == 404


def test_a_tenants_own_definition_takes_over_and_gives_back(admin: Caller, alice: Caller, gina: Caller) -> None:
    """TS12: objects are shown by the definition that made them and by no other."""
    crd = definition("Topic", spec(size=NUMBER))
    crd["metadata"]["annotations"] = {"multi-tenancy.k8s.io/published": "true"}
    install(admin, crd)
    assert alice.post(collection("topics"), custom("Topic", "shared", {"size": 1})).status == 201
    with alice.watch(collection("topics")) as watch:
        watch.take(1)
        install(alice, definition("Topic", spec(colour=TEXT)))
        ended = watch.until_end()
        assert ended[-1]["object"]["code"] == 410
    assert alice.get(collection("topics")).body["items"] == []
    assert alice.post(collection("topics"), custom("Topic", "shared", {"colour": "red"})).status == 201
    resources = [r for r in alice.get("/apis/example.com/v1").body["resources"] if r["name"] == "topics"]
    assert len(resources) == 1
    assert gina.post(collection("topics"), custom("Topic", "theirs", {"size": 2})).body["spec"] == {"size": 2}
    remove(alice, "topics.example.com")
    assert [item["spec"] for item in alice.get(collection("topics")).body["items"]] == [{"size": 1}]
    remove(admin, "topics.example.com")
    install(admin, crd)
    assert alice.get(collection("topics")).body["items"] == []
    assert gina.get(collection("topics")).body["items"] == []
    remove(admin, "topics.example.com")


def test_a_definition_goes_when_the_last_of_its_objects_has_gone(admin: Caller, alice: Caller) -> None:
    """TS10: objects first, those with finalizers when they are let go; nothing new meanwhile."""
    crd = definition("Disk")
    crd["metadata"]["annotations"] = {"multi-tenancy.k8s.io/published": "true"}
    install(admin, crd)
    alice.post(collection("disks"), custom("Disk", "plain"))
    alice.post(collection("disks"), custom("Disk", "held", finalizers=["example.com/hold"]))
    path = f"{CRDS}/disks.example.com"
    gone = admin.delete(path).body
    assert gone["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
    assert gone["status"]["conditions"][-1]["reason"] == "InstanceDeletionPending"
    assert eventually(lambda: alice.get(f"{collection('disks')}/plain").status == 404)
    refused = alice.post(collection("disks"), custom("Disk", "late"))
    assert (refused.status, refused.reason) == (405, "MethodNotAllowed")
    assert refused.body["message"] == "create not allowed while custom resource definition is terminating"
    assert refused.body["details"] == {"group": "example.com", "kind": "disks"}
    assert eventually(
        lambda: admin.get(path).body["status"]["conditions"][-1]["reason"] == "InstanceDeletionInProgress"
    )
    assert alice.get(f"{collection('disks')}/held").body["metadata"]["deletionTimestamp"]
    alice.patch(f"{collection('disks')}/held", {"metadata": {"finalizers": None}})
    assert eventually(lambda: admin.get(path).status == 404)
    assert alice.get(collection("disks")).status == 404


def test_names_belong_to_who_came_first_until_they_come_free(alice: Caller) -> None:
    install(alice, definition("Apple"))
    other = definition("Orange")
    other["spec"]["names"] |= {"kind": "Apple", "listKind": "OrangeList", "singular": "orange"}
    conditions = {c["type"]: c for c in install(alice, other)["status"]["conditions"]}
    assert conditions["NamesAccepted"]["reason"] == "KindConflict"
    assert conditions["Established"]["status"] == "False"
    assert alice.get(collection("oranges")).status == 404
    remove(alice, "apples.example.com")
    assert eventually(lambda: alice.get(collection("oranges")).status == 200)
    remove(alice, "oranges.example.com")


def test_a_wrong_definition_is_refused_with_every_cause(alice: Caller) -> None:
    """ADM-19 among them: protected groups need an approval."""
    crd = definition("Thing", {"properties": {"a": {"type": "strin"}}}, group="things.k8s.io")
    answer = alice.post(CRDS, crd)
    assert answer.status == 422
    fields = {cause["field"] for cause in answer.body["details"]["causes"]}
    assert "metadata.annotations[api-approved.kubernetes.io]" in fields
    assert any(field.endswith("properties[a].type") for field in fields)
    ruled = definition(
        "Thing", {**spec(n=NUMBER), "x-kubernetes-validations": [{"rule": "self.m > 1"}, {"rule": "1 +"}]}
    )
    messages = [cause["message"] for cause in alice.post(CRDS, ruled).body["details"]["causes"]]
    assert "undefined field 'm'" in messages[0]
    assert "Syntax error" in messages[1]


def test_versions_are_different_views_of_the_same_objects(alice: Caller) -> None:
    crd = definition("Widget", spec(size={**NUMBER, "default": 3}))
    old = {**crd["spec"]["versions"][0], "name": "v1beta1", "storage": False, "deprecated": True}
    crd["spec"]["versions"].append(old)
    assert install(alice, crd)["status"]["storedVersions"] == ["v1"]
    made = alice.post(collection("widgets", version="v1beta1"), custom("Widget", "w", {}, version="v1beta1"))
    assert made.body["apiVersion"] == "example.com/v1beta1"
    assert made.body["spec"] == {"size": 3}
    assert alice.get(f"{collection('widgets')}/w").body["apiVersion"] == "example.com/v1"
    path = f"{CRDS}/widgets.example.com"
    body = alice.get(path).body
    for version in body["spec"]["versions"]:
        version["storage"] = version["name"] == "v1beta1"
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["more"] = {**TEXT, "default": "x"}
    assert alice.put(path, body).body["status"]["storedVersions"] == ["v1", "v1beta1"]
    # Objects written before a default get it when they are read.
    assert alice.get(f"{collection('widgets')}/w").body["spec"] == {"size": 3, "more": "x"}
    assert alice.get(collection("widgets")).body["items"][0]["spec"] == {"size": 3, "more": "x"}
    body = alice.get(path).body
    body["spec"]["versions"] = [v for v in body["spec"]["versions"] if v["name"] == "v1beta1"]
    assert alice.put(path, body).status == 422
    remove(alice, "widgets.example.com")


def test_objects_are_pruned_filled_and_merged_by_their_schema(alice: Caller) -> None:
    ports = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {"name": TEXT, "port": NUMBER}},
    }
    schema = spec(
        size={**NUMBER, "default": 1},
        either={"x-kubernetes-int-or-string": True},
        free={"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"n": NUMBER}},
        template={
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        ports=ports,
    )
    install(alice, definition("Form", schema))
    path = collection("forms")
    body = custom(
        "Form",
        "f",
        {"either": "50%", "unknown": 1, "free": {"n": 1, "x": {"y": 2}}, "ports": [{"name": "a", "port": 1}]},
    )
    made = alice.post(path, body, fieldValidation="Warn")
    assert made.body["spec"] == {
        "size": 1,
        "either": "50%",
        "free": {"n": 1, "x": {"y": 2}},
        "ports": [{"name": "a", "port": 1}],
    }
    assert "spec.unknown" in made.headers["warning"]
    assert alice.post(path, custom("Form", "g", {"unknown": 1}), fieldValidation="Strict").status == 400
    assert alice.patch(f"{path}/f", {"spec": {"template": {"kind": "Pod"}}}).status == 422
    embedded = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"a": 1}}
    assert alice.patch(f"{path}/f", {"spec": {"template": embedded}}).body["spec"]["template"] == embedded
    applied = custom("Form", "f", {"ports": [{"name": "b", "port": 2}]})
    merged = alice.patch(f"{path}/f", applied, "apply", fieldManager="b")
    assert merged.body["spec"]["ports"] == [{"name": "a", "port": 1}, {"name": "b", "port": 2}]
    conflict = alice.patch(f"{path}/f", custom("Form", "f", {"either": 5}), "apply", fieldManager="c")
    assert conflict.status == 409
    assert alice.patch(f"{path}/f", {}, "strategic-merge").status == 415
    twice = alice.patch(f"{path}/f", {"spec": {"ports": [{"name": "a"}, {"name": "a"}]}})
    assert twice.body["details"]["causes"][0]["reason"] == "FieldValueDuplicate"
    remove(alice, "forms.example.com")


def test_rules_hold_on_every_way_to_write(alice: Caller) -> None:
    schema = {
        **spec(
            low={**NUMBER, "x-kubernetes-validations": [{"rule": "self >= oldSelf", "message": "low never falls"}]},
            high=NUMBER,
        ),
        "x-kubernetes-validations": [
            {"rule": "self.low <= self.high", "messageExpression": "'%d is above %d'.format([self.low, self.high])"}
        ],
    }
    install(alice, definition("Range", schema, subresources={"status": {}}))
    path = collection("ranges")
    refused = alice.post(path, custom("Range", "r", {"low": 3, "high": 2}))
    assert refused.status == 422
    assert refused.body["message"] == 'Range.example.com "r" is invalid: spec: Invalid value: 3 is above 2'
    assert alice.post(path, custom("Range", "r", {"low": 3, "high": 9})).status == 201
    for body, kind in (
        ({"spec": {"low": 2}}, "merge"),
        ([{"op": "replace", "path": "/spec/low", "value": 2}], "json"),
        (custom("Range", "r", {"low": 2}), "apply"),
    ):
        query = {"fieldManager": "t", "force": "true"} if kind == "apply" else {}
        answer = alice.patch(f"{path}/r", body, kind, **query)
        assert (answer.status, "low never falls" in answer.body["message"]) == (422, True)
    assert alice.patch(f"{path}/r", {"spec": {"low": 4}}).status == 200
    remove(alice, "ranges.example.com")


def test_what_was_wrong_before_a_rule_came_may_stay(alice: Caller) -> None:
    """Ratcheting: a change is judged by what it changes."""
    install(alice, definition("Old", spec(size=NUMBER, name=TEXT, sizes={"type": "array", "items": NUMBER})))
    alice.post(collection("olds"), custom("Old", "o", {"size": 99, "sizes": [99]}))
    path = f"{CRDS}/olds.example.com"
    body = alice.get(path).body
    properties = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    properties["size"] = properties["sizes"]["items"] = {**NUMBER, "maximum": 10}
    assert alice.put(path, body).status == 200
    assert alice.patch(f"{collection('olds')}/o", {"spec": {"name": "x"}}).status == 200
    assert alice.patch(f"{collection('olds')}/o", {"spec": {"size": 98}}).status == 422
    assert alice.patch(f"{collection('olds')}/o", {"spec": {"sizes": [99, 1]}}).status == 422
    remove(alice, "olds.example.com")


def test_scale_status_and_selectable_fields(alice: Caller) -> None:
    crd = definition(
        "Farm",
        spec(replicas=NUMBER, colour=TEXT),
        subresources={
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.ready"},
        },
        selectableFields=[{"jsonPath": ".spec.colour"}],
    )
    install(alice, crd)
    path = collection("farms")
    for name, colour in (("a", "red"), ("b", "blue")):
        made = alice.post(path, {**custom("Farm", name, {"replicas": 1, "colour": colour}), "status": {"ready": 9}})
        assert "status" not in made.body
    assert alice.patch(f"{path}/a/scale", {"spec": {"replicas": 4}}).body["spec"]["replicas"] == 4
    assert (
        alice.patch(f"{path}/a/status", {"status": {"ready": 2}, "spec": {"replicas": 7}}).body["spec"]["replicas"] == 4
    )
    assert alice.get(f"{path}/a/scale").body["status"]["replicas"] == 2
    chosen = alice.get(path, fieldSelector="spec.colour=red").body["items"]
    assert [item["metadata"]["name"] for item in chosen] == ["a"]
    assert alice.get(path, fieldSelector="spec.replicas=4").status == 400
    remove(alice, "farms.example.com")


def test_many_definitions_can_be_used_as_soon_as_they_are_made(alice: Caller) -> None:
    """TS10: the very first use after the answer succeeds; nothing is tried twice."""

    def make(number: int) -> int:
        kind = f"Quick{number}"
        install(alice, definition(kind, spec(size=NUMBER)))
        return alice.post(collection(f"{kind.lower()}s"), custom(kind, "x", {"size": number})).status

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(make, range(50))) == {201}
    found = {r["name"] for r in alice.get("/apis/example.com/v1").body["resources"]}
    assert {f"quick{number}s" for number in range(50)} <= found
    assert alice.call("DELETE", CRDS).status == 200
    assert eventually(lambda: alice.get(CRDS).body["items"] == [])


def test_quotas_and_namespaces_know_custom_objects(alice: Caller, namespace: str) -> None:
    """AD3: counted by their plain name; gone with their namespace."""
    install(alice, definition("Leaf"))
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q"},
        "spec": {"hard": {"count/leafs.example.com": "2"}},
    }
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    assert alice.post(collection("leafs", namespace), custom("Leaf", "early")).status == 201
    assert alice.post(path, quota).status == 201
    assert eventually(
        lambda: alice.get(f"{path}/q").body.get("status", {}).get("used") == {"count/leafs.example.com": "1"}
    )
    assert alice.post(collection("leafs", namespace), custom("Leaf", "second")).status == 201
    assert alice.post(collection("leafs", namespace), custom("Leaf", "third")).status == 403
    assert alice.delete(f"/api/v1/namespaces/{namespace}").status == 200
    assert eventually(lambda: alice.get(f"/api/v1/namespaces/{namespace}").status == 404)
    assert alice.get("/apis/example.com/v1/leafs").body["items"] == []
    remove(alice, "leafs.example.com")


def test_another_server_process_serves_the_same_definitions(server: Server, alice: Caller, tmp_path: Path) -> None:
    """A second process on the database knows what was, learns what becomes, and may be killed at any time."""
    install(alice, definition("Before", spec(size=NUMBER)))
    alice.post(collection("befores"), custom("Before", "x", {"size": 1}))
    with another(server, tmp_path / "second") as second:
        there = second.user("acme", "alice", "tenantry:owner")
        assert there.get(f"{collection('befores')}/x").body["spec"] == {"size": 1}
        install(alice, definition("During"))
        assert eventually(lambda: there.post(collection("durings"), custom("During", "y")).status == 201)
        remove(there, "befores.example.com")
        assert eventually(lambda: alice.get(collection("befores")).status == 404)
        alice.post(collection("durings"), custom("During", "held", finalizers=["example.com/hold"]))
        there.delete(f"{CRDS}/durings.example.com")
        second.process.kill()
        second.process.wait()
    assert alice.patch(f"{collection('durings')}/held", {"metadata": {"finalizers": None}}).status == 200
    assert eventually(lambda: alice.get(f"{CRDS}/durings.example.com").status == 404)


def test_no_tenant_defines_resources_in_the_platforms_own_groups(admin: Caller, alice: Caller) -> None:
    """AD4: neither as a CRD nor for export; what only looks like one of those groups is the tenant's to choose."""
    served = {resource.group for resource in OWN}
    own = [f"{prefix}{domain}" for domain in OWN_DOMAINS for prefix in ("", "tenancy.", "of.my.own.")]
    for group in sorted(served | set(own)):
        if not group.endswith(OWN_DOMAINS):
            continue
        crd = definition("Rival", spec(size=NUMBER), group=group)
        version = {"name": "v1", "served": True, "storage": True, "schema": {"type": "object"}}
        schema = {
            "metadata": {"name": f"v1.rivals.{group}"},
            "spec": {"group": group, "names": crd["spec"]["names"], "scope": "Namespaced", "versions": [version]},
        }
        for path, body in ((CRDS, crd), ("/apis/apis.kcp.io/v1alpha1/apiresourceschemas", schema)):
            refused = alice.post(path, body)
            assert (refused.status, refused.reason) == (403, "Forbidden"), (group, refused.body)
            assert "is the platform's own" in refused.body["message"]
        assert group in served or group not in groups(alice)
    for group in (f"my{OWN_DOMAINS[0]}", f"{OWN_DOMAINS[1]}.example.com"):
        install(alice, definition("Rival", spec(size=NUMBER), group=group))
        remove(alice, f"rivals.{group}")
    install(admin, definition("Rival", spec(size=NUMBER), group=own[1]))
    remove(admin, f"rivals.{own[1]}")
