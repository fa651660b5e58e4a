"""A workspace on a registered cluster is a Namespace of the tenant's space, and one ordered there is a workspace (GW18)."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest

from audit.models import AuditEntry
from tenants.models import Phase, Role, Workspace
from tenants.reconciler.loop import workspace_reconcile
from tenants.services import tenant_suspend, workspace_init, workspace_suspend
from tests.gateway.callers import config_map, eventually
from tests.gateway.placed.conftest import STANDING_IN, Door, namespace, phase_of, said
from tests.tenants.conftest import OPERATOR, actor_of

pytestmark = pytest.mark.django_db(transaction=True)

PROTOBUF = "application/vnd.kubernetes.protobuf"


def test_a_tenant_works_in_its_namespaces_with_kubectl_alone(door: Door, kubectl: Callable[..., str]) -> None:
    """GW4: from the order to the end, with one file and the cluster's own objects."""
    owner, name = door.person("olga", Role.OWNER), f"{door.name}-web"
    manifest = (
        f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{tenantry.io/cluster: kube-apiserver}}}}"
    )
    assert "created" in kubectl(owner, "apply", "-f", "-", stdin=manifest)
    assert phase_of(owner, name) == "Pending"
    door.until(lambda: phase_of(owner, name) == "Active")
    kubectl(owner, "wait", "--for=jsonpath={.status.phase}=Active", f"ns/{name}", "--timeout=240s")
    assert "unchanged" in kubectl(owner, "apply", "-f", "-", stdin=manifest)
    deployment = kubectl(
        owner, "-n", name, "create", "deployment", "web", "--image=nginx", "--dry-run=client", "-oyaml"
    )
    assert "serverside-applied" in kubectl(owner, "-n", name, "apply", "--server-side", "-f", "-", stdin=deployment)
    assert "scaled" in kubectl(owner, "-n", name, "scale", "deploy/web", "--replicas=2")
    assert "web" in door.cluster.kubectl("get", "deployment", "-n", name)
    assert "0/2" in kubectl(owner, "-n", name, "get", "deploy")
    kubectl(owner, "-n", name, "create", "secret", "generic", "s", "--from-literal=a=b")
    assert "deleted" in kubectl(owner, "-n", name, "delete", "deploy/web", "secret/s")
    assert "NotFound" in kubectl(owner, "-n", name, "get", "deploy", "web", check=False)
    kubectl(owner, "delete", "ns", name, "--wait=false")
    assert phase_of(owner, name) == "Terminating"
    door.until(lambda: phase_of(owner, name) == "")
    assert "NotFound" in door.cluster.kubectl("get", "ns", name)


def test_protobuf_passes_both_ways(door: Door) -> None:
    """In a placed namespace, as on the cluster; what is made up of several is JSON, for whoever takes it."""
    owner = door.person("olga", Role.OWNER)
    name = door.place(owner)
    path, encoded = f"/api/v1/namespaces/{name}/configmaps", {"Accept": PROTOBUF}
    assert owner.post(path, config_map("one", {"word": "first"})).status == 201
    read = owner.get(f"{path}/one", encoded)
    assert (read.status, read.headers["content-type"], read.raw[:4]) == (200, PROTOBUF, b"k8s\0")
    written = owner.put(f"{path}/one", read.raw.replace(b"first", b"other"), {"Content-Type": PROTOBUF})
    assert written.body["data"] == {"word": "other"}
    stale = owner.put(f"{path}/one", read.raw, {"Content-Type": PROTOBUF, **encoded})
    assert (stale.status, stale.headers["content-type"], b"Conflict" in stale.raw) == (409, PROTOBUF, True)
    framed = {"Accept": f"{PROTOBUF};stream=watch"}
    watched = owner.open("GET", f"{path}?watch=true&fieldSelector=metadata.name%3Done", headers=framed)
    frame = watched.read(int.from_bytes(watched.read(4), "big"))
    assert watched.getheader("Content-Type") == f"{PROTOBUF};stream=watch"
    assert b"ADDED" in frame
    assert b"other" in frame
    watched.connection.close()  # type: ignore[attr-defined]
    across = owner.get("/api/v1/configmaps", {"Accept": f"{PROTOBUF}, */*"}, fieldSelector="metadata.name=one")
    assert [item["data"] for item in across.body["items"]] == [{"word": "other"}]
    assert owner.get("/api/v1/configmaps", encoded).status == 406


