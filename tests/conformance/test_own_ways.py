"""What differs on purpose and is in no section of the script: each is shown by a request of its own."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import pytest

from gateway.http.indentation import indented
from gateway.http.messages import Response
from tests.apiserver import OwnApiserver
from tests.speaking import Speaker
from tests.story.product import eventually

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
SHELL = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}


@pytest.fixture(scope="module")
def space(apiserver: OwnApiserver) -> Speaker:
    """A tenant's space."""
    return apiserver.tenant("ownways")


def test_what_is_compressed_is_not_indented() -> None:
    packed = Response(200, gzip.compress(b'{"a":1}'), headers=((b"content-encoding", b"gzip"),))
    assert indented(packed) is packed
    assert indented(Response(200, b'{"a":1}')).body == b'{\n  "a": 1\n}'


def test_whoever_may_delete_and_not_list_is_shown_nothing(apiserver: OwnApiserver) -> None:
    space = apiserver.admin
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["deletecollection", "delete"]}
    space.send("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "cleaner"}, "rules": [rule]})
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "cleaner"}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cleaner"}
    bound = {"metadata": {"name": "cleaner"}, "subjects": [subject], "roleRef": ref}
    space.send("POST", f"{RBAC}/clusterrolebindings", bound)
    space.send("POST", MAPS, {"metadata": {"name": "told", "labels": {"a": "b"}}, "data": {"a": "hidden"}})
    path = f"{MAPS}?labelSelector=a%3Db"
    assert space.send("DELETE", f"{path}&dryRun=All").body["items"][0]["data"] == {"a": "hidden"}
    answers = []

    def deleted() -> bool:
        answers.append(space.send("DELETE", path, Impersonate_User="cleaner"))
        return answers[-1].status == 200

    eventually(deleted)
    assert answers[-1].body == {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    assert space.send("GET", f"{MAPS}/told").status == 404
    for kind in ("clusterrolebindings", "clusterroles"):
        space.send("DELETE", f"{RBAC}/{kind}/cleaner")


def test_a_dry_run_in_the_query_deletes_nothing_whatever_the_body_says(space: Speaker) -> None:
    space.send("POST", MAPS, {"metadata": {"name": "kept"}})
    assert space.send("DELETE", f"{MAPS}/kept?dryRun=All", {"propagationPolicy": "Background"}).status == 200
    assert space.send("GET", f"{MAPS}/kept").status == 200


def test_nobody_connects_to_a_pod_that_has_a_node(apiserver: OwnApiserver) -> None:
    pod = {"metadata": {"name": "placed"}, "spec": {**SHELL, "nodeName": "nowhere"}}
    admin = apiserver.admin
    eventually(lambda: admin.send("POST", PODS, pod).status in (201, 409))
    for part in ("log", "exec?command=sh&stdout=1"):
        assert admin.send("GET", f"{PODS}/placed/{part}").status >= 400
    admin.send("DELETE", f"{PODS}/placed?gracePeriodSeconds=0")


@pytest.mark.parametrize("plural", ["flowschemas", "prioritylevelconfigurations"])
def test_there_are_no_flows_and_none_can_be_made(apiserver: OwnApiserver, plural: str) -> None:
    path = f"/apis/flowcontrol.apiserver.k8s.io/v1/{plural}"
    assert apiserver.admin.send("GET", path).body["items"] == []
    assert apiserver.admin.send("POST", path, {"metadata": {"name": "x"}, "spec": {}}).status == 405


def test_a_definition_is_established_with_the_answer_that_makes_it(space: Speaker) -> None:
    names = {"kind": "Quick", "plural": "quicks", "singular": "quick", "listKind": "QuickList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    spec = {"group": "ways.example.org", "scope": "Namespaced", "names": names, "versions": versions}
    body = {"metadata": {"name": "quicks.ways.example.org"}, "spec": spec}
    made = space.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    conditions = {each["type"]: each["status"] for each in made["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    at = "/apis/ways.example.org/v1/namespaces/default/quicks"
    quick = {"apiVersion": "ways.example.org/v1", "kind": "Quick", "metadata": {"name": "q"}}
    assert space.send("POST", at, quick).status == 201


def test_what_is_wrong_within_a_request_for_a_certificate_is_one_sentence(apiserver: OwnApiserver) -> None:
    text = "-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"
    spec = {"request": base64.b64encode(text.encode()).decode(), "signerName": "a.b/c", "usages": ["client auth"]}
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    refused = apiserver.admin.send("POST", path, {"metadata": {"name": "x"}, "spec": spec})
    assert (refused.status, len(refused["details"]["causes"])) == (422, 1)


def test_expressions_about_devices_are_kept_unread(space: Speaker) -> None:
    chosen = {"cel": {"expression": "no expression at all ("}}
    request = {"name": "r", "exactly": {"deviceClassName": "c", "selectors": [chosen]}}
    body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    made = space.send("POST", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims?dryRun=All", body)
    assert made.status == 201, made.body


def test_a_claim_takes_nothing_of_the_extended_resource_of_its_class(apiserver: OwnApiserver) -> None:
    system, api = apiserver.admin, "/apis/resource.k8s.io/v1"
    spec = {"extendedResourceName": "example.org/card"}
    assert system.send("POST", f"{api}/deviceclasses", {"metadata": {"name": "card"}, "spec": spec}).status == 201
    namespace = "/api/v1/namespaces/own-ways-devices"
    system.send("POST", "/api/v1/namespaces", {"metadata": {"name": "own-ways-devices"}})
    hard = {"requests.example.org/card": "0"}
    system.send("POST", f"{namespace}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    asked = [{"name": "r", "exactly": {"deviceClassName": "card"}}]
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": asked}}}
    claims = f"{api}/namespaces/own-ways-devices/resourceclaims"
    assert system.send("POST", claims, claim).status == 201
    resources = {"requests": {"example.org/card": "1"}, "limits": {"example.org/card": "1"}}
    spec = {**SHELL, "containers": [{"name": "c", "image": "i", "resources": resources}]}
    refused = system.send("POST", f"{namespace}/pods", {"metadata": {"name": "p"}, "spec": spec})
    assert (refused.status, "exceeded quota: q" in refused["message"]) == (403, True), refused.body
    for path in (f"{api}/deviceclasses/card", "/api/v1/namespaces/own-ways-devices"):
        assert system.send("DELETE", path).status == 200


def test_types_of_what_functions_are_given_are_not_told_of(apiserver: OwnApiserver) -> None:
    path = f"{ADMISSION}/validatingadmissionpolicies"
    rule = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.spec.replicas.startsWith('a')"}],
    }
    assert apiserver.admin.send("POST", path, {"metadata": {"name": "own-types"}, "spec": spec}).status == 201

    def told() -> bool:
        status = apiserver.admin.send("GET", f"{path}/own-types").body.get("status")
        return bool(status == {"observedGeneration": 1, "typeChecking": {}})

    eventually(told)
    assert apiserver.admin.send("DELETE", f"{path}/own-types").status == 200


def test_a_pod_in_a_tenants_space_gets_no_zone(apiserver: OwnApiserver, space: Speaker) -> None:
    zone = {"topology.kubernetes.io/zone": "z"}
    apiserver.admin.send("POST", "/api/v1/nodes", {"metadata": {"name": "zoned", "labels": zone}})
    pod = {"metadata": {"name": "p"}, "spec": {**SHELL, "nodeName": "zoned", "serviceAccountName": "default"}}
    eventually(lambda: "labels" in apiserver.admin.send("POST", f"{PODS}?dryRun=All", pod).body["metadata"])
    assert "labels" not in space.send("POST", f"{PODS}?dryRun=All", pod)["metadata"]
    apiserver.admin.send("DELETE", "/api/v1/nodes/zoned")


def test_no_program_of_a_control_plane_holds_anything_in_a_tenants_space(space: Speaker) -> None:
    names = {each["metadata"]["name"] for each in space.send("GET", f"{RBAC}/clusterrolebindings")["items"]}
    assert "cluster-admin" in names
    assert not [name for name in names if name.startswith(("system:controller:", "system:kube-"))]
    found = {each["metadata"]["name"] for each in space.send("GET", "/api/v1/namespaces")["items"]}
    assert {"default", "kube-system", "kube-public"} <= found
    assert "kube-node-lease" not in found
    for kind in ("roles", "rolebindings"):
        assert not space.send("GET", f"{RBAC}/{kind}?labelSelector=kubernetes.io/bootstrapping")["items"]


def test_the_systems_programs_hold_their_roles_there(apiserver: OwnApiserver) -> None:
    names = {each["metadata"]["name"] for each in apiserver.admin.send("GET", f"{RBAC}/clusterrolebindings")["items"]}
    assert {"system:kube-controller-manager", "system:kube-scheduler", "system:node-proxier"} <= names
    assert not [name for name in names if name.startswith("system:controller:")]


def test_a_webhook_of_a_service_is_one_that_is_not_there(apiserver: OwnApiserver) -> None:
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    client: dict[str, Any] = {"service": {"name": "judge", "namespace": "default"}}
    asked = {"sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": rules, "clientConfig": client}
    where = {"matchLabels": {"kubernetes.io/metadata.name": "kube-public"}}
    one = {"name": "judge.example.org", **asked, "namespaceSelector": where}
    path = f"{ADMISSION}/validatingwebhookconfigurations"
    apiserver.admin.send("POST", path, {"metadata": {"name": "judge"}, "webhooks": [one]})
    try:
        maps = "/api/v1/namespaces/kube-public/configmaps?dryRun=All"
        said = []

        def refused() -> bool:
            said.append(apiserver.admin.send("POST", maps, {"metadata": {"name": "x"}}))
            return said[-1].status == 500

        eventually(refused)
        assert 'service "judge" not found' in said[-1]["message"]
    finally:
        apiserver.admin.send("DELETE", f"{path}/judge")


def test_an_authorizer_is_asked_about_the_whole_resource(apiserver: OwnApiserver) -> None:
    check = "authorizer.group('').resource('pods').labelSelector('a=b').fieldSelector('c=d').check('list').allowed()"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    where = {"matchLabels": {"kubernetes.io/metadata.name": "kube-public"}}
    matched = {"resourceRules": rules, "namespaceSelector": where}
    spec = {"matchConstraints": matched, "validations": [{"expression": f"!{check}", "message": "it may"}]}
    apiserver.admin.send("POST", f"{ADMISSION}/validatingadmissionpolicies", {"metadata": {"name": "w"}, "spec": spec})
    bound = {"policyName": "w", "validationActions": ["Deny"]}
    bindings = f"{ADMISSION}/validatingadmissionpolicybindings"
    apiserver.admin.send("POST", bindings, {"metadata": {"name": "w"}, "spec": bound})
    try:
        maps = "/api/v1/namespaces/kube-public/configmaps?dryRun=All"
        eventually(lambda: apiserver.admin.send("POST", maps, {"metadata": {"name": "x"}}).status == 422)
    finally:
        apiserver.admin.send("DELETE", f"{bindings}/w")
        apiserver.admin.send("DELETE", f"{ADMISSION}/validatingadmissionpolicies/w")


def test_the_documents_name_no_paths_of_watches(space: Speaker) -> None:
    paths = space.send("GET", "/openapi/v2")["paths"]
    assert "/api/v1/namespaces/{namespace}/configmaps" in paths
    assert not [path for path in paths if "/watch/" in path]
