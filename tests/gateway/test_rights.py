"""Rights end where they were given: acting as others, accounts of other workspaces, groups asked for from above."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from kube.authentication.identity import FOREIGN_ACCOUNT_PREFIX, HOME_EXTRA
from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server, tenant_named
from tests.gateway.organization import RBAC, TENANCY, account, bound, made, ready, role, rule, workspace, workspace_type
from tests.speaking import Speaker

HOME = "/clusters/root:manor"
HALL, TOWER = f"{HOME}:hall", f"{HOME}:tower"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
GROUPS = "authorization.kcp.io/required-groups"
REVIEWS = "/apis/authorization.k8s.io/v1"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
NAMESAKE = "system:serviceaccount:default:default"


@pytest.fixture(scope="module")
def people(server: Server) -> dict[str, Caller]:
    """A tenant with two workspaces: hall, whose administrator is hal, and tower, whose administrator is tom.

    adam administers the tenant's space and has no access to hall; mia may enter hall and read there.
    """
    tenant_named(server, "manor")
    olga = server.user("manor", "olga", "tenantry:owner")
    ready(olga, HOME, "hall")
    ready(olga, HOME, "tower")
    bound(olga, HOME, "cluster-admin", "User", "adam")
    for cluster, name in ((HALL, "hal"), (TOWER, "tom")):
        bound(olga, cluster, "cluster-admin", "User", name)
        bound(olga, cluster, "system:kcp:workspace:access", "User", "mia")
        bound(olga, cluster, "view", "User", "mia")
    accounts = {
        name: account(server, olga, where) for name, where in (("home", HOME), ("hall", HALL), ("tower", TOWER))
    }
    # The account of this name in hall may do everything there, those of the same name elsewhere nothing.
    bound(olga, HALL, "cluster-admin", "ServiceAccount", "default")
    return {
        "olga": olga,
        **{name: server.user("manor", name) for name in ("adam", "hal", "tom", "mia")},
        **{f"account of {name}": caller for name, caller in accounts.items()},
        "masters": server.admin,
    }


def acting(who: str, group: str = "") -> dict[str, str]:
    return {"Impersonate-User": who, **({"Impersonate-Group": group} if group else {})}


def test_whoever_is_closed_out_of_a_workspace_does_not_enter_it_as_another(people: dict[str, Caller]) -> None:
    """KC2: the right to act as others in the tenant's space ends with that space."""
    adam, secrets = people["adam"], "/api/v1/namespaces/default/secrets"
    assert adam.get(f"{HALL}{secrets}").status == 403
    for name in ("hal", "olga", NAMESAKE):
        refused = adam.get(f"{HALL}{secrets}", acting(name))
        assert refused.status == 403
        assert "cannot impersonate" in refused.body["message"]
    assert adam.get(f"{HOME}{secrets}", acting("olga", "tenantry:owner")).status == 200


def test_an_administrator_acts_as_others_at_home_and_comes_no_further_by_it(people: dict[str, Caller]) -> None:
    """KC4, KC9: as in Kubernetes for the workspace's own cluster-admin, and nothing counts above it."""
    hal, mia = people["hal"], acting("mia")
    assert hal.get(f"{HALL}/api/v1/namespaces/default/configmaps", mia).status == 200
    assert hal.get(f"{HALL}/api/v1/namespaces/default/secrets", mia).status == 403
    assert hal.get(f"{HALL}/api/v1/namespaces/default/secrets", acting(NAMESAKE)).status == 200
    assert hal.get(f"{TOWER}/api/v1/namespaces/default/configmaps", mia).status == 403
    assert hal.get(f"{HOME}/api/v1/namespaces", acting("adam")).status == 403
    # adam administers the workspace from above; who acts as adam inside of it does not.
    olga = {"Content-Type": "application/merge-patch+json", **acting("olga", "tenantry:owner")}
    asked = {"metadata": {"annotations": {GROUPS: "nobody"}}}
    assert hal.call("PATCH", f"{HALL}{CLUSTER}", asked, olga).status == 403
    robot = people["account of hall"]
    assert robot.get(f"{HALL}/api/v1/namespaces/default/configmaps", mia).status == 200
    assert robot.get(f"{HOME}/api/v1/namespaces/default/configmaps", mia).status == 403