def test_a_workspace_of_the_portal_is_shown_as_it_goes(door: Door) -> None:
    owner = door.person("olga", Role.OWNER)
    user = door.tenant.memberships.get().user
    workspace = workspace_init(
        actor=actor_of(user), user=user, tier="basic", tenant=door.name, name="shop", cluster="kube-apiserver"
    )
    name = workspace.k8s_namespace
    door.until(lambda: phase_of(owner, name) == "Active")
    shown = owner.get(f"/api/v1/namespaces/{name}").body["metadata"]
    assert shown["labels"]["tenantry.io/cluster"] == "kube-apiserver"
    assert shown["labels"]["tenantry.io/workspace"] == str(workspace.id)
    assert (shown["annotations"]["tenantry.io/name"], shown["annotations"]["tenantry.io/tier"]) == ("shop", "basic")
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="unpaid")
    door.until(lambda: phase_of(owner, name) == "Suspended")


def test_drift_of_the_shown_namespace_is_repaired(door: Door) -> None:
    owner = door.person("olga", Role.OWNER)
    name = door.place(owner)
    path = f"/api/v1/namespaces/{name}"
    operator = door.server.admin
    assert (
        operator.patch(
            f"/clusters/root:{door.name}{path}", {"metadata": {"labels": {"tenantry.io/cluster": None}}}
        ).status
        == 200
    )
    workspace = Workspace.objects.get(k8s_namespace=name)
    assert workspace_reconcile(workspace.id) == ["the tenant's space shows the namespace otherwise"]
    door.until(lambda: "tenantry.io/cluster" in owner.get(path).body["metadata"]["labels"])


@pytest.mark.parametrize(
    ("name", "status", "remedy"),
    [
        ("web", 422, 'it must begin with "{tenant}-"'),
        ("{tenant}", 422, 'it must begin with "{tenant}-"'),
        ("{tenant}-", 422, "RFC 1123 label"),
        ("kube-system-{tenant}", 422, "reserved"),
    ],
)
def test_names_say_whose_they_are(door: Door, name: str, status: int, remedy: str) -> None:
    answer = door.person("olga", Role.OWNER).post("/api/v1/namespaces", namespace(name.format(tenant=door.name)))
    assert (answer.status, remedy.format(tenant=door.name) in said(answer)) == (status, True), answer.body
    assert not Workspace.objects.exists()


def test_what_is_on_the_cluster_already_is_never_adopted(door: Door) -> None:
    name = f"{door.name}-old"
    door.cluster.kubectl("create", "namespace", name)
    try:
        answer = door.person("olga", Role.OWNER).post("/api/v1/namespaces", namespace(name))
        assert (answer.status, answer.reason, "choose another name" in said(answer)) == (409, "AlreadyExists", True)
        assert not Workspace.objects.exists()
    finally:
        door.cluster.kubectl("delete", "namespace", name, "--wait=false")


def test_orders_are_of_people_of_the_portal(door: Door) -> None:
    """A certificate of no member, and a member whose role orders nothing."""
    stranger = door.server.user(door.name, "robot", "tenantry:owner")
    answer = stranger.post("/api/v1/namespaces", namespace(f"{door.name}-a"))
    assert (answer.status, "let a member order it" in said(answer)) == (403, True)
    viewer = door.person("vera", Role.VIEWER)
    assert viewer.post("/api/v1/namespaces", namespace(f"{door.name}-a")).status == 403
    raised = door.server.user(door.name, f"vera@{door.name}.test", "tenantry:owner")
    answer = raised.post("/api/v1/namespaces", namespace(f"{door.name}-a"))
    assert (answer.status, said(answer)) == (403, "Viewers cannot create workspaces.")


def test_nobody_orders_as_somebody_else(door: Door) -> None:
    """What the audit chain seals as a person's doing is that person's, and so are the limits that it counts against."""
    owner, name = door.person("olga", Role.OWNER), f"{door.name}-b"
    door.person("bob", Role.OWNER)
    headers = {"Impersonate-User": f"bob@{door.name}.test", "Impersonate-Group": "tenantry:owner"}
    assert owner.get("/api/v1/namespaces", headers=headers).status == 200
    refused = owner.post("/api/v1/namespaces", namespace(name), headers=headers)
    assert (refused.status, refused.reason, "leave Impersonate-User" in said(refused)) == (403, "Forbidden", True)
    placed = door.place(owner)
    assert owner.call("DELETE", f"/api/v1/namespaces/{placed}", headers=headers).status == 403
    assert [each.k8s_namespace for each in Workspace.objects.all()] == [placed]
    assert owner.delete(f"/api/v1/namespaces/{placed}").status == 200


