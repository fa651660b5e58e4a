"""Nothing of a placed namespace can be met by another tenant, by whatever verb, path, encoding, header or parameter (TS3)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenants.models import Role
from tests.gateway.placed.conftest import STANDING_IN, Door, speaking
from tests.gateway.test_isolation import MARK, NAME, NAMESPACE, NOBODY, attempts, discovered, told
from tests.speaking import Speaker

pytestmark = pytest.mark.django_db(transaction=True)

TENANT = "hidden"
"""Names of namespaces on clusters begin with the tenant's."""

KEPT = (
    ("v1", "configmaps", {"data": {"mark": MARK}}),
    ("v1", "secrets", {"stringData": {"mark": MARK}}),
    ("v1", "services", {"spec": {"ports": [{"port": 80}]}}),
    ("v1", "persistentvolumeclaims", {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    }),
    ("apps/v1", "deployments", {
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}
            },
        }
    }),
    ("networking.k8s.io/v1", "networkpolicies", {"spec": {"podSelector": {}}}),
    ("rbac.authorization.k8s.io/v1", "roles", {
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    }),
)  # fmt: skip


@pytest.fixture
def theirs(new_standing_door: Callable[..., Door]) -> Door:
    return new_standing_door(TENANT)


@pytest.fixture
def kept(theirs: Door, server: Any) -> Iterator[Speaker]:
    """The owner, with marked objects of several kinds in the namespace."""
    owner = theirs.person("olga", Role.OWNER)
    theirs.place(owner, NAMESPACE, on=STANDING_IN)
    speaker = speaking(owner)
    for version, plural, body in KEPT:
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        metadata = {"name": NAME, "annotations": {"example.com/mark": MARK}}
        answer = speaker.send("POST", f"{root}/namespaces/{NAMESPACE}/{plural}", {**body, "metadata": metadata})
        assert answer.status == 201, (plural, answer.body)
    yield speaker
    # The cluster is there for the whole run.
    server.admin.delete(f"/api/v1/namespaces/{NAMESPACE}")


@pytest.fixture
def thief(new_standing_door: Callable[..., Door], kept: Speaker) -> Speaker:
    """Who may do everything in a space of their own, with a namespace on the same cluster."""
    door = new_standing_door()
    owner = door.person("olga", Role.OWNER)
    door.place(owner, on=STANDING_IN)
    return speaking(owner)


def everything(owner: Speaker) -> dict[str, Any]:
    """What the owner sees of the objects, to the last field."""
    found = {}
    for version, plural, _ in KEPT:
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        answer = owner.send("GET", f"{root}/namespaces/{NAMESPACE}/{plural}")
        assert answer.status == 200
        found[plural] = {
            item["metadata"]["name"]: item["metadata"]["resourceVersion"]
            for item in answer["items"]
            if item["metadata"]["name"] == NAME
        }
    return found


def spellings(path: str) -> list[str]:
    """A path from the namespace on, as readers might be led astray by it."""
    place = f"/namespaces/{NAMESPACE}"
    return [
        path,
        path.replace(place, f"/namespaces/%68{NAMESPACE[1:]}"),
        path.replace(place, f"/namespaces/default/../{NAMESPACE}"),
        path.replace(place, f"/namespaces/default%2f..%2f{NAMESPACE}"),
        path.replace(place, f"/namespaces/{NAMESPACE.upper()}"),
        path.replace(place, f"//namespaces//{NAMESPACE}"),
        path.replace(place, f"/namespaces/{NAMESPACE}%00"),
        path.replace(place, f"/watch{place}") + "?timeoutSeconds=1",
        path.replace("/api/v1", f"/api/v1/tenants/{TENANT}"),
        path.replace("/api/v1", f"/api/v1/tenants/%68{TENANT[1:]}"),
        f"/clusters/root:{TENANT}{path}",
        f"/clusters/root%3A{TENANT}{path}",
        f"/clusters/root:{TENANT}:{NAMESPACE}{path}",
        f"/clusters/*{path}",
        f"/clusters/root:{TENANT}/clusters/root:{TENANT}{path}",
        path.replace("/api/v1", "/api/v1/tenants/*"),
    ]


HEADERS = (
    {"X_Kubernetes_Cluster": f"root:{TENANT}"},
    {"X_Tenant": TENANT},
    {"Impersonate_User": f"olga@{TENANT}.test", "Impersonate_Group": "tenantry:owner"},
    {"Impersonate_User": f"system:serviceaccount:{NAMESPACE}:default"},
    {"Impersonate_Extra_tenant": TENANT},
    {"X_Remote_User": f"olga@{TENANT}.test", "X_Remote_Group": "system:masters"},
    {"X_Forwarded_Prefix": f"/clusters/root:{TENANT}"},
    {"X_Original_URL": f"/clusters/root:{TENANT}/api/v1/secrets"},
    {"X_HTTP_Method_Override": "DELETE"},
)


