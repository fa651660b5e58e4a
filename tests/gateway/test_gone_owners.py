"""An object whose owners are gone ends as a DELETE would end it, or not at all where a DELETE is refused (TS3, GW5, KC4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

from tenants.clusters import objects
from tests.gateway.apiexports import APIS, binds, export, schema, widget
from tests.gateway.callers import Caller, config_map, eventually
from tests.gateway.conftest import Server, tenant_named
from tests.gateway.definitions import CRDS, definition, install, remove
from tests.gateway.organization import RBAC, TENANCY, made, ready

NAMESPACES, ROLES = "/api/v1/namespaces", f"{RBAC}/clusterroles"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
QUOTA = "/apis/tenancy.tenantry.io/v1alpha1/tenantquotas/quota"
HELD = {"finalizers": ["example.org/held"]}
PLACED = {objects.CLUSTER_LABEL: "far", objects.WORKSPACE_LABEL: "w"}


@dataclass(frozen=True)
class House:
    """A tenant, its owner, and the operators."""

    server: Server
    name: str
    owner: Caller

    @property
    def admin(self) -> Caller:
        return self.server.admin

    @property
    def space(self) -> str:
        return f"/clusters/root:{self.name}"

    def placed(self) -> list[str]:
        """The namespaces that are said to be on a cluster, by name."""
        listed = self.admin.get(f"{self.space}{NAMESPACES}", labelSelector=",".join(PLACED)).body
        return [item["metadata"]["name"] for item in listed["items"]]


@pytest.fixture(scope="module")
def house(server: Server) -> Iterator[House]:
    name = tenant_named(server, f"h{uuid4().hex[:8]}")
    house = House(server, name, server.user(name, "olga", "tenantry:owner"))
    yield house
    for one in house.placed():
        path = f"{house.space}{NAMESPACES}/{one}"
        assert house.admin.patch(path, {"metadata": {"labels": dict.fromkeys(PLACED)}}).status == 200


Whose = tuple[Caller, str, str]
"""Who changes a thing, in which logical cluster it is, and at what path there."""


def role(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": [],
    }


def gets_an_owner_that_never_was(whose: Whose) -> Callable[[], bool]:
    caller, prefix, path = whose
    owner = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "none", "uid": "x"}
    answer = caller.patch(f"{prefix}{path}", {"metadata": {"ownerReferences": [owner]}})
    assert answer.status == 200, answer.body
    return lambda: True


def gets_an_owner_that_goes_last(whose: Whose) -> Callable[[], bool]:
    """One that is deleted in the foreground; it goes once nothing keeps it."""
    caller, prefix, path = whose
    name = f"owner-{uuid4().hex[:8]}"
    uid = made(caller.post(f"{prefix}{ROLES}", role(name)))["metadata"]["uid"]
    owner = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": name, "uid": uid}
    answer = caller.patch(f"{prefix}{path}", {"metadata": {"ownerReferences": [{**owner, "blockOwnerDeletion": True}]}})
    assert answer.status == 200, answer.body
    assert caller.delete(f"{prefix}{ROLES}/{name}", {"propagationPolicy": "Foreground"}).status == 200
    return lambda: caller.get(f"{prefix}{ROLES}/{name}").status in (403, 404)


WAYS = [gets_an_owner_that_never_was, gets_an_owner_that_goes_last]


# What stays.


def first(name: str) -> Callable[[House], Whose]:
    return lambda house: (house.owner, "", f"{NAMESPACES}/{name}")


def of_a_workspace(house: House) -> Whose:
    """The tenant's people may give it no owner; operators can."""
    name = f"tenant-{uuid4().hex[:8]}"
    labels = {objects.MANAGED_BY: objects.PRODUCT, objects.WORKSPACE_LABEL: "w", objects.TENANT_LABEL: house.name}
    made(house.admin.post(f"{house.space}{NAMESPACES}", {"metadata": {"name": name, "labels": labels}}))
    return house.admin, house.space, f"{NAMESPACES}/{name}"


def placed(house: House) -> Whose:
    name = f"{house.name}-{uuid4().hex[:8]}"
    made(house.admin.post(f"{house.space}{NAMESPACES}", {"metadata": {"name": name}}))
    path = f"{NAMESPACES}/{name}"
    assert house.admin.patch(f"{house.space}{path}", {"metadata": {"labels": PLACED}}).status == 200
    return house.admin, house.space, path


def below(house: House) -> Whose:
    name = f"w{uuid4().hex[:8]}"
    ready(house.owner, house.space, name)
    return house.owner, f"{house.space}:{name}", CLUSTER


