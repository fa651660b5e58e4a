"""Nothing of one tenant can be met by another, whatever the verb and however the path is spelled (TS3)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kube.builtins import TENANT_BUILTINS
from kube.resources import Resource
from tests.apiserver import OwnApiserver
from tests.speaking import Answer, Speaker

pytestmark = pytest.mark.xdist_group("apiserver")
SECRET = "hidden-from-others"
RESOURCES = [resource for resource in TENANT_BUILTINS if resource.persistent and resource.served]


@pytest.fixture(scope="module")
def intruder(apiserver: OwnApiserver) -> Speaker:
    """The owner of tenant ``ours``, who may do everything there and nothing anywhere else."""
    own = apiserver.tenant("ours")
    account = "/api/v1/namespaces/default/serviceaccounts"
    binding = {
        "metadata": {"name": "owner"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}],
    }
    assert own.send("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).status == 201
    token = own.send("POST", f"{account}/default/token", {"spec": {}})["status"]["token"]
    context = apiserver.admin.context.__class__(apiserver.admin.context.protocol)
    context.check_hostname, context.verify_mode = False, 0  # a context without the administrator's certificate
    return Speaker(apiserver.url, context, {"Authorization": f"Bearer {token}"})


@pytest.fixture(scope="module")
def foreign(apiserver: OwnApiserver) -> Speaker:
    """The administrator in tenant ``theirs``, where something of every namespaced kind has the wanted name."""
    theirs = apiserver.tenant("theirs")
    for path, body in (
        ("/api/v1/namespaces", {"metadata": {"name": SECRET}}),
        (f"/api/v1/namespaces/{SECRET}/configmaps", {"metadata": {"name": SECRET}, "data": {"a": SECRET}}),
        (f"/api/v1/namespaces/{SECRET}/secrets", {"metadata": {"name": SECRET}}),
        ("/api/v1/namespaces/default/configmaps", {"metadata": {"name": SECRET}}),
        ("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": SECRET}}),
    ):
        assert theirs.send("POST", path, body).status == 201
    return theirs


def spellings(resource: Resource, name: str) -> list[str]:
    """Every way to name an object of tenant ``theirs``, and what the same words mean at home."""
    version = resource.preferred.name
    root = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    place = f"/namespaces/{SECRET}" if resource.namespaced else ""
    tail = f"{place}/{resource.plural}/{name}"
    return [f"{root}/tenants/theirs{tail}", f"/clusters/root:theirs{root}{tail}", f"{root}{tail}"]


def asked(speaker: Speaker, method: str, path: str, body: Any) -> Answer:
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return speaker.send(method, path, body, media)


def told(answer: Answer, *names: str) -> tuple[int, str]:
    """What an answer lets its reader know, the asked name aside."""
    text = str(answer.body)
    for name in names:
        text = text.replace(name, "<name>")
    return answer.status, re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "<uid>", text)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: f"{resource.plural}.{resource.group}".strip("."))
def test_a_foreign_name_is_answered_as_a_name_that_does_not_exist(
    resource: Resource, intruder: Speaker, foreign: Speaker
) -> None:
    bodies = {"GET": None, "PUT": {"metadata": {"name": SECRET}}, "PATCH": {}, "DELETE": None}
    for method, body in bodies.items():
        for there, nowhere in zip(spellings(resource, SECRET), spellings(resource, "hidden-from-nobody"), strict=True):
            other = {"metadata": {"name": "hidden-from-nobody"}} if body else body
            first, second = asked(intruder, method, there, body), asked(intruder, method, nowhere, other)
            names = (SECRET, "hidden-from-nobody")
            assert told(first, *names) == told(second, *names), (method, there)
            assert first.status >= 400, (method, there)


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: f"{resource.plural}.{resource.group}".strip("."))
def test_no_list_shows_and_no_collection_delete_reaches_what_is_foreign(
    resource: Resource, intruder: Speaker, foreign: Speaker
) -> None:
    for path in spellings(resource, ""):
        collection = path.rstrip("/")
        answers = [intruder.send("GET", collection), intruder.send("GET", f"{collection}?labelSelector=a&limit=1")]
        if "deletecollection" in resource.verbs and resource.namespaced:
            answers.append(intruder.send("DELETE", collection))
        for answer in answers:
            assert "'uid'" not in str(answer.body) or SECRET not in str(answer.body), collection
    everywhere = (
        spellings(resource, "")[0].replace("/tenants/theirs", "/tenants/*").replace(f"/namespaces/{SECRET}", "")
    )
    everywhere = everywhere.rstrip("/")
    assert intruder.send("GET", everywhere).status == 403


def test_after_every_attempt_all_is_still_there(intruder: Speaker, foreign: Speaker) -> None:
    for path in (f"/api/v1/namespaces/{SECRET}", f"/api/v1/namespaces/{SECRET}/configmaps/{SECRET}"):
        answer = foreign.send("GET", path)
        assert answer.status == 200
        assert "deletionTimestamp" not in answer["metadata"]