def test_a_right_given_above_is_not_used_in_the_name_of_those_who_have_it(people: dict[str, Caller]) -> None:
    """KC10: ``use`` and ``bind`` are asked about elsewhere, where nobody acts as another."""
    olga = people["olga"]
    made(olga.post(f"{HOME}{TENANCY}/workspacetypes", workspace_type("rare")))
    made(olga.post(f"{HOME}{TENANCY}/workspacetypes", workspace_type("common")))
    for name, subject in (("rare", ("User", "mia")), ("common", ("Group", "system:authenticated"))):
        role(olga, HOME, f"use-{name}", rule("use", "tenancy.kcp.io", "workspacetypes", name))
        bound(olga, HOME, f"use-{name}", *subject)
    hal, path = people["hal"], f"{HALL}{TENANCY}/workspaces?dryRun=All"
    assert hal.post(path, workspace("a", "root:manor:rare")).status == 403
    assert hal.post(path, workspace("a", "root:manor:rare"), acting("mia")).status == 403
    # What is for everybody is for the tenant's own accounts too, as for those of other tenants.
    for who in ("hal", "account of hall"):
        assert people[who].post(path, workspace("a", "root:manor:common")).status == 201, who
    assert people["account of hall"].post(path, workspace("a", "root:manor:rare")).status == 403


def review(caller: Caller, cluster: str, user: dict[str, Any], **asked: str) -> Any:
    spec = {"user": user.get("username", ""), "groups": user.get("groups", []), "extra": user.get("extra", {})}
    body = {
        "spec": {**spec, "resourceAttributes": {"namespace": "default", "resource": "secrets", "verb": "get", **asked}}
    }
    return caller.post(f"{cluster}{REVIEWS}/subjectaccessreviews", body)


def test_reviews_tell_an_account_from_its_namesake(people: dict[str, Caller]) -> None:
    """KC9, AZ10: whose token it is, and what that one may do; with the cluster in ``extra`` and without."""
    tokens = {name: people[f"account of {name}"].token for name in ("home", "hall", "tower")}
    paths = {"home": "root:manor", "hall": "root:manor:hall", "tower": "root:manor:tower"}
    for asker, cluster, here in (("hal", HALL, "hall"), ("adam", HOME, "home"), ("masters", "", "none")):
        for name, token in tokens.items():
            status = people[asker].post(f"{cluster}{TOKENS}", {"spec": {"token": token}}).body["status"]
            user = status["user"]
            assert user["extra"][HOME_EXTRA] == [paths[name]]
            known = name == here
            assert user["username"] == (NAMESAKE if known else f"{FOREIGN_ACCOUNT_PREFIX}{paths[name]}:default:default")
            assert ("system:serviceaccounts" in user["groups"]) is known
            if asker == "masters":
                continue
            told = [user, {**user, "username": NAMESAKE}, {**user, "extra": {}}]
            for said in told:
                answer = review(people[asker], cluster, said)
                assert answer.status == 201, answer.body
                assert answer.body["status"]["allowed"] is (name == here == "hall"), (asker, name, said)


def test_a_review_that_names_two_homes_is_refused(people: dict[str, Caller]) -> None:
    """AZ10."""
    two = {"username": f"{FOREIGN_ACCOUNT_PREFIX}root:manor:tower:default:default"}
    hal = people["hal"]
    assert review(hal, HALL, {**two, "extra": {HOME_EXTRA: ["root:manor:hall"]}}).status == 400
    assert review(hal, HALL, {"username": NAMESAKE, "extra": {HOME_EXTRA: ["root:manor:hall", "root:a"]}}).status == 400
    for crooked in ("root:globex", "root", "nowhere", "root:manor:UP"):
        assert review(hal, HALL, {"username": NAMESAKE, "extra": {HOME_EXTRA: [crooked]}}).status == 403
    virtual = {"username": "x", "groups": ["system:kcp:workspace:admin", "system:cluster:root:globex"]}
    assert review(hal, HALL, virtual).body["status"]["allowed"] is False


def test_groups_asked_for_above_are_asked_for_below_whatever_is_said_there(people: dict[str, Caller]) -> None:
    """KC3: inherited, they cannot be shed one level down; nor two, nor when they come later."""
    olga, tom = people["olga"], people["tom"]
    ready(tom, TOWER, "room")
    ready(tom, f"{TOWER}:room", "chest")
    deeper = [TOWER, f"{TOWER}:room", f"{TOWER}:room:chest"]
    for cluster in deeper[1:]:
        bound(tom, cluster, "cluster-admin", "User", "mia")
    assert [people["mia"].get(f"{cluster}/api").status for cluster in deeper] == [200] * 3
    with people["mia"].watch(f"{deeper[2]}/api/v1/namespaces/default/configmaps") as open_below:
        assert olga.patch(f"{TOWER}{CLUSTER}", {"metadata": {"annotations": {GROUPS: "keys"}}}).status == 200
        assert open_below.until_end()
    for name in ("mia", "tom"):
        assert [people[name].get(f"{cluster}/api").status for cluster in deeper] == [403] * 3