def test_limits_hold_and_orders_are_recorded(door: Door) -> None:
    owner = door.person("olga", Role.OWNER)
    made = owner.post("/api/v1/namespaces", namespace(f"{door.name}-a", **{"tenantry.io/tier": "basic"}))
    assert made.status == 201
    answers = [owner.post("/api/v1/namespaces", namespace(f"{door.name}-{n}")) for n in range(8)]
    refused = [answer for answer in answers if answer.status == 403]
    assert "per user" in said(refused[0])
    entry = AuditEntry.objects.filter(action="workspace.create", chain=door.name).first()
    assert (entry.actor, entry.request_id) == (f"olga@{door.name}.test", made.headers["audit-id"])


def test_a_dry_run_orders_nothing(door: Door) -> None:
    owner = door.person("olga", Role.OWNER)
    assert owner.post("/api/v1/namespaces", namespace(f"{door.name}-a"), dryRun="All").status == 201
    assert not Workspace.objects.exists()
    assert phase_of(owner, f"{door.name}-a") == ""


def test_labels_of_placement_are_nobodys_to_write(door: Door) -> None:
    owner = door.person("olga", Role.OWNER)
    name = door.place(owner)
    path = f"/api/v1/namespaces/{name}"
    body = owner.get(path).body
    for label in ("tenantry.io/cluster", "tenantry.io/workspace"):
        for value in (None, "other"):
            assert owner.patch(path, {"metadata": {"labels": {label: value}}}).status == 403
            changed = {
                **body,
                "metadata": {**body["metadata"], "labels": {**body["metadata"]["labels"], label: value or ""}},
            }
            assert owner.put(path, changed).status == 403
    assert owner.patch(path, {"metadata": {"annotations": {"tenantry.io/tier": "large"}}}).status == 403
    assert owner.patch(path, {"metadata": {"labels": {"team": "a"}}}).status == 200
    stored = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "plain"}}
    assert owner.post("/api/v1/namespaces", stored).status == 201
    for label in ("tenantry.io/cluster", "tenantry.io/workspace"):
        assert owner.patch("/api/v1/namespaces/plain", {"metadata": {"labels": {label: "x"}}}).status == 403
    forged = namespace(f"{door.name}-f")
    forged["metadata"]["labels"]["tenantry.io/workspace"] = body["metadata"]["uid"]
    assert owner.post("/api/v1/namespaces", forged).status == 403


def test_no_owner_takes_a_namespace_along(new_standing_door: Callable[..., Door]) -> None:
    """Nor does one that an operator gives it: the workspace behind it would go on with nobody to answer for it."""
    door = new_standing_door()
    owner, name = door.person("olga", Role.OWNER), f"{door.name}-web"
    path = f"/api/v1/namespaces/{name}"
    owned = {"ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": "none", "uid": "x"}]}
    order = namespace(name, STANDING_IN)
    refused = owner.post("/api/v1/namespaces", {**order, "metadata": {**order["metadata"], **owned}})
    assert (refused.status, "has no owners" in said(refused)) == (403, True), refused.body
    assert not Workspace.objects.exists()
    door.place(owner, name, STANDING_IN)
    refused = owner.patch(path, {"metadata": owned})
    assert (refused.status, "has no owners" in said(refused)) == (403, True), refused.body
    assert door.server.admin.patch(f"/clusters/root:{door.name}{path}", {"metadata": owned}).status == 200
    assert eventually(lambda: "ownerReferences" not in owner.get(path).body["metadata"])
    shown = owner.get(path).body
    assert (shown["status"]["phase"], "deletionTimestamp" in shown["metadata"]) == ("Active", False)
    assert owner.post(f"{path}/configmaps", config_map("a")).status == 201


