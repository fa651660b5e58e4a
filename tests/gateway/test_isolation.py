"""Nothing of one tenant can be met by another, whatever the verb and however the path is spelled (TS3).

Tenant ``theirs`` has an object of every kind that can be made, each with a mark that no request names. The owner of
``ours`` tries every verb of every resource and subresource that discovery shows on every one of them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver import OwnApiserver
from tests.gateway.definitions import CRDS, definition
from tests.speaking import Answer, Speaker
from tests.story.product import eventually

NAME, NOBODY, NAMESPACE, MARK = "hidden-one", "hidden-zero", "hidden-place", "a-mark-that-nobody-asks-for"
GIVEN = ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
SAMPLES = yaml.safe_load((Path(__file__).parents[1] / "conformance" / "objects.yaml").read_text())
PATCHES = {
    "application/json-patch+json": [{"op": "add", "path": "/metadata/labels", "value": {"stolen": "yes"}}],
    "application/merge-patch+json": {"metadata": {"labels": {"stolen": "yes"}}},
    "application/strategic-merge-patch+json": {"metadata": {"labels": {"stolen": "yes"}}},
    "application/apply-patch+yaml": {"metadata": {"labels": {"stolen": "yes"}}},
}


@dataclass(frozen=True)
class Served:
    """A resource as discovery shows it, or a subresource (``plural/part``)."""

    version: str
    plural: str
    part: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]

    @property
    def root(self) -> str:
        return f"/apis/{self.version}" if "/" in self.version else f"/api/{self.version}"

    def tail(self, name: str) -> str:
        place = f"/namespaces/{NAMESPACE}" if self.namespaced else ""
        tail = f"{place}/{self.plural}/{name}" if name else f"{place}/{self.plural}"
        return f"{tail}/{self.part}" if self.part else tail

    def foreign(self, name: str, tenant: str = "theirs") -> list[str]:
        """Every way to name an object, or the collection, of another tenant."""
        tail = self.tail(name)
        return [f"{self.root}/tenants/{tenant}{tail}", f"/clusters/root:{tenant}{self.root}{tail}"]


def discovered(speaker: Speaker) -> Iterator[Served]:
    """Every resource and subresource of a space."""
    groups = speaker.send("GET", "/apis")["groups"]
    versions = ["v1", *(version["groupVersion"] for group in groups for version in group["versions"])]
    for version in versions:
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for resource in speaker.send("GET", root)["resources"]:
            plural, _, part = resource["name"].partition("/")
            yield Served(version, plural, part, resource["kind"], resource["namespaced"], tuple(resource["verbs"]))


@pytest.fixture(scope="module")
def intruder(apiserver: OwnApiserver) -> Speaker:
    """Who may do everything in ``ours`` and nothing anywhere else."""
    own = apiserver.tenant("ours")
    binding = {
        "metadata": {"name": "owner"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }
    assert own.send("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).status == 201
    token = own.send("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})["status"]
    context = apiserver.admin.context.__class__(apiserver.admin.context.protocol)
    context.check_hostname, context.verify_mode = False, 0  # a context without the administrator's certificate
    return Speaker(apiserver.url, context, {"Authorization": f"Bearer {token['token']}"})


def sample(kind: str, version: str) -> dict[str, Any] | None:
    """A good object of the kind, named and marked."""
    for source in SAMPLES:
        if (source["kind"], source["apiVersion"]) == (kind, version):
            body: dict[str, Any] = json.loads(json.dumps(source).replace('"NAMESPACE"', f'"{NAMESPACE}"'))
            body.pop("system", None)
            body["metadata"] |= {"name": NAME, "annotations": {"example.com/mark": MARK}}
            return body
    return None


@pytest.fixture(scope="module")
def theirs(apiserver: OwnApiserver) -> Speaker:
    """The administrator in tenant ``theirs``, where something of every kind is."""
    space = apiserver.tenant("theirs")
    assert space.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}).status == 201
    crd = definition("Hidden", {"type": "object", "properties": {"a": {"type": "string"}}}, subresources={"status": {}})
    crd["metadata"]["annotations"] = {"example.com/mark": MARK}
    assert space.send("POST", CRDS, crd).status == 201
    return space


@pytest.fixture(scope="module")
def resources(theirs: Speaker) -> list[Served]:
    """What ``theirs`` serves, once an object of every kind is there that can be made."""
    served = list(discovered(theirs))
    made = set()
    for resource in served:
        body = sample(resource.kind, resource.version)
        if resource.part or body is None or "create" not in resource.verbs:
            continue
        answer = theirs.send("POST", resource.root + resource.tail(""), body)
        # Several resources are one: events, and autoscalers of two versions.
        assert answer.status in (201, 409, 403), (resource, answer.body)
        if answer.status != 403:
            made.add(resource.plural)
    assert len(made) >= 30, sorted(made)
    custom = next(resource for resource in served if resource.kind == "Hidden")
    body = {"apiVersion": custom.version, "kind": "Hidden", "metadata": {"name": NAME, "labels": {"mark": MARK}}}
    assert theirs.send("POST", custom.root + custom.tail(""), body).status == 201
    return served


@pytest.fixture(scope="module")
def before(theirs: Speaker, resources: list[Served]) -> dict[str, Any]:
    """What is there once every namespace has what the server gives it, and every gathering role what it gathers."""
    namespaces = [item["metadata"]["name"] for item in theirs.send("GET", "/api/v1/namespaces")["items"]]
    for namespace, given in itertools.product(namespaces, GIVEN):
        eventually(lambda at=f"/api/v1/namespaces/{namespace}/{given}": theirs.send("GET", at).status == 200)
    looks = [everything(theirs, resources)]

    def stands_still() -> bool:
        looks.append(everything(theirs, resources))
        return looks[-1] == looks[-2]

    eventually(stands_still, every=0.5)
    return looks[-1]


def everything(theirs: Speaker, resources: list[Served]) -> dict[str, Any]:
    """All objects of ``theirs``, to the last field."""
    found = {}
    for resource in resources:
        if not resource.part and "list" in resource.verbs:
            answer = theirs.send("GET", f"{resource.root}/{resource.plural}")
            assert answer.status == 200
            found[f"{resource.version}/{resource.plural}"] = answer["items"]
    return found


def attempts(resource: Served) -> Iterator[tuple[str, str, str, Any, str]]:
    """Method, what is named, query, body and media type of everything that can be tried on a resource."""
    body = {"apiVersion": resource.version, "kind": resource.kind, "metadata": {"name": NAME, "namespace": NAMESPACE}}
    json_ = "application/json"
    yield "GET", NAME, "", None, ""
    yield "GET", NAME, "?resourceVersion=0", None, ""
    yield "PUT", NAME, "", body, json_
    yield "POST", NAME, "", body, json_
    yield "DELETE", NAME, "", None, ""
    yield "DELETE", NAME, "?propagationPolicy=Orphan&dryRun=All", None, ""
    for media, change in PATCHES.items():
        yield "PATCH", NAME, "?fieldManager=thief&force=true" if "apply" in media else "", change, media
    if resource.part:
        return
    for query in (
        "",
        "?limit=1",
        "?resourceVersion=0",
        f"?fieldSelector=metadata.name%3D{NAME}",
        "?labelSelector=!none",
        "?watch=1&timeoutSeconds=1",
        "?watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    ):
        yield "GET", "", query, None, ""
    yield "GET", NAME, "?watch=1&timeoutSeconds=1", None, ""
    yield "POST", "", "", body, json_
    yield "POST", "", "?dryRun=All", body, json_
    yield "DELETE", "", "", None, ""
    yield "DELETE", "", f"?fieldSelector=metadata.name%3D{NAME}", None, ""


def told(answer: Answer) -> tuple[int, str]:
    """What an answer lets its reader know, the asked name aside."""
    return answer.status, json.dumps(answer.body).replace(NAME, "<name>").replace(NOBODY, "<name>")


def test_every_verb_on_every_foreign_name_is_refused_as_for_a_name_that_does_not_exist(
    intruder: Speaker, theirs: Speaker, resources: list[Served], before: dict[str, Any]
) -> None:
    tried = 0
    for resource in resources:
        for number, (method, named, query, body, media) in enumerate(attempts(resource)):
            # One spelling after the other: where a path leads is settled before what is asked there.
            there = resource.foreign(named)[number % 2]
            answer = intruder.send(method, there + query, body, media)
            assert answer.status in (403, 404), (method, there, query, answer.body)
            assert MARK not in json.dumps(answer.body), (method, there, query)
            tried += 1
        for there, nowhere in zip(resource.foreign(NAME), resource.foreign(NOBODY), strict=True):
            assert told(intruder.send("GET", there)) == told(intruder.send("GET", nowhere)), there
    assert tried > 1000
    assert everything(theirs, resources) == before


def test_the_same_words_at_home_mean_nothing_but_home(
    intruder: Speaker, theirs: Speaker, resources: list[Served], before: dict[str, Any]
) -> None:
    """Short paths, and parameters, headers and fields that might name another space."""
    for resource in resources:
        if resource.part or "get" not in resource.verbs or resource.kind == "Hidden":
            continue
        for query in ("", f"?tenant=theirs&cluster=root:theirs&allTenants=true&namespace={NAMESPACE}"):
            for name in (NAME, ""):
                answer = intruder.send("GET", resource.root + resource.tail(name) + query)
                assert MARK not in json.dumps(answer.body), (resource, query)
                assert answer.status == 404 if name else answer.status == 200, (resource, answer.body)
        everywhere = f"{resource.root}/tenants/*/{resource.plural}"
        assert intruder.send("GET", everywhere).status == 403, resource
        assert intruder.send("GET", f"/clusters/*{resource.root}/{resource.plural}").status in (403, 404), resource
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/{NAME}"
    for header in ("X_Kubernetes_Cluster", "X_Tenant", "Impersonate_Extra_tenant"):
        answer = intruder.send("GET", path, None, "", **{header: "root:theirs"})
        assert answer.status >= 400
        assert MARK not in json.dumps(answer.body)
    for user in ("system:admin", f"system:serviceaccount:{NAMESPACE}:{NAME}"):
        answer = intruder.send("GET", f"/clusters/root:theirs{path}", None, "", Impersonate_User=user)
        assert answer.status == 403, user
    stolen = {"metadata": {"name": "stolen", "tenant": "theirs"}, "data": {"a": "b"}}
    assert intruder.send("POST", "/api/v1/namespaces/default/configmaps", stolen).status == 400
    assert everything(theirs, resources) == before


def test_owner_references_and_continue_tokens_do_not_reach_across(
    intruder: Speaker, theirs: Speaker, resources: list[Served], before: dict[str, Any]
) -> None:
    secrets = f"/api/v1/namespaces/{NAMESPACE}/secrets"
    assert theirs.send("POST", secrets, {"metadata": {"name": "z"}}).status == 201
    token = theirs.send("GET", f"{secrets}?limit=1")["metadata"]["continue"]
    theirs.send("DELETE", f"{secrets}/z")
    for path in ("/api/v1/secrets", "/api/v1/namespaces/default/secrets", secrets):
        answer = intruder.send("GET", f"{path}?limit=1&continue={token}")
        assert answer.status == 400, answer.body
        assert MARK not in json.dumps(answer.body)
    owner = theirs.send("GET", f"{secrets}/{NAME}")["metadata"]
    reference = {"apiVersion": "v1", "kind": "Secret", "name": NAME, "uid": owner["uid"], "blockOwnerDeletion": True}
    child = {"metadata": {"name": "child", "ownerReferences": [reference]}}
    assert intruder.send("POST", "/api/v1/namespaces/default/configmaps", child).status == 201
    intruder.send("DELETE", "/api/v1/namespaces/default/configmaps/child?propagationPolicy=Foreground")
    assert everything(theirs, resources) == before