def test_whoever_holds_the_groups_above_cannot_open_below(server: Server, people: dict[str, Caller]) -> None:
    """KC3: an administrator of the guarded workspace opens the one in it for nobody else."""
    olga = people["olga"]
    ready(olga, HOME, "vault")
    vault, below = f"{HOME}:vault", f"{HOME}:vault:below"
    bound(olga, vault, "cluster-admin", "User", "val")
    assert olga.patch(f"{vault}{CLUSTER}", {"metadata": {"annotations": {GROUPS: "keys"}}}).status == 200
    val = server.user("manor", "val", "keys")
    ready(val, vault, "below")
    bound(val, below, "cluster-admin", "User", "mia")
    assert people["mia"].get(f"{below}/api").status == 403
    assert val.patch(f"{below}{CLUSTER}", {"metadata": {"annotations": {GROUPS: None}}}).status == 200
    assert people["mia"].get(f"{below}/api").status == 403
    assert val.get(f"{below}/api").status == 200
    assert account(server, val, below).get(f"{below}/api").status == 200


@pytest.mark.parametrize(
    ("group", "resource"),
    [("apis.kcp.io", "apibindings"), ("apis.kcp.io", "apiexports"), ("tenancy.kcp.io", "workspaces")],
)
def test_reviews_say_no_where_admission_would(people: dict[str, Caller], group: str, resource: str) -> None:
    """AZ10, KC5: the status is the server's, whatever rights somebody has."""
    for verb in ("update", "patch"):
        for name in ("olga", "adam"):
            asked = {"group": group, "resource": resource, "subresource": "status", "verb": verb, "name": "x"}
            body = {"spec": {"resourceAttributes": asked}}
            answer = people[name].post(f"{HOME}{REVIEWS}/selfsubjectaccessreviews", body).body["status"]
            assert (answer["allowed"], answer["denied"]) == (False, True)
            assert answer["reason"].startswith("server-owned")
    assert people["adam"].get(f"{HOME}/apis/{group}/v1alpha1/{resource}/x/status").status in (404, 405)


def test_escalate_with_names_means_nothing_that_is_yet_to_be_made(server: Server, people: dict[str, Caller]) -> None:
    """AZ2: as in Kubernetes a creation has no name; an update has one."""
    olga, more = people["olga"], {"kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1"}
    group = "rbac.authorization.k8s.io"
    role(
        olga,
        HOME,
        "named-escalation",
        rule("create update patch get", group, "clusterroles clusterrolebindings"),
        rule("escalate", group, "clusterroles", "special"),
    )
    bound(olga, HOME, "named-escalation", "User", "eric")
    eric = server.user("manor", "eric")
    wanted = {**more, "metadata": {"name": "special"}, "rules": [rule("*", "*", "*")]}
    assert eric.post(f"{HOME}{RBAC}/clusterroles", wanted).status == 403
    made(eric.post(f"{HOME}{RBAC}/clusterroles", {**wanted, "rules": []}))
    assert eric.put(f"{HOME}{RBAC}/clusterroles/special", wanted).status == 200
    missing = eric.post(
        f"{HOME}{RBAC}/clusterrolebindings",
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "later"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "not-there"},
        },
    )
    assert (missing.status, missing.reason) == (404, "NotFound")
    assert missing.body["message"] == 'clusterroles.rbac.authorization.k8s.io "not-there" not found'


def test_nobody_makes_anything_in_a_tenant_that_ends(server: Server) -> None:
    """TS1: what comes in while the space is emptied would be lost."""
    tenant_named(server, "ending")
    at, body = "/clusters/root:ending", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "late"}}
    assert eventually(lambda: server.admin.get(f"{at}{CLUSTER}").status == 200)
    assert server.admin.post(f"{at}/api/v1/namespaces?dryRun=All", body).status == 201
    assert server.admin.delete("/api/v1/tenants/ending").status in (200, 202)
    refused = server.admin.post(f"{at}/api/v1/namespaces", body)
    assert refused.status == 403
    assert "because it is being terminated" in refused.body["message"]
    assert server.admin.get(f"{at}/api/v1/namespaces").status == 200