STAYS: dict[str, Callable[[House], Whose]] = {
    "default": first("default"),
    "kube-system": first("kube-system"),
    "kube-public": first("kube-public"),
    "the namespace of a workspace": of_a_workspace,
    "a placed namespace": placed,
    "the logical cluster of a tenant": lambda house: (house.owner, house.space, CLUSTER),
    "the logical cluster of a workspace": below,
    "a tenant": lambda house: (house.admin, "", f"/api/v1/tenants/{house.name}"),
    "a tenant's quota": lambda house: (house.admin, house.space, QUOTA),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", STAYS)
def test_what_nobody_may_delete_outlives_its_owners(
    house: House, kind: str, way: Callable[[Whose], Callable[[], bool]]
) -> None:
    """It forgets them, and holds up nobody."""
    whose = STAYS[kind](house)
    caller, prefix, path = whose
    before = caller.get(f"{prefix}{path}").body
    done = way(whose)

    def forgets() -> bool:
        answer = caller.get(f"{prefix}{path}")
        assert answer.status == 200, answer.body
        return "ownerReferences" not in answer.body["metadata"]

    assert eventually(forgets)
    assert eventually(done)
    after = caller.get(f"{prefix}{path}").body["metadata"]
    assert after["uid"] == before["metadata"]["uid"]
    assert "deletionTimestamp" not in after


# What ends.


Ending = tuple[Whose, Callable[[], bool], Callable[[], None]]
"""What gets the owner, whether its end is seen to have begun, and what lets it come."""


def released(caller: Caller, path: str) -> None:
    assert caller.patch(path, {"metadata": {"finalizers": None}}).status == 200


def a_namespace(house: House) -> Ending:
    name, owner = f"n{uuid4().hex[:8]}", house.owner
    path = f"{NAMESPACES}/{name}"
    free = f"{path}/configmaps/free"
    made(owner.post(NAMESPACES, {"metadata": {"name": name}}))
    made(owner.post(f"{path}/configmaps", config_map("free")))
    made(owner.post(f"{path}/configmaps", config_map("held", **HELD)))

    def ends() -> bool:
        answer = owner.get(path)
        assert answer.status == 200, answer.body
        ending = "deletionTimestamp" in answer.body["metadata"]
        return ending and answer.body["status"]["phase"] == "Terminating" and owner.get(free).status == 404

    return (owner, "", path), ends, lambda: released(owner, f"{path}/configmaps/held")


def a_definition(house: House) -> Ending:
    owner, kind = house.owner, f"K{uuid4().hex[:8]}"
    crd = definition(kind, scope="Cluster")
    install(owner, crd)
    path, inside = f"{CRDS}/{crd['metadata']['name']}", f"/apis/example.com/v1/{crd['spec']['names']['plural']}"
    one = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": "held", **HELD}}
    made(owner.post(inside, one))

    def ends() -> bool:
        conditions = owner.get(path).body["status"]["conditions"]
        begun = any((each["type"], each["status"]) == ("Terminating", "True") for each in conditions)
        return begun and "deletionTimestamp" in owner.get(f"{inside}/held").body["metadata"]

    return (owner, "", path), ends, lambda: released(owner, f"{inside}/held")


def a_workspace(house: House) -> Ending:
    owner, name = house.owner, f"w{uuid4().hex[:8]}"
    ready(owner, house.space, name)
    path, inside = f"{TENANCY}/workspaces/{name}", f"{house.space}:{name}"
    made(owner.post(f"{inside}/api/v1/namespaces/default/configmaps", config_map("one")))

    def ends() -> bool:
        left = house.admin.get(f"{inside}{CLUSTER.rpartition('/')[0]}").body["items"]
        return owner.get(f"{inside}/api").status == 403 and not left

    return (owner, house.space, path), ends, lambda: None


def a_binding(house: House) -> Ending:
    owner, name = house.owner, f"p{uuid4().hex[:8]}"
    ready(owner, house.space, name)
    provider, consumer, kind = f"{house.space}:{name}", house.space, f"K{name}"
    made(owner.post(f"{provider}{APIS}/apiresourceschemas", schema(kind, scope="Cluster")))
    made(owner.post(f"{provider}{APIS}/apiexports", export(name, f"v1.{kind.lower()}s.example.org")))
    binds(owner, consumer, name, f"root:{house.name}:{name}:{name}")
    one = f"{consumer}/apis/example.org/v1/{kind.lower()}s"
    body = widget("held", kind=kind)
    made(owner.post(one, {**body, "metadata": {"name": "held", **HELD}}))

    def ends() -> bool:
        bound = owner.get(f"{consumer}{APIS}/apibindings/{name}").body
        return "deletionTimestamp" in bound["metadata"] and (
            "deletionTimestamp" in owner.get(f"{one}/held").body["metadata"]
        )

    return (owner, consumer, f"{APIS}/apibindings/{name}"), ends, lambda: released(owner, f"{one}/held")


ENDS: dict[str, Callable[[House], Ending]] = {
    "a namespace": a_namespace,
    "a definition": a_definition,
    "a workspace": a_workspace,
    "a binding": a_binding,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ENDS)
def test_what_ends_with_its_owners_is_emptied_first(
    house: House, kind: str, way: Callable[[Whose], Callable[[], bool]]
) -> None:
    (caller, prefix, path), ends, release = ENDS[kind](house)
    done = way((caller, prefix, path))
    assert eventually(ends)
    release()
    assert eventually(lambda: caller.get(f"{prefix}{path}").status == 404)
    assert eventually(done)


@pytest.mark.parametrize("policy", ["Foreground", "Orphan", "Background"])
def test_a_namespace_that_is_an_owner_itself_goes(house: House, policy: str) -> None:
    name, owner = f"o{uuid4().hex[:8]}", house.owner
    uid = made(owner.post(NAMESPACES, {"metadata": {"name": name}}))["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": uid, "blockOwnerDeletion": True}
    dependent = role(f"d-{name}")
    dependent["metadata"]["ownerReferences"] = [reference]
    made(owner.post(ROLES, dependent))
    assert owner.delete(f"{NAMESPACES}/{name}", {"propagationPolicy": policy}).status == 200
    assert eventually(lambda: owner.get(f"{NAMESPACES}/{name}").status == 404)
    if policy == "Orphan":
        assert "ownerReferences" not in owner.get(f"{ROLES}/d-{name}").body["metadata"]
    else:
        assert eventually(lambda: owner.get(f"{ROLES}/d-{name}").status == 404)


def test_a_namespace_that_waits_says_for_what_and_ends_its_pods_first(house: House) -> None:
    name, owner = f"s{uuid4().hex[:8]}", house.owner
    path = f"{NAMESPACES}/{name}"
    made(owner.post(NAMESPACES, {"metadata": {"name": name}}))
    made(owner.post(f"{path}/configmaps", config_map("needed")))
    spec = {"containers": [{"name": "main", "image": "example.org/main:1"}]}
    made(owner.post(f"{path}/pods", {"metadata": {"name": "held", **HELD}, "spec": spec}))
    assert owner.delete(path).status == 200

    def waits() -> bool:
        conditions = owner.get(path).body["status"].get("conditions", ())
        return {each["type"]: each["message"] for each in conditions if each["status"] == "True"} == {
            "NamespaceContentRemaining": "Some resources are remaining: pods. has 1 resource instances",
            "NamespaceFinalizersRemaining": "Some content in the namespace has finalizers remaining: "
            "example.org/held in 1 resource instances",
        }

    assert eventually(waits)
    assert "deletionTimestamp" not in owner.get(f"{path}/configmaps/needed").body["metadata"]
    released(owner, f"{path}/pods/held")
    assert eventually(lambda: owner.get(path).status == 404)


def test_a_circle_of_owners_goes_with_any_of_it(house: House) -> None:
    """Kubernetes' e2e "should not be blocked by dependency circle"."""
    name, owner = f"c{uuid4().hex[:8]}", house.owner
    inside = f"{NAMESPACES}/{name}/configmaps"
    made(owner.post(NAMESPACES, {"metadata": {"name": name}}))
    circle = [made(owner.post(inside, config_map(each)))["metadata"] for each in ("a", "b", "c")]
    for metadata, above in zip(circle, [*circle[1:], circle[0]], strict=True):
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": above["name"], "uid": above["uid"]}
        owners = {"ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}]}
        assert owner.patch(f"{inside}/{metadata['name']}", {"metadata": owners}).status == 200
    assert owner.delete(f"{inside}/a", {"propagationPolicy": "Foreground"}).status == 200
    for metadata in circle:
        assert eventually(lambda path=f"{inside}/{metadata['name']}": owner.get(path).status == 404)


def test_what_objects_of_a_deleted_definition_owned_goes(house: House) -> None:
    name, owner, kind = f"d{uuid4().hex[:8]}", house.owner, f"K{uuid4().hex[:8]}"
    crd = definition(kind)
    install(owner, crd)
    made(owner.post(NAMESPACES, {"metadata": {"name": name}}))
    things = f"/apis/example.com/v1/namespaces/{name}/{crd['spec']['names']['plural']}"
    inside = f"{NAMESPACES}/{name}/configmaps"
    for number in range(5):
        thing = {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": f"t{number}"}}
        uid = made(owner.post(things, thing))["metadata"]["uid"]
        owners = [{"apiVersion": "example.com/v1", "kind": kind, "name": f"t{number}", "uid": uid}]
        for each in ("a", "b"):
            made(owner.post(inside, config_map(f"{each}{number}", labels={"of": name}, ownerReferences=owners)))
    remove(owner, crd["metadata"]["name"])
    assert eventually(lambda: owner.get(inside, labelSelector=f"of={name}").body["items"] == [])


def test_a_custom_namespace_is_no_namespace(house: House) -> None:
    """What waits in ``spec.finalizers`` of another group's kind is nobody's."""
    owner = house.owner
    crd = definition("Namespace", group=f"g{uuid4().hex[:8]}.example.com", scope="Cluster")
    install(owner, crd)
    path = f"/apis/{crd['spec']['group']}/v1/namespaces"
    body = {"apiVersion": f"{crd['spec']['group']}/v1", "kind": "Namespace", "metadata": {"name": "one"}}
    made(owner.post(path, {**body, "spec": {"finalizers": ["kubernetes"]}}))
    assert owner.delete(f"{path}/one").status == 200
    assert owner.get(f"{path}/one").status == 404
