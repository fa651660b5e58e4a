"""Explained requests with the object that they send: the step of the admission, its rule and the amounts (AZ11, AD1 to AD5)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from audit.recorder import Actor
from portal.access.queries import change_explained, manifest_of
from store import synchronous
from store.types import Create, Key
from tenants.models import Role, Tenant, User
from tenants.services import tenant_policies_change, tenant_quota_change
from tests import factories
from tests.portal.conftest import signed_in
from tests.portal.test_access import acme, globex
from tests.tenants.conftest import OPERATOR

__all__ = ["acme", "globex"]

PODS = "/api/v1/namespaces/team/pods"


def pod(cpu: str = "2", image: str = "nginx", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    return {**body, "spec": {"containers": [container], **spec}}


def there(space: str, plural: str, body: dict[str, Any], namespace: str = "") -> None:
    metadata = {**body["metadata"], "uid": f"uid-{body['metadata']['name']}"}
    key = Key(space, "", plural, namespace, metadata["name"])
    synchronous.commit([Create(key, {**body, "metadata": metadata})])


@pytest.fixture
def owner(acme: Tenant) -> User:
    """Of a tenant with a namespace in which pods are bounded."""
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    team = {"kind": "Namespace", "metadata": {"name": "team", "labels": labels}, "status": {"phase": "Active"}}
    there("root:acme", "namespaces", {"apiVersion": "v1", **team})
    there("root:acme", "serviceaccounts", {"metadata": {"name": "default", "namespace": "team"}}, "team")
    hard, used = {"requests.cpu": "4"}, {"requests.cpu": "3"}
    quota = {"metadata": {"name": "small", "namespace": "team"}, "spec": {"hard": hard}}
    there("root:acme", "resourcequotas", {**quota, "status": {"hard": hard, "used": used}}, "team")
    tenant_quota_change(actor=OPERATOR, name="acme", hard={"requests.cpu": "20"})
    return factories.member(acme, Role.OWNER)


def explained(user: User, manifest: dict[str, Any] | None, path: str = PODS, method: str = "POST") -> dict[str, Any]:
    body = {"user": {"name": user.email, "tenant": "acme"}, "method": method, "path": path, "manifest": manifest}
    answer = signed_in(user).post("/api/v1/access/explain", body, content_type="application/json")
    return {"status": answer.status_code, **answer.json()}


def test_a_quota_that_would_refuse_is_named_with_its_amounts(owner: User) -> None:
    """Not the authorization that passed; and nothing is sent, or kept."""
    found = explained(owner, pod("2"))
    assert (found["decision"], found["decidedBy"]) == ("deny", "admission/ResourceQuota")
    assert "requests.cpu: asked 2, 3 of 4 used in the namespace, 0 of 20 in the tenant" in found["reason"]
    assert [step["step"] for step in found["trace"]][-2:] == ["RBAC", "admission/ResourceQuota"]
    assert found["trace"][-1]["rule"] == "ResourceQuota team/small"
    assert explained(owner, pod("1"))["trace"][-1] == {
        "step": "admission",
        "decision": "allow",
        "reason": "no step of it refuses the object",
        "rule": "",
    }
    assert synchronous.get(Key("root:acme", "", "pods", "team", "web")) is None
    assert explained(owner, None)["decision"] == "allow"
    page = signed_in(owner).get(
        "/explain/",
        {"method": "POST", "path": PODS, "user": owner.email, "tenant": "acme", "manifest": str(pod("2"))},
    )
    assert "3 of 4 used in the namespace, 0 of 20 in the tenant" in page.content.decode()


@pytest.mark.parametrize(
    ("manifest", "step", "words"),
    [
        (pod("1", image="elsewhere.example/x"), "TenantPolicy", "rule registries"),
        (pod("1", nodeName="n"), "TenantPolicy", "rule node_names"),
        (pod("1", hostNetwork=True), "PodSecurity", "host namespaces"),
        (pod("21"), "ResourceQuota", "asked 21, 3 of 4 used in the namespace, 0 of 20 in the tenant"),
        (pod("1", restartPolicy="Sometimes"), "ObjectValidation", "restartPolicy"),
    ],
)
def test_every_step_of_the_admission_says_why(owner: User, manifest: dict[str, Any], step: str, words: str) -> None:
    tenant_policies_change(actor=OPERATOR, name="acme", policies={"registries": ["docker.io/library"]})
    found = explained(owner, manifest)
    assert (found["decision"], found["decidedBy"]) == ("deny", f"admission/{step}"), found
    assert words in found["reason"]


def test_the_tenants_quota_is_named_where_it_refuses(owner: User) -> None:
    tenant_quota_change(actor=OPERATOR, name="acme", hard={"requests.cpu": "500m"})
    found = explained(owner, pod("1"))
    assert found["decidedBy"] == "admission/TenantQuota"
    assert "requests.cpu: asked 1, 3 of 4 used in the namespace, 0 of 500m in the tenant" in found["reason"]


def test_who_may_not_send_it_learns_nothing_of_what_would_refuse_the_object(acme: Tenant, owner: User) -> None:
    viewer = factories.member(acme, Role.VIEWER)
    found = explained(viewer, pod("2"))
    assert found["decision"] == "deny"
    assert not [step for step in found["trace"] if step["step"].startswith("admission")]


@pytest.mark.parametrize(
    ("path", "method", "manifest", "status"),
    [
        (PODS, "GET", pod(), 400),
        (PODS, "PUT", pod(), 400),
        (f"{PODS}/web", "POST", pod(), 400),
        (f"{PODS}/web/eviction", "POST", pod(), 400),
        (PODS, "POST", "a text", 400),
        (PODS, "POST", [pod()], 400),
        (f"{PODS}/web", "PATCH", [], 400),
    ],
)
def test_what_makes_no_object_is_said(owner: User, path: str, method: str, manifest: Any, status: int) -> None:
    assert explained(owner, manifest, path, method)["status"] == status


@pytest.mark.parametrize("number", ["1" + "0" * 30, "-" + "9" * 19, "1e999"])
def test_a_number_that_no_server_reads_is_said(owner: User, number: str) -> None:
    """Neither the API server nor the database could hold it, in whichever field of whichever route."""
    body = f'{{"method": "POST", "path": "{PODS}", "manifest": {{"spec": {{"activeDeadlineSeconds": {number}}}}}}}'
    answer = signed_in(owner).post("/api/v1/access/explain", body, content_type="application/json")
    assert (answer.status_code, "number" in answer.text or "integer" in answer.text) == (400, True)


def test_a_name_that_no_text_holds_is_nobodys(owner: User) -> None:
    """YAML can write any character; the database is not asked for what it cannot hold."""
    assert synchronous.get(Key("root:acme", "", "serviceaccounts", "team", "default\0")) is None
    named = (
        'apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {namespace: team, name: "a\\0b"}\nrules: []'
    )
    manifest = manifest_of(named)
    actor = Actor(name=owner.email, user_id=owner.pk)
    found = change_explained(actor=actor, cluster="root:acme", manifest=manifest, now=timezone.now())
    assert (found.verb, found.decided_by.partition("/")[0]) == ("create", "admission")


@pytest.mark.parametrize("manifest", [{}, {"kind": 7}, {"metadata": 7}, {**pod(), "spec": 7}, {**pod(), "kind": "Job"}])
def test_what_is_no_pod_is_refused_as_the_server_would(owner: User, manifest: dict[str, Any]) -> None:
    assert explained(owner, manifest)["decision"] == "deny"


def test_the_page_says_what_is_no_manifest(owner: User) -> None:
    browser: Client = signed_in(owner)
    asked = {"method": "POST", "path": PODS, "user": owner.email, "tenant": "acme", "manifest": "a: ["}
    assert browser.get("/explain/", asked).status_code == 422


# Writes to what is there: the object as it would become is judged, with what is freed and what it takes more.


def explained_patch(user: User, path: str, patch: Any, kind: str = "strategic") -> dict[str, Any]:
    body = {"user": {"name": user.email, "tenant": "acme"}, "method": "PATCH", "path": path, "manifest": patch}
    answer = signed_in(user).post(
        "/api/v1/access/explain", {**body, "patchType": kind}, content_type="application/json"
    )
    return {"status": answer.status_code, **answer.json()}


@pytest.fixture
def running(owner: User) -> User:
    """The same, where a pod is there that takes three cores and may be changed in its metadata."""
    there("root:acme", "pods", {**pod("3"), "metadata": {"name": "web", "namespace": "team"}}, "team")
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "team"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"}
    there(
        "root:acme",
        "persistentvolumeclaims",
        {**claim, "spec": {**spec, "storageClassName": "fast"}, "status": {"phase": "Bound"}},
        "team",
    )
    storage = {"metadata": {"name": "fast", "uid": "fast"}, "provisioner": "p", "allowVolumeExpansion": True}
    key = Key("root:acme", "storage.k8s.io", "storageclasses", "", "fast")
    synchronous.commit([Create(key, {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **storage})])
    tenant_quota_change(actor=OPERATOR, name="acme", hard={"requests.storage": "2Gi"})
    return owner


CLAIM = "/api/v1/namespaces/team/persistentvolumeclaims/data"


def grown(size: str) -> dict[str, Any]:
    return {"spec": {"resources": {"requests": {"storage": size}}}}


@pytest.mark.parametrize("kind", ["strategic", "merge"])
def test_a_patch_is_judged_by_what_it_makes_of_what_is_there(running: User, kind: str) -> None:
    """Only what it takes more is asked for; and nothing is kept."""
    found = explained_patch(running, CLAIM, grown("3Gi"), kind)
    assert (found["decision"], found["decidedBy"]) == ("deny", "admission/TenantQuota"), found
    assert "requests.storage: asked 2Gi, 1Gi of 2Gi used in the tenant" in found["reason"]
    assert explained_patch(running, CLAIM, grown("2Gi"), kind)["decision"] == "allow"
    kept = synchronous.get(Key("root:acme", "", "persistentvolumeclaims", "team", "data"))
    assert kept is not None
    assert b'"storage":"1Gi"' in kept.data


def test_a_json_patch_and_an_applied_configuration_are_judged_too(running: User) -> None:
    place = "/spec/resources/requests/storage"
    found = explained_patch(running, CLAIM, [{"op": "replace", "path": place, "value": "3Gi"}], "json")
    assert found["decidedBy"] == "admission/TenantQuota"
    applied = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, **grown("3Gi")}
    found = explained_patch(running, CLAIM, applied, "apply")
    assert (found["decision"], found["decidedBy"]) == ("deny", "admission")
    assert "conflict" in found["reason"], "somebody else owns the field"
    made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}, "data": {"a": "b"}}
    new = "/api/v1/namespaces/team/configmaps/new"
    assert explained_patch(running, new, made, "apply")["decision"] == "allow"
    copies = [{"op": "copy", "from": "/metadata", "path": f"/metadata/annotations/{n}"} for n in range(40)]
    refused = explained_patch(running, CLAIM, copies, "json")
    assert refused["trace"][-1]["decision"] == "no opinion"
    assert "--dry-run=server" in refused["trace"][-1]["reason"]


def test_an_object_that_replaces_another_is_judged(running: User) -> None:
    """What may not change, the policies that hold now, and what is not there at all."""
    place = "/api/v1/namespaces/team/configmaps/settings"
    settings: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}
    settings |= {"metadata": {"name": "settings", "namespace": "team"}}
    there("root:acme", "configmaps", settings, "team")
    assert explained(running, {**settings, "data": {"a": "c"}}, place, "PUT")["decision"] == "allow"
    published = {**settings["metadata"], "annotations": {"multi-tenancy.k8s.io/published": "true"}}
    found = explained(running, {**settings, "metadata": published}, place, "PUT")
    assert (found["decision"], found["decidedBy"]) == ("deny", "admission/PublishedObjects"), found
    overtaken = {**settings, "metadata": {**settings["metadata"], "resourceVersion": "1"}}
    assert "modified" in explained(running, overtaken, place, "PUT")["reason"]
    other = {**settings, "metadata": {"name": "other", "namespace": "team"}}
    missing = explained(running, other, place.replace("settings", "other"), "PUT")
    assert (missing["decision"], missing["decidedBy"]) == ("deny", "admission")
    assert "not found" in missing["reason"]
    found = explained(running, {**pod("2"), "metadata": {"name": "web"}}, f"{PODS}/web", "PUT")
    assert found["decidedBy"] == "admission/ObjectValidation", "what may not change"


def marked(name: str, **metadata: Any) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "team", **metadata}}
    there("root:acme", "configmaps", body, "team")
    return body


CONFIGS = "/api/v1/namespaces/team/configmaps"


def test_a_deletion_is_judged_as_it_would_be_when_it_is_sent(owner: User) -> None:
    """What published, owned and lasting objects refuse is no deletion that "would be allowed" (AZ8, AZ11)."""
    marked("mine")
    marked("copy", labels={"multi-tenancy.k8s.io/published-from": "uid-of-source"})
    allowed = explained(owner, None, f"{CONFIGS}/mine", "DELETE")
    assert allowed["trace"][-1]["step"] == "admission", allowed
    assert (allowed["decision"], allowed["trace"][-1]["reason"]) == ("allow", "no step of it refuses the object")
    refused = explained(owner, None, f"{CONFIGS}/copy", "DELETE")
    assert (refused["decision"], refused["decidedBy"]) == ("deny", "admission/PublishedObjects"), refused
    assert "published by the operators" in refused["reason"]
    # A collection is refused where anything in it is.
    together = explained(owner, None, CONFIGS, "DELETE")
    assert (together["decision"], together["decidedBy"]) == ("deny", "admission/PublishedObjects"), together
    assert explained(owner, None, PODS, "DELETE")["decision"] == "allow"
    # By rules of the tenant's space that no plug-in of its own has.
    lasting = explained(owner, None, "/api/v1/namespaces/default", "DELETE")
    assert (lasting["decision"], lasting["decidedBy"]) == ("deny", "admission/NamespaceLifecycle"), lasting
    assert explained(owner, None, "/api/v1/namespaces/team", "DELETE")["decision"] == "allow"
    for name in ("mine", "copy"):
        assert synchronous.get(Key("root:acme", "", "configmaps", "team", name)) is not None, "nothing is done"


def test_of_a_deletion_of_nothing_nothing_is_said_but_who_may(owner: User) -> None:
    found = explained(owner, None, f"{CONFIGS}/none", "DELETE")
    assert (found["decision"], found["decidedBy"]) == ("allow", "RBAC"), found
    assert (found["trace"][-1]["step"], found["trace"][-1]["decision"]) == ("admission", "no opinion")


def test_the_options_of_a_deletion_are_judged_too(owner: User) -> None:
    marked("mine")
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "another"}}
    refused = explained(owner, options, f"{CONFIGS}/mine", "DELETE")
    assert (refused["decision"], refused["decidedBy"]) == ("deny", "admission"), refused
    assert "UID in the precondition" in refused["reason"]
    wrong = explained(owner, {**options, "propagationPolicy": "Sideways"}, f"{CONFIGS}/mine", "DELETE")
    assert "propagationPolicy" in wrong["reason"]


def test_who_may_not_publish_is_told_that_a_source_is_not_theirs_to_delete(acme: Tenant) -> None:
    """An operator's colleague with every verb in the system space but ``publish`` (AZ8)."""
    metadata = {"name": "shared", "namespace": "team", "annotations": {"multi-tenancy.k8s.io/published": "true"}}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}, "status": {"phase": "Active"}}
    there("root", "namespaces", namespace)
    there("root", "configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}, "team")
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["*"], "verbs": ["get", "list", "delete", "deletecollection"]}]
    reference = {"apiGroup": group, "kind": "ClusterRole", "name": "cleaner"}
    subjects = [{"apiGroup": group, "kind": "User", "name": "carl"}]
    for plural, body in (
        ("clusterroles", {"kind": "ClusterRole", "rules": rules}),
        ("clusterrolebindings", {"kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects}),
    ):
        whole = {"apiVersion": f"{group}/v1", **body, "metadata": {"name": "cleaner", "uid": plural}}
        synchronous.commit([Create(Key("root", group, plural, "", "cleaner"), whole)])
    operator = factories.operator()

    def asked(path: str, name: str) -> dict[str, Any]:
        user = {"name": name, "tenant": "system", "groups": ["system:masters"] if name == "admin" else []}
        body = {"user": user, "method": "DELETE", "path": path}
        answer = signed_in(operator).post("/api/v1/access/explain", body, content_type="application/json")
        return {"status": answer.status_code, **answer.json()}

    for path in (f"{CONFIGS}/shared", CONFIGS, "/api/v1/namespaces/team"):
        refused = asked(path, "carl")
        assert (refused["decision"], refused["decidedBy"]) == ("deny", "admission/PublishedObjects"), (path, refused)
        assert 'may not "publish" configmaps' in refused["reason"]
        assert asked(path, "admin")["decision"] == "allow", path


def test_a_pasted_command_brings_what_it_sends(running: User) -> None:
    """Kubectl patch, scale, label and annotate say it on their line (AZ11)."""
    browser = signed_in(running)
    command = f"kubectl -n team patch pvc data --type merge -p '{json.dumps(grown('3Gi'))}'"
    page = browser.get("/explain/", {"paste": command, "cluster": "root:acme"}, follow=True).content.decode()
    assert "admission/TenantQuota" in page
    assert "asked 2Gi, 1Gi of 2Gi used in the tenant" in page
    marked = "kubectl -n team annotate pod web multi-tenancy.k8s.io/published=true"
    page = browser.get("/explain/", {"paste": marked, "cluster": "root:acme"}, follow=True).content.decode()
    assert "admission/PublishedObjects" in page
    small = "kubectl -n team label pod web tier=gold"
    page = browser.get("/explain/", {"paste": small, "cluster": "root:acme"}, follow=True).content.decode()
    assert "no step of it refuses the object" in page


def test_a_change_of_rights_says_who_would_refuse_it(acme: Tenant, owner: User) -> None:
    """What if: nobody hands out what they do not have, nor writes into what the server owns (AZ11)."""
    admin = factories.member(acme, Role.ADMIN)
    wide = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    role: dict[str, Any] = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
    role |= {"metadata": {"name": "wide", "namespace": "team"}, "rules": [wide]}
    asked = {"cluster": "root:acme", "manifest": role}
    answer = signed_in(admin).post("/api/v1/access/what-if", asked, content_type="application/json").json()
    assert answer["results"] == []
    said = answer["explanation"]
    assert (said["decision"], said["decidedBy"]) == ("deny", "admission/EscalationPrevention"), said
    page = signed_in(admin).post("/explain/?ask=change", {"cluster": "root:acme", "manifest": json.dumps(role)})
    assert "It would be refused" in page.content.decode()
    narrow = {**role, "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]}
    asked = {"cluster": "root:acme", "manifest": narrow}
    answer = signed_in(admin).post("/api/v1/access/what-if", asked, content_type="application/json").json()
    assert answer["explanation"]["decision"] == "allow", answer
    assert synchronous.get(Key("root:acme", "rbac.authorization.k8s.io", "roles", "team", "wide")) is None


def test_who_may_not_read_what_is_there_learns_nothing_of_it_by_trying_changes(acme: Tenant, owner: User) -> None:
    """Not by a refusal that quotes it, nor by a guess: auditors ask about anybody, and read no Secret."""
    secret: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": "db", "namespace": "team"},
    }
    there("root:acme", "secrets", {**secret, "data": {"password": "aHVudGVyMg=="}}, "team")
    auditor = factories.user("auditor@platform.test", is_auditor=True)
    path = "/api/v1/namespaces/team/secrets/db"
    tries: list[tuple[Any, str]] = [
        ({"stringData": 7}, "merge"),
        ([{"op": "test", "path": "/data/password", "value": "aHVudGVyMg=="}], "json"),
        ([{"op": "test", "path": "/data/password", "value": "x"}], "json"),
    ]
    for patch, kind in tries:
        body = {"user": {"name": owner.email, "tenant": "acme"}, "method": "PATCH", "path": path, "manifest": patch}
        answer = (
            signed_in(auditor)
            .post("/api/v1/access/explain", {**body, "patchType": kind}, content_type="application/json")
            .json()
        )
        assert (answer["decision"], answer["trace"][-1]["decision"]) == ("allow", "no opinion"), answer
        assert "aHVudGVyMg" not in json.dumps(answer)
    assert "aHVudGVyMg" in json.dumps(explained_patch(owner, path, {"stringData": 7}, "merge"))
    guessed = [explained_patch(owner, path, patch, kind)["decision"] for patch, kind in tries[1:]]
    assert guessed == ["allow", "deny"]


def test_what_admission_asks_outside_is_not_asked_by_who_only_wants_to_know(acme: Tenant) -> None:
    """Policies of the system space are judged, webhooks are sent nothing."""
    space = "root"
    there(space, "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    group, matched = "admissionregistration.k8s.io", {"apiGroups": [""], "apiVersions": ["v1"]}
    rules = [{**matched, "resources": ["configmaps"], "operations": ["*"]}]
    hook = {
        "name": "asked.example.org",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": rules,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    bodies: dict[str, dict[str, Any]] = {
        "validatingwebhookconfigurations": {"kind": "ValidatingWebhookConfiguration", "webhooks": [hook]},
        "mutatingwebhookconfigurations": {"kind": "MutatingWebhookConfiguration", "webhooks": [hook]},
        "validatingadmissionpolicies": {
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "matchConstraints": {"resourceRules": rules},
                "validations": [{"expression": "object.metadata.name != 'refused'", "message": "not by this name"}],
            },
        },
        "validatingadmissionpolicybindings": {
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": "all", "validationActions": ["Deny"]},
        },
    }
    for plural, body in bodies.items():
        metadata = {"name": "all", "uid": f"uid-{plural}"}
        whole = {"apiVersion": f"{group}/v1", **body, "metadata": metadata}
        synchronous.commit([Create(Key(space, group, plural, "", "all"), whole)])
    operator = factories.operator()

    def asked(name: str) -> dict[str, Any]:
        """As a master of the system space."""
        manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
        user = {"name": "admin", "tenant": "system", "groups": ["system:masters"]}
        path = "/api/v1/namespaces/default/configmaps"
        body = {"user": user, "method": "POST", "path": path, "manifest": manifest}
        answer = signed_in(operator).post("/api/v1/access/explain", body, content_type="application/json")
        return {"status": answer.status_code, **answer.json()}

    assert asked("allowed")["trace"][-1]["reason"] == "no step of it refuses the object"
    refused = asked("refused")
    assert (refused["decision"], refused["decidedBy"]) == ("deny", "admission/ValidatingAdmissionPolicy")
    assert "not by this name" in refused["reason"]