API_GROUPS = {
    "configmaps": "",
    "secrets": "",
    "nodes": "",
    "clusterroles": "rbac.authorization.k8s.io",
    "workspaces": "tenancy.kcp.io",
    "logicalclusters": "core.kcp.io",
    "apibindings": "apis.kcp.io",
    "apiexports": "apis.kcp.io",
}
VERSIONS = {"": "v1", "rbac.authorization.k8s.io": "v1"}
METHODS = {
    "get": "GET",
    "list": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
ASKED = [
    *((verb, resource, "", "x") for verb in ("get", "delete") for resource in API_GROUPS),
    *((verb, resource, "", "") for verb in ("list", "deletecollection") for resource in ("secrets", "workspaces")),
    *(("create", resource, "", "") for resource in ("configmaps", "secrets", "logicalclusters", "nodes")),
    *(
        (verb, resource, "status", name)
        for verb in ("update", "patch")
        for resource, name in (
            ("workspaces", "hall"),
            ("apibindings", "x"),
            ("apiexports", "x"),
            ("logicalclusters", "cluster"),
        )
    ),
    ("impersonate", "users", "", "mia"),
]
"""Verb, resource, subresource and name."""

PLACES = ["root", "root:manor", "root:manor:hall", "root:manor:tower", "root:globex"]


def question(verb: str, resource: str, part: str, name: str) -> dict[str, str]:
    group = API_GROUPS.get(resource, "")
    namespace = "default" if resource in ("configmaps", "secrets") else ""
    return {
        "verb": verb,
        "group": group,
        "version": VERSIONS.get(group, "v1alpha1"),
        "resource": resource,
        "subresource": part,
        "namespace": namespace,
        "name": name,
    }


def target(asked: dict[str, str]) -> str:
    group = asked["group"]
    path = f"/apis/{group}/{asked['version']}" if group else "/api/v1"
    if asked["namespace"]:
        path += f"/namespaces/{asked['namespace']}"
    return "/".join(part for part in (path, asked["resource"], asked["name"], asked["subresource"]) if part)


def kept(caller: Caller) -> Speaker:
    """The same caller on one connection."""
    headers = {"Authorization": f"Bearer {caller.token}"} if caller.token else {}
    return Speaker(f"https://{caller.host}", caller.context, headers)


def served(speaker: Speaker, cluster: str, asked: dict[str, str], headers: dict[str, str]) -> Any:
    """The answer to the request itself, as a dry run; ``None`` for what is no request."""
    method = METHODS.get(asked["verb"])
    if method is None:
        return None
    path = f"/clusters/{cluster}{target(asked)}" + ("" if method == "GET" else "?dryRun=All")
    body: Any = {"metadata": {"name": "made"}} if method == "POST" else {"metadata": {"labels": {"a": "b"}}}
    body = None if method in ("GET", "DELETE") else body
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return speaker.send(method, path, body, media, **headers)


def allowed_by(speaker: Speaker, cluster: str, kind: str, spec: dict[str, Any], headers: dict[str, str]) -> bool | None:
    answer = speaker.send("POST", f"/clusters/{cluster}{REVIEWS}/{kind}", {"spec": spec}, **headers)
    return answer.body["status"]["allowed"] if answer.status == 201 else None


EXPLAIN = """
import json, sys
import django
django.setup()
from gateway.server import explanation as explaining
from kube.authentication.identity import Principal
said = []
for who, method, path, cluster in json.load(sys.stdin):
    principal = Principal(
        name=who["user"], groups=tuple(who["groups"]), tenant=who["tenant"], authenticator="explain",
        extra={key: tuple(values) for key, values in who["extra"].items()},
    )
    said.append(explaining.explain(principal, method, path, cluster)[2].allowed)
json.dump(said, sys.stdout)
"""


def explained(server: Server, questions: list[Any]) -> list[bool]:
    """What the portal's process says, on the same database."""
    environment = {**os.environ, "DATABASE_URL": server.database, "DJANGO_SETTINGS_MODULE": "portal.settings"}
    ran = subprocess.run(
        [sys.executable, "-c", EXPLAIN],
        input=json.dumps(questions),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return list(json.loads(ran.stdout))


MANOR = {"multi-tenancy.k8s.io/tenant": ["manor"]}
EVERYBODY = "system:authenticated"
ACCOUNT = ["system:serviceaccounts", "system:serviceaccounts:default", EVERYBODY]
SUBJECTS: dict[str, tuple[str, str, list[str], dict[str, list[str]]]] = {
    "olga": ("", "olga", ["tenantry:owner", EVERYBODY], MANOR),
    **{name: ("", name, [EVERYBODY], MANOR) for name in ("adam", "hal", "tom", "mia")},
    "stranger": ("", "hal", [EVERYBODY], {"multi-tenancy.k8s.io/tenant": ["globex"]}),
    "operator": ("", "ordinary", [EVERYBODY], {"multi-tenancy.k8s.io/tenant": ["system"]}),
    "masters": ("", "max", ["system:masters", EVERYBODY], {"multi-tenancy.k8s.io/tenant": ["system"]}),
    "adam as mia": ("adam", "mia", [EVERYBODY], MANOR),
    "hal as mia": ("hal", "mia", [EVERYBODY], MANOR),
    "hal as adam": ("hal", "adam", [EVERYBODY], MANOR),
    **{
        f"account of {home}{by}": (
            "",
            f"{FOREIGN_ACCOUNT_PREFIX}{cluster}:default:default" if by else NAMESAKE,
            ACCOUNT,
            MANOR if by else MANOR | {HOME_EXTRA: [cluster]},
        )
        for home, cluster in (("home", "root:manor"), ("hall", "root:manor:hall"), ("tower", "root:manor:tower"))
        for by in ("", " by its name elsewhere")
    },
}
"""Who acts as somebody else, if so; and the user, groups and extra of a review about whoever is served."""


@pytest.mark.parametrize("subject", SUBJECTS)
def test_reviews_explanations_and_requests_agree(server: Server, people: dict[str, Caller], subject: str) -> None:
    """AZ10, AZ11: who it is, where it is asked and what for, generated; by certificate, by token, as somebody else."""
    by, user, groups, extra = SUBJECTS[subject]
    strangers = {"stranger": ("globex", "hal"), "operator": ("system", "ordinary")}
    caller = server.user(*strangers[subject]) if subject in strangers else people[by or subject.partition(" by ")[0]]
    speaker, master = kept(caller), kept(server.admin)
    headers = {"Impersonate_User": user} if by else {}
    told = {"user": user, "groups": groups, "extra": extra}
    wrong: list[str] = []
    questions: list[Any] = []
    reviewed: list[tuple[str, bool]] = []
    for cluster, row in itertools.product(PLACES, ASKED):
        asked, what = question(*row), f"{cluster}: {row}"
        said = allowed_by(master, cluster, "subjectaccessreviews", {**told, "resourceAttributes": asked}, {})
        assert said is not None
        if asked["verb"] in METHODS:
            # Explanations are about requests.
            tenant = extra["multi-tenancy.k8s.io/tenant"][0]
            homes = {key: values for key, values in extra.items() if key == HOME_EXTRA}
            who = {**told, "tenant": tenant, "extra": homes}
            questions.append((who, METHODS[asked["verb"]], target(asked), cluster))
            reviewed.append((what, said))
        may = said
        if by:
            right = {"resourceAttributes": {"verb": "impersonate", "resource": "users", "name": user}}
            actor = {"user": by, "groups": [EVERYBODY], "extra": MANOR}
            may = bool(said and allowed_by(master, cluster, "subjectaccessreviews", {**actor, **right}, {}))
        own = allowed_by(speaker, cluster, "selfsubjectaccessreviews", {"resourceAttributes": asked}, headers)
        if own is not None and own is not may:
            wrong.append(f"{what}: of others {may}, of oneself {own}")
        answer = served(speaker, cluster, asked, headers)
        # What can be written by nobody is refused to the operators' masters as well, who hold every right.
        nobodys = subject == "masters" and (row[1] == "logicalclusters" or row[2] == "status")
        if answer is not None and (answer.status != 403) is not may and not nobodys:
            wrong.append(f"{what}: reviewed {may}, served {answer.status} {str(answer.body)[:200]}")
    speaker.close()
    master.close()
    for (what, said), found in zip(reviewed, explained(server, questions), strict=True):
        if said is not found:
            wrong.append(f"{what}: reviewed {said}, explained {found}")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:40])


@pytest.mark.parametrize("subresource", ["exec", "attach", "portforward"])
def test_a_connection_into_a_pod_takes_create_whatever_the_method(
    people: dict[str, Caller], server: Server, subresource: str
) -> None:
    """AZ2: a WebSocket is asked for by GET, and who may read may not type."""
    for name, verbs in ((f"reads-{subresource}", "get"), (f"types-{subresource}", "get create")):
        role(people["olga"], HOME, name, rule(verbs, "", f"pods/{subresource}"))
        bound(people["olga"], HOME, name, "User", name)
    path = f"/api/v1/namespaces/default/pods/none/{subresource}"
    refused = server.user("manor", f"reads-{subresource}").get(path)
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert f'cannot create resource "pods/{subresource}"' in refused.body["message"]
    assert server.user("manor", f"types-{subresource}").get(path).status == 404
