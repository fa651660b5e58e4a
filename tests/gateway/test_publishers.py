"""What tenants have of published objects changes by who may publish, whichever verb it is done with (AZ8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kube.objects import publications
from tests.gateway.callers import Answer, Caller, config_map, eventually
from tests.gateway.conftest import Server
from tests.gateway.test_publications import (
    MAPS,
    PUBLISHED,
    RBAC,
    SECRET,
    TO,
    admin,
    appears,
    disappears,
    made,
    name,
    published,
    report,
)

__all__ = ["admin", "name"]


def test_to_publish_takes_a_right_of_its_own(server: Server, admin: Caller, owner: Caller, name: str) -> None:
    """Who may write in the system space reaches tenants only with the verb "publish"."""
    user, verbs = f"u-{name}", ["create", "get", "patch", "update"]
    writer = with_verbs(server, admin, user, *verbs)
    made(writer.post(MAPS, config_map(f"{name}-own")))
    made(admin.post(MAPS, config_map(name)))
    refused = writer.patch(f"{MAPS}/{name}", {"metadata": {"annotations": {PUBLISHED: "true"}}})
    assert refused.status == 403
    assert 'may not "publish" configmaps' in refused.body["message"]
    assert writer.post(MAPS, published(f"{name}-2")).status == 403
    assert admin.patch(f"{MAPS}/{name}", {"metadata": {"annotations": {PUBLISHED: "true"}}}).status == 200
    assert writer.patch(f"{MAPS}/{name}", {"data": {"a": "2"}}).status == 403
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": [*verbs, "publish"]}
    assert admin.patch(f"{RBAC}/clusterroles/{user}", {"rules": [rule]}).status == 200
    assert eventually(lambda: writer.patch(f"{MAPS}/{name}", {"data": {"a": "2"}}).status == 200)
    appears(owner, f"{MAPS}/{name}", lambda body: body["data"] == {"a": "2"})


def owned_by(owner: str) -> dict[str, Any]:
    """A reference to what is not there: whoever has only it as an owner goes."""
    return {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": owner}]}


def annotated(**annotations: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": annotations}}


Way = Callable[[Caller, dict[str, Any]], Answer]

_CHANGES: dict[str, dict[str, Any]] = {
    "unpublish": annotated(**{PUBLISHED: None}),
    "say no": annotated(**{PUBLISHED: "false"}),
    "mean others": annotated(**{TO: "a=b"}),
    "confirm": annotated(**{SECRET: "true"}),
    "say something else": {"data": {"a": "9"}},
    "label": {"metadata": {"labels": {"a": "b"}}},
    "annotate": annotated(a="b"),
    "give an owner": {"metadata": owned_by("none")},
}
"""Merge patches that change what tenants have of a source, each sent by every verb that writes."""

_ASKING = frozenset({"unpublish", "say no", "mean others", "confirm"})
"""Those that speak of being published, which take the right on any object."""


def _merged(body: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    kept = {**body} if isinstance(body, dict) else {}
    for field, value in patch.items():
        kept[field] = _merged(kept.get(field), value)
    return {field: value for field, value in kept.items() if value is not None}


def _replaced(change: dict[str, Any]) -> Way:
    return lambda who, source: who.put(f"{MAPS}/{source['metadata']['name']}", _merged(source, change))


def _patched(change: dict[str, Any], kind: str) -> Way:
    return lambda who, source: who.patch(f"{MAPS}/{source['metadata']['name']}", change, kind)


def _json_patched(change: dict[str, Any]) -> Way:
    def way(who: Caller, source: dict[str, Any]) -> Answer:
        after = _merged(source, change)
        steps = [{"op": "add", "path": f"/{part}", "value": after[part]} for part in ("data", "metadata")]
        return who.patch(f"{MAPS}/{source['metadata']['name']}", steps, "json")

    return way


def _applied(change: dict[str, Any]) -> Way:
    def way(who: Caller, source: dict[str, Any]) -> Answer:
        after = _merged({**source, "metadata": {"name": source["metadata"]["name"]}}, change)
        return who.patch(f"{MAPS}/{source['metadata']['name']}", after, "apply", fieldManager="me", force="true")

    return way


def _deleted(**options: str) -> Way:
    return lambda who, source: who.delete(f"{MAPS}/{source['metadata']['name']}", options or None)


def _deleted_together(who: Caller, source: dict[str, Any]) -> Answer:
    return who.delete(MAPS, fieldSelector=f"metadata.name={source['metadata']['name']}")


WAYS: dict[str, Way] = {
    **{
        f"{verb}: {name}": way
        for name, change in _CHANGES.items()
        for verb, way in (
            ("put", _replaced(change)),
            ("merge patch", _patched(change, "merge")),
            ("strategic patch", _patched(change, "strategic-merge")),
            ("json patch", _json_patched(change)),
            # What is applied takes nothing away that somebody else has set.
            *([] if name == "unpublish" else [("apply", _applied(change))]),
        )
    },
    "delete": _deleted(),
    **{f"delete {policy}": _deleted(propagationPolicy=policy) for policy in ("Orphan", "Background", "Foreground")},
    "deletecollection": _deleted_together,
}
"""Everything that may be done to a source, and reaches the tenants."""


@pytest.fixture
def writer(server: Server, admin: Caller, name: str) -> Caller:
    """Somebody who may do everything in the system space but publish."""
    return with_verbs(
        server, admin, f"w-{name}", "create", "get", "list", "patch", "update", "delete", "deletecollection"
    )


def with_verbs(server: Server, admin: Caller, user: str, *verbs: str) -> Caller:
    rule = {"apiGroups": ["", "apps"], "resources": ["*"], "verbs": list(verbs)}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": user}}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    made(admin.post(f"{RBAC}/clusterroles", {**role, "rules": [rule]}))
    binding = {**role, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": reference}
    made(admin.post(f"{RBAC}/clusterrolebindings", binding))
    return server.user("system", user)


def test_every_verb_that_changes_what_tenants_have_takes_the_right_to_publish(
    server: Server, admin: Caller, owner: Caller, writer: Caller, name: str
) -> None:
    """Of what is not published the same writes are the writer's; of what is they are the publisher's (AZ8)."""
    publisher = with_verbs(server, admin, f"p-{name}", "*")
    for number, (what, way) in enumerate(WAYS.items()):
        own, shared = (f"{name}-{number}-{which}" for which in ("own", "shared"))
        if what.partition(": ")[2] not in _ASKING:
            plain = made(writer.post(MAPS, config_map(own))).body
            assert way(writer, plain).status == 200, what
        made(admin.post(MAPS, published(shared)))
        copy = appears(owner, f"{MAPS}/{shared}")
        # Its report is a write to the source, behind the last of the copies: whoever replaces it has read that one.
        report(admin, f"{MAPS}/{shared}", lambda told: told.get("missing") == 0)
        source = admin.get(f"{MAPS}/{shared}").body
        refused = way(writer, source)
        assert refused.status == 403, (what, refused.body)
        assert 'may not "publish" configmaps' in refused.body["message"], what
        kept = admin.get(f"{MAPS}/{shared}").body
        assert publications.follows(kept) == publications.follows(source), what
        assert publications.asks(kept) == publications.asks(source), what
        assert owner.get(f"{MAPS}/{shared}").body == copy, what
        done = way(publisher, kept)
        assert done.status == 200, (what, done.body)


def test_a_namespace_does_not_go_with_what_is_published_in_it_by_who_may_not_publish(
    admin: Caller, owner: Caller, writer: Caller, name: str
) -> None:
    """Its deletion would take the copies out of the tenants' namespaces of the name, which stay (AZ8)."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    inside = f"/api/v1/namespaces/{name}/configmaps"
    for caller in (admin, owner):
        made(caller.post("/api/v1/namespaces", namespace))
    made(admin.post(inside, published("rules")))
    appears(owner, f"{inside}/rules")
    owned = {"metadata": owned_by("none")}
    for refused in (
        writer.delete(f"/api/v1/namespaces/{name}"),
        writer.patch(f"/api/v1/namespaces/{name}", owned),
    ):
        assert refused.status == 403, refused.body
        assert 'may not "publish" configmaps "rules"' in refused.body["message"]
    assert writer.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {"a": "b"}}}).status == 200
    assert "deletionTimestamp" not in admin.get(f"/api/v1/namespaces/{name}").body["metadata"]
    assert admin.delete(f"{inside}/rules").status == 200
    assert writer.delete(f"/api/v1/namespaces/{name}").status == 200
    # A namespace that is published itself.
    itself = {"name": f"{name}-2", "annotations": {PUBLISHED: "true"}}
    made(admin.post("/api/v1/namespaces", {**namespace, "metadata": itself}))
    refused = writer.delete(f"/api/v1/namespaces/{name}-2")
    assert (refused.status, 'may not "publish" namespaces' in refused.body["message"]) == (403, True)


def test_a_pod_is_not_evicted_out_of_all_tenants_spaces(
    admin: Caller, owner: Caller, writer: Caller, name: str
) -> None:
    pods = "/api/v1/namespaces/default/pods"
    spec = {"containers": [{"name": "c", "image": "i"}]}
    metadata = {"name": name, "annotations": {PUBLISHED: "true"}}
    made(admin.post(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    appears(owner, f"{pods}/{name}")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    refused = writer.post(f"{pods}/{name}/eviction", eviction)
    assert (refused.status, 'may not "publish" pods' in refused.body["message"]) == (403, True), refused.body
    assert owner.get(f"{pods}/{name}").status == 200
    assert Caller.post(admin, f"{pods}/{name}/eviction", eviction).status == 201
    assert disappears(owner, f"{pods}/{name}")