def test_a_namespace_made_again_is_another_one(door: Door) -> None:
    owner = door.person("olga", Role.OWNER)
    name = door.place(owner)
    path = f"/api/v1/namespaces/{name}"
    before = owner.get(path).body["metadata"]["uid"]
    assert owner.post(f"{path}/configmaps", config_map("mine")).status == 201
    assert owner.delete(path).status == 200
    door.until(lambda: owner.get(f"{path}/configmaps/mine").status == 403)
    # What ends is shown as ending: kubectl waits for it.
    assert owner.get(path).body["status"]["phase"] == "Terminating"
    door.until(lambda: phase_of(owner, name) == "")
    assert owner.get(f"{path}/configmaps/mine").status == 404
    # Nothing of what the cluster had is left here either.
    accounts = owner.get("/api/v1/serviceaccounts").body["items"]
    assert name not in {account["metadata"]["namespace"] for account in accounts}
    door.place(owner, name)
    assert owner.get(path).body["metadata"]["uid"] != before
    assert owner.get(f"{path}/configmaps/mine").status == 404
    assert owner.post(f"{path}/configmaps", config_map("mine")).status == 201


def test_another_tenant_gets_nothing_by_any_path(new_door: Callable[[], Door]) -> None:
    """TS13: by name, by full path, by order and by label."""
    door, others = new_door(), new_door()
    name = door.place(door.person("olga", Role.OWNER))
    thief = others.person("olga", Role.OWNER)
    uid = Workspace.objects.get(k8s_namespace=name).id
    for prefix in (f"/clusters/root:{door.name}/api/v1", f"/api/v1/tenants/{door.name}"):
        for rest in ("configmaps", "secrets", "pods/x/log", "configmaps?watch=true"):
            assert thief.get(f"{prefix}/namespaces/{name}/{rest}").status == 403
    assert thief.get(f"/api/v1/namespaces/{name}/configmaps").body["items"] == []
    assert thief.get(f"/api/v1/namespaces/{name}/configmaps/kube-root-ca.crt").status == 404
    assert thief.post("/api/v1/namespaces", namespace(name)).status == 422
    forged = namespace(f"{others.name}-x")
    forged["metadata"]["labels"]["tenantry.io/workspace"] = str(uid)
    assert thief.post("/api/v1/namespaces", forged).status == 403
    # Even an operator's slip opens nothing: the database says whose the workspace is.
    slip = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": forged["metadata"]["labels"]}}
    path = f"/clusters/root:{others.name}/api/v1/namespaces"
    others.server.admin.post(path, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    assert (
        others.server.admin.patch(f"{path}/{name}", {"metadata": {"labels": slip["metadata"]["labels"]}}).status == 200
    )
    others.server.admin.patch(f"{path}/{name}/status", {"status": {"phase": "Active"}})
    answer = thief.get(f"/api/v1/namespaces/{name}/configmaps")
    assert answer.status == 404, answer.body


def test_a_suspended_tenant_is_out_with_its_streams(door: Door) -> None:
    """GW5: reads, writes and open watches; nothing of it needs the cluster."""
    owner = door.person("olga", Role.OWNER)
    name = door.place(owner)
    path = f"/api/v1/namespaces/{name}/configmaps"
    with owner.watch(path, resourceVersion=owner.get(path).body["metadata"]["resourceVersion"]) as watch:
        assert owner.post(path, config_map("seen")).status == 201
        assert "seen" in {event["object"]["metadata"]["name"] for event in watch.take(1)}
        tenant_suspend(actor=OPERATOR, name=door.name, reason="unpaid")
        last = watch.until_end()[-1]
    assert (last["type"], last["object"]["reason"]) == ("ERROR", "Forbidden")
    assert owner.get(path).status == 403
    assert owner.post(path, config_map("late")).status == 403
    assert Workspace.objects.get(k8s_namespace=name).phase == Phase.SUSPENDING


def test_a_namespace_nobody_has_made_is_not_found(door: Door) -> None:
    owner = door.person("olga", Role.OWNER)
    assert owner.post(f"/api/v1/namespaces/{uuid4().hex}/configmaps", config_map("c")).status == 404


def test_connections_into_pods_are_for_who_may_change_what_runs_there(door: Door) -> None:
    """GW4: what is not asked for as an upgrade says so, and ``proxy`` is closed."""
    owner, viewer = door.person("olga", Role.OWNER), door.person("vera", Role.VIEWER)
    pod = f"/api/v1/namespaces/{door.place(owner)}/pods/web"
    for subresource in ("exec", "attach", "portforward"):
        assert viewer.get(f"{pod}/{subresource}").status == 403
        answer = owner.get(f"{pod}/{subresource}")
        assert (answer.status, answer.body["message"]) == (400, "a connection can be upgraded to websocket or SPDY/3.1")
    closed = owner.get(f"{pod}/proxy/")
    assert (closed.status, closed.body["reason"]) == (403, "Forbidden")
    assert "kubectl port-forward" in closed.body["message"]
