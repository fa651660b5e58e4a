"""Every namespace has a service account and the certificates of the server, whatever its people do to them (TS15)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.gateway.callers import Caller
from tests.gateway.conftest import Server, completed, tenant_named
from tests.gateway.organization import ready
from tests.story.product import eventually

MAP = "configmaps/kube-root-ca.crt"
ACCOUNT = "serviceaccounts/default"
WORDS = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the "
    "internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes "
    "clusters."
)


@pytest.fixture(scope="module")
def olga(server: Server) -> Caller:
    """The owner of a tenant of her own."""
    return server.user(tenant_named(server, f"contents-{uuid4().hex[:6]}"), "olga", "tenantry:owner")


@pytest.fixture
def at(olga: Caller) -> str:
    """A namespace of hers, complete."""
    name = f"n-{uuid4().hex[:8]}"
    assert olga.post("/api/v1/namespaces", {"metadata": {"name": name}}).status == 201
    return completed(olga, name)


def authority(server: Server) -> str:
    return (server.folder / "pki" / "ca.crt").read_text()


def is_there(caller: Caller, path: str, other_than: str = "") -> dict[str, Any]:
    """The object, once it is there and another one."""

    def found() -> dict[str, Any]:
        answer = caller.get(path)
        return dict(answer.body) if answer.status == 200 and answer.body["metadata"]["uid"] != other_than else {}

    return eventually(found)


def test_a_namespace_begins_with_the_certificates_of_the_server(server: Server, olga: Caller, at: str) -> None:
    made = olga.get(f"{at}/{MAP}").body
    assert made["data"] == {"ca.crt": authority(server)}
    assert made["metadata"]["annotations"] == {"kubernetes.io/description": WORDS}
    (entry,) = made["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["apiVersion"]) == ("kube-controller-manager", "Update", "v1")
    assert entry["fieldsV1"] == {
        "f:data": {".": {}, "f:ca.crt": {}},
        "f:metadata": {"f:annotations": {".": {}, "f:kubernetes.io/description": {}}},
    }


@pytest.mark.parametrize("namespace", ["default", "kube-system", "kube-public"])
def test_so_do_those_that_a_space_begins_with(olga: Caller, admin: Caller, namespace: str) -> None:
    for caller in (olga, admin):
        assert completed(caller, namespace)


def test_and_those_of_workspaces(server: Server, olga: Caller) -> None:
    space = f"/clusters/root:{olga.get('/api/v1/namespaces/default').body['metadata']['tenant']}"
    ready(olga, space, "team")
    certificates = completed(olga, "default", prefix=f"{space}:team")
    assert olga.get(f"{certificates}/{MAP}").body["data"]["ca.crt"] == authority(server)
    assert olga.post(f"{space}:team/api/v1/namespaces", {"metadata": {"name": "web"}}).status == 201
    assert completed(olga, "web", prefix=f"{space}:team")


@pytest.mark.parametrize("what", [MAP, ACCOUNT])
def test_what_is_deleted_is_made_again(olga: Caller, at: str, what: str) -> None:
    for path in (f"{at}/{what}", f"{at}/{what.partition('/')[0]}"):
        before = olga.get(f"{at}/{what}").body["metadata"]["uid"]
        assert olga.delete(path).status == 200
        assert is_there(olga, f"{at}/{what}", other_than=before)


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"ca.crt": "mine"}},
        {"data": {"more": "than this"}},
        {"data": None},
        {"metadata": {"annotations": None}},
        {"metadata": {"annotations": {"kubernetes.io/description": ""}}},
    ],
)
def test_what_is_changed_is_put_back(server: Server, olga: Caller, at: str, change: dict[str, Any]) -> None:
    uid = olga.get(f"{at}/{MAP}").body["metadata"]["uid"]
    assert olga.patch(f"{at}/{MAP}", {"metadata": {"labels": {"mine": "yes"}}}).status == 200
    changed = olga.patch(f"{at}/{MAP}", change)
    assert changed.status == 200

    def again() -> dict[str, Any]:
        body = olga.get(f"{at}/{MAP}").body
        right = body["metadata"].get("annotations") == {"kubernetes.io/description": WORDS}
        return body if right and body.get("data") == {"ca.crt": authority(server)} else {}

    metadata = eventually(again)["metadata"]
    assert metadata["uid"] == uid
    assert metadata["labels"] == {"mine": "yes"}, "what else was written is nobody's business"


def test_other_words_and_what_never_changes_are_left_alone(olga: Caller, at: str) -> None:
    words = {"metadata": {"annotations": {"kubernetes.io/description": "ours"}}}
    assert olga.patch(f"{at}/{MAP}", words).status == 200
    assert olga.delete(f"{at}/{ACCOUNT}").status == 200
    assert is_there(olga, f"{at}/{ACCOUNT}")
    assert olga.get(f"{at}/{MAP}").body["metadata"]["annotations"] == {"kubernetes.io/description": "ours"}
    frozen = olga.patch(f"{at}/{MAP}", {"immutable": True, "data": {"ca.crt": "mine"}}).body
    assert olga.delete(f"{at}/{ACCOUNT}").status == 200
    assert is_there(olga, f"{at}/{ACCOUNT}")
    assert olga.get(f"{at}/{MAP}").body["data"] == frozen["data"] == {"ca.crt": "mine"}


def test_a_namespace_that_ends_gets_nothing(olga: Caller, at: str) -> None:
    held = {"metadata": {"name": "held", "finalizers": ["example.org/hold"]}}
    assert olga.post(f"{at}/configmaps", held).status == 201
    assert olga.delete(at).status == 200
    eventually(lambda: olga.get(f"{at}/{MAP}").status == 404)
    eventually(lambda: olga.get(f"{at}/{ACCOUNT}").status == 404)
    # Somewhere else the worker goes on: what it would have done here it would have done before.
    assert olga.post("/api/v1/namespaces", {"metadata": {"name": f"{at.rpartition('/')[2]}-next"}}).status == 201
    assert completed(olga, f"{at.rpartition('/')[2]}-next")
    assert [item["metadata"]["name"] for item in olga.get(f"{at}/configmaps").body["items"]] == ["held"]
    assert olga.patch(f"{at}/configmaps/held", {"metadata": {"finalizers": []}}).status == 200
    eventually(lambda: olga.get(at).status == 404)


def test_quotas_count_what_is_made_again(olga: Caller, at: str) -> None:
    hard = {"count/configmaps": "5", "count/serviceaccounts": "5"}
    assert olga.post(f"{at}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}}).status == 201
    for collection in ("configmaps", "serviceaccounts"):
        assert olga.delete(f"{at}/{collection}").status == 200
    used = {"count/configmaps": "1", "count/serviceaccounts": "1"}
    for what in (MAP, ACCOUNT):
        assert is_there(olga, f"{at}/{what}")
    eventually(lambda: olga.get(f"{at}/resourcequotas/q").body["status"]["used"] == used)