def test_every_verb_on_every_kind_is_refused_as_for_a_name_that_is_not_there(
    theirs: Door, kept: Speaker, thief: Speaker
) -> None:
    before, tried = everything(kept), 0
    for resource in [each for each in discovered(kept) if each.namespaced]:
        for number, (method, named, query, body, media) in enumerate(attempts(resource)):
            there = resource.foreign(named, TENANT)[number % 2]
            answer = thief.send(method, there + query, body, media)
            assert answer.status in (403, 404), (method, there, query, answer.body)
            assert MARK not in json.dumps(answer.body), (method, there, query)
            tried += 1
        for there, nowhere in zip(resource.foreign(NAME, TENANT), resource.foreign(NOBODY, TENANT), strict=True):
            assert told(thief.send("GET", there)) == told(thief.send("GET", nowhere)), there
    assert tried > 1000
    assert everything(kept) == before


def test_no_spelling_header_or_parameter_leads_there(theirs: Door, kept: Speaker, thief: Speaker) -> None:
    """At home the words mean home; and whatever names the other tenant is refused."""
    before = everything(kept)
    for tail in (f"configmaps/{NAME}", "configmaps", f"secrets/{NAME}", "secrets"):
        path = f"/api/v1/namespaces/{NAMESPACE}/{tail}"
        for spelled in spellings(path):
            for method, body in (("GET", None), ("DELETE", None), ("PUT", {"metadata": {"name": NAME}})):
                answer = thief.send(method, spelled, body)
                assert MARK not in json.dumps(answer.body), (method, spelled)
                empty = (answer.status == 200 and not answer.body) or (answer.status == 200 and not answer["items"])
                assert answer.status >= 400 or empty, (method, spelled, answer.body)
        for headers in HEADERS:
            for query in ("", f"?tenant={TENANT}&cluster=root:{TENANT}&allTenants=true&namespace={NAMESPACE}"):
                answer = thief.send("GET", path + query, **headers)
                assert MARK not in json.dumps(answer.body), (path, headers)
                assert answer.status >= 400 or not answer["items"], (path, headers, answer.body)
    assert everything(kept) == before


def test_neither_pages_nor_versions_nor_bodies_nor_orders_reach_across(
    theirs: Door, kept: Speaker, thief: Speaker
) -> None:
    before = everything(kept)
    for path in (f"/api/v1/namespaces/{NAMESPACE}/configmaps", "/api/v1/configmaps"):
        page = kept.send("GET", f"{path}?limit=1")
        assert page.status == 200
        metadata = page["metadata"]
        for query in (
            f"limit=1&continue={metadata['continue']}",
            f"resourceVersion={metadata['resourceVersion']}&resourceVersionMatch=Exact",
            f"resourceVersion={metadata['resourceVersion']}&resourceVersionMatch=NotOlderThan",
            f"watch=true&timeoutSeconds=1&resourceVersion={metadata['resourceVersion']}",
        ):
            for at in (path, "/api/v1/configmaps", "/api/v1/namespaces/default/configmaps"):
                answer = thief.send("GET", f"{at}?{query}")
                assert MARK not in json.dumps(answer.body), (at, query)
                assert NAMESPACE not in answer.content.decode() or answer.status >= 400, (at, query, answer.body)
    stolen = {"metadata": {"name": "stolen", "namespace": NAMESPACE, "tenant": TENANT}, "data": {"a": "b"}}
    assert thief.send("POST", "/api/v1/namespaces/default/configmaps", stolen).status == 400
    labels = {"tenantry.io/cluster": STANDING_IN}
    order = {"metadata": {"name": NAMESPACE, "labels": labels}}
    for query in ("", "?dryRun=All"):
        answer = thief.send("POST", f"/api/v1/namespaces{query}", order)
        assert (answer.status, "it must begin with" in answer["message"]) == (422, True)
    for kind, spec in (
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": {"namespace": NAMESPACE, "verb": "get", "resource": "secrets"}},
        ),
        ("selfsubjectrulesreviews", {"namespace": NAMESPACE}),
    ):
        review = thief.send("POST", f"/clusters/root:{TENANT}/apis/authorization.k8s.io/v1/{kind}", {"spec": spec})
        assert (review.status, STANDING_IN in json.dumps(review.body)) == (403, False)
    assert everything(kept) == before
