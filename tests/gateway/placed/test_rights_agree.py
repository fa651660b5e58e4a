"""Every question about rights in a placed namespace is answered as the door answers the request (GW19, AZ10, AZ11).

Whoever asks, by whatever verb, about whatever kind: what is compared is each answer with each request, not a list of
cases that somebody has thought of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.server import explanation
from kube.authentication.identity import AUTHENTICATED, HOME_EXTRA, MASTERS, TENANT_EXTRA, Principal, account_groups
from kube.authorization.rbac import Attributes, Rule
from kube.requests.logicalclusters import space_of
from kube.requests.status import BadRequest
from portal.access.queries import what_if
from tenants.models import Role
from tests.gateway.callers import answered, config_map, eventually
from tests.gateway.placed.conftest import GROUPS, STANDING_IN, Door, speaking
from tests.speaking import Answer, Speaker
from tests.tenants.conftest import actor_of

pytestmark = pytest.mark.django_db(transaction=True)

RBAC = "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1"

KINDS = (
    *(("v1", plural) for plural in (
        "configmaps", "secrets", "pods", "pods/log", "pods/exec", "pods/portforward", "pods/proxy", "pods/eviction",
        "pods/ephemeralcontainers", "pods/status", "services", "services/proxy", "services/status", "serviceaccounts",
        "serviceaccounts/token", "endpoints", "events", "limitranges", "resourcequotas", "persistentvolumeclaims",
        "replicationcontrollers/scale", "podtemplates",
    )),
    *(("apps/v1", plural) for plural in (
        "deployments", "deployments/scale", "deployments/status", "daemonsets", "controllerrevisions", "statefulsets",
    )),
    ("batch/v1", "jobs"),
    ("autoscaling/v2", "horizontalpodautoscalers"),
    ("networking.k8s.io/v1", "networkpolicies"),
    ("networking.k8s.io/v1", "ingresses"),
    ("policy/v1", "poddisruptionbudgets"),
    ("coordination.k8s.io/v1", "leases"),
    ("discovery.k8s.io/v1", "endpointslices"),
    ("events.k8s.io/v1", "events"),
    (f"{RBAC}/v1", "roles"),
    (f"{RBAC}/v1", "rolebindings"),
    ("example.org/v1", "widgets"),
)  # fmt: skip
METHODS = {
    "get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH",
    "delete": "DELETE", "deletecollection": "DELETE",
}  # fmt: skip
SPECIAL = ("escalate", "bind", "impersonate", "approve", "sign", "use", "attest", "frob", "*")
"""Verbs of no request: what no account of the workspace holds by them, nobody does."""

NAME = "absent"


@dataclass
class Somebody:
    """Who asks: at the server, by way of what path, and as the portal knows them."""

    called: str
    speaker: Speaker
    principal: Principal

    def ask(self, method: str, path: str, body: Any = None, media: str = "application/json") -> Answer:
        """What is answered; a server or a cluster that is too busy to say is asked again."""
        return answered(lambda: self.speaker.send(method, path, body, media))

    def may(self, asked: Attributes) -> tuple[bool, str]:
        """What a review of oneself says, and why."""
        answer = self.ask(
            "POST", f"{REVIEWS}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": attributes_of(asked)}}
        )
        if answer.status == 403:
            return False, "the wall"
        assert answer.status == 201, answer.body
        return answer.body["status"]["allowed"], answer.body["status"].get("reason", "")

    def may_another(self, who: Principal, asked: Attributes, kind: str) -> bool:
        """What a review of another says."""
        place = f"/namespaces/{asked.namespace}" if kind.startswith("local") else ""
        extra = {TENANT_EXTRA: [str(who.tenant)], **({HOME_EXTRA: [who.cluster]} if who.cluster else {})}
        spec = {
            "user": who.name,
            "groups": list(who.groups),
            "extra": extra,
            "resourceAttributes": attributes_of(asked),
        }
        body = {"metadata": {"namespace": asked.namespace} if place else {}, "spec": spec}
        answer = self.ask("POST", f"{REVIEWS}{place}/{kind}", body)
        assert answer.status == 201, answer.body
        return bool(answer["status"]["allowed"])

    def rules(self, namespace: str) -> tuple[list[Rule], bool]:
        answer = self.ask("POST", f"{REVIEWS}/selfsubjectrulesreviews", {"spec": {"namespace": namespace}})
        if answer.status == 403:
            return [], True
        status = answer.body["status"]
        assert ("evaluationError" in status) is status["incomplete"], status
        return [
            Rule(
                tuple(rule["verbs"]),
                tuple(rule["apiGroups"]),
                tuple(rule["resources"]),
                tuple(rule.get("resourceNames", ())),
            )
            for rule in status["resourceRules"]
        ], not status["incomplete"]


def attributes_of(asked: Attributes) -> dict[str, str]:
    return {
        "namespace": asked.namespace,
        "verb": asked.verb,
        "group": asked.group,
        "name": asked.name,
        "resource": asked.resource.partition("/")[0],
        "subresource": asked.subresource,
    }


def request_of(version: str, resource: str, verb: str, namespace: str) -> tuple[str, str, Any, str]:
    """Method, path, body and media type of a request that changes nothing, whoever sends it, and that no admission judges."""
    plural, _, part = resource.partition("/")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    collection = f"{root}/namespaces/{namespace}/{plural}"
    one = f"{collection}/{NAME}/{part}".removesuffix("/")
    if verb in ("list", "watch"):
        # A version that is none: what is authorised is told so.
        return "GET", f"{collection}?resourceVersion=x{'&watch=true' if verb == 'watch' else ''}", None, ""
    if verb == "deletecollection":
        return "DELETE", f"{collection}?labelSelector=none%3Dnone", None, ""
    if verb == "create":
        return "POST", one if part else collection, {}, "application/json"
    return (
        METHODS[verb],
        one,
        None if verb in ("get", "delete") else {},
        "application/merge-patch+json" if verb == "patch" else "application/json",
    )


def asked_about(version: str, resource: str, verb: str, namespace: str) -> Attributes:
    group = version.partition("/")[0] if "/" in version else ""
    part = resource.partition("/")[2]
    named = NAME if verb in ("get", "update", "patch", "delete") or part else ""
    return Attributes(verb, group, resource, part, namespace, named)


def questions(namespace: str) -> Iterator[tuple[Attributes, tuple[str, str, Any, str]]]:
    for version, resource in KINDS:
        for verb in METHODS:
            if "/" in resource and verb in ("list", "watch", "deletecollection"):
                continue
            yield asked_about(version, resource, verb, namespace), request_of(version, resource, verb, namespace)


def special_questions(namespace: str) -> Iterator[Attributes]:
    for version, resource in (
        ("v1", "pods"),
        ("v1", "pods/exec"),
        ("v1", "pods/proxy"),
        ("v1", "secrets"),
        ("v1", "serviceaccounts"),
        ("apps/v1", "deployments"),
        (f"{RBAC}/v1", "roles"),
        (f"{RBAC}/v1", "rolebindings"),
        ("certificates.k8s.io/v1", "signers"),
        ("example.org/v1", "widgets"),
    ):
        for verb in SPECIAL:
            yield asked_about(version, resource, verb, namespace)


def bind(door: Door, name: str, role: str, subject: dict[str, str]) -> None:
    body = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
    path = f"/clusters/root:{door.name}/apis/{RBAC}/v1/clusterrolebindings"
    assert door.server.admin.post(path, body).status == 201


def user(email: str) -> dict[str, str]:
    return {"apiGroup": RBAC, "kind": "User", "name": email}


def everybody(door: Door, others: Door) -> Iterator[Somebody]:
    """One of each kind of people, and of accounts, that may come to a tenant's space."""
    tenant, prefix = door.name, f"/clusters/root:{door.name}"
    for role in Role:
        caller = door.person(role.value, role)
        groups = (GROUPS[role], AUTHENTICATED)
        principal = Principal(name=f"{role.value}@{tenant}.test", groups=groups, tenant=tenant, authenticator="test")
        yield Somebody(role.value, speaking(caller), principal)
    for name, groups, role in (
        ("member-without-a-grant", (), ""),
        ("bound-to-edit", (GROUPS[Role.VIEWER],), "edit"),
        ("bound-to-everything", (), "cluster-admin"),
    ):
        if role:
            bind(door, name, role, user(name))
        principal = Principal(name=name, groups=(*groups, AUTHENTICATED), tenant=tenant, authenticator="test")
        yield Somebody(name, speaking(door.server.user(tenant, name, *groups)), principal)
    account = "system:serviceaccount:default:robot"
    admin, accounts = door.server.admin, f"{prefix}/api/v1/namespaces/default/serviceaccounts"
    assert admin.post(accounts, {"metadata": {"name": "robot"}}).status == 201
    bind(door, "robot", "admin", {"kind": "ServiceAccount", "name": "robot", "namespace": "default"})
    token = admin.post(f"{accounts}/robot/token", {"spec": {}}).body["status"]["token"]
    principal = Principal(
        name=account, groups=account_groups(account), tenant=tenant, authenticator="test", cluster=space_of(tenant)
    )
    yield Somebody("account", speaking(door.server.bearer(token)), principal)
    stranger = others.person("olga", Role.OWNER)
    principal = Principal(
        name=f"olga@{others.name}.test",
        groups=(GROUPS[Role.OWNER], AUTHENTICATED),
        tenant=others.name,
        authenticator="test",
    )
    yield Somebody("another-tenants-owner", speaking(stranger, prefix), principal)
    guest = f"guest@{others.name}.test"
    spec = {"tenant": others.name, "user": guest, "resource": "*", "apiGroup": "*", "namespace": "*"}
    policy = {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": spec}
    path = f"{prefix}/apis/abac.authorization.kubernetes.io/v1beta1/policies"
    assert admin.post(path, {**policy, "metadata": {"name": "guest"}}).status == 201
    # What somebody is in their own tenant is nothing here.
    groups = (GROUPS[Role.VIEWER],)
    principal = Principal(name=guest, groups=(*groups, AUTHENTICATED), tenant=others.name, authenticator="test")
    yield Somebody("guest", speaking(others.server.user(others.name, guest, *groups), prefix), principal)
    principal = Principal(name="admin", groups=(MASTERS, AUTHENTICATED), tenant="system", authenticator="test")
    yield Somebody("operator", speaking(admin, prefix), principal)


def test_reviews_lists_explanations_and_holders_say_what_the_door_does(new_standing_door: Callable[[], Door]) -> None:
    """Of eleven kinds of callers, eight verbs and forty kinds, named and not; each refusal says why in the review's words."""
    door, others = new_standing_door(), new_standing_door()
    namespace = door.place(door.person("olga", Role.OWNER), on=STANDING_IN)
    asked = list(questions(namespace))
    space = space_of(door.name)
    people = list(everybody(door, others))
    operator = people[-1]
    holders = {attributes: explanation.holders(space, attributes) for attributes, _ in asked}
    differences, allowed = [], {}
    for somebody in people:
        eventually(lambda somebody=somebody: somebody.may(Attributes("get", "", "configmaps", "", "default"))[1] != "")
        rules, complete = somebody.rules(namespace)
        permitted = explanation.permitted(somebody.principal, space, [attributes for attributes, _ in asked])
        allowed[somebody.called] = 0
        for (attributes, (method, path, body, media)), explained in zip(asked, permitted, strict=True):
            answer = somebody.ask(method, path, body, media)
            passes = answer.status != 403
            said, why = somebody.may(attributes)
            listed = any(rule.allows(attributes) for rule in rules)
            held = holds(somebody.principal, holders[attributes])
            answers = {
                "review": said,
                "list": listed or (not complete and passes),
                "explain": explained,
                "who can": held,
            }
            if attributes.verb in ("get", "create") and "/" not in attributes.resource:
                # Two more ways to ask, about somebody else.
                for kind in ("subjectaccessreviews", "localsubjectaccessreviews"):
                    answers[kind] = operator.may_another(somebody.principal, attributes, kind)
            if set(answers.values()) != {passes}:
                differences.append((somebody.called, attributes.verb, attributes.resource, answer.status, answers, why))
            if not passes and "placed-namespaces" in why:
                assert why.removeprefix("placed-namespaces: ") in answer.body["message"], (why, answer.body)
            allowed[somebody.called] += passes
    assert differences == [], "\n".join(map(str, differences))
    # The comparison is about something: each may some, and the more the higher.
    assert 0 < allowed["viewer"] < allowed["editor"] < allowed["admin"] == allowed["owner"], allowed
    assert allowed["another-tenants-owner"] == allowed["member-without-a-grant"] == 0, allowed
    assert allowed["viewer"] < allowed["bound-to-edit"] <= allowed["admin"], allowed
    assert (
        min(allowed["operator"], allowed["account"], allowed["guest"], allowed["bound-to-everything"])
        > allowed["viewer"]
    ), allowed


def test_verbs_of_no_request_are_nobodys_but_what_the_accounts_hold(new_standing_door: Callable[[], Door]) -> None:
    """The cluster is asked for them by the workspace's account, which may be refused what it would have been told."""
    door, others = new_standing_door(), new_standing_door()
    namespace = door.place(door.person("olga", Role.OWNER), on=STANDING_IN)
    asked = list(special_questions(namespace))
    people = list(everybody(door, others))
    operator, space = people[-1], space_of(door.name)
    holders = {attributes: explanation.holders(space, attributes) for attributes in asked}
    told = []
    for somebody in people:
        eventually(lambda somebody=somebody: somebody.may(Attributes("get", "", "configmaps", "", "default"))[1] != "")
        rules, complete = somebody.rules(namespace)
        assert complete, (somebody.called, rules)
        permitted = explanation.permitted(somebody.principal, space, asked)
        for attributes, explained in zip(asked, permitted, strict=True):
            said, why = somebody.may(attributes)
            listed = any(rule.allows(attributes) for rule in rules)
            another = operator.may_another(somebody.principal, attributes, "subjectaccessreviews")
            if said or explained or listed or another or holds(somebody.principal, holders[attributes]):
                told.append((somebody.called, attributes.verb, attributes.resource, said, explained, listed, why))
    assert told == [], "\n".join(map(str, told))


def holds(principal: Principal, holders: Any) -> bool:
    """Whether one of those who can is meant by this principal."""
    for holder in holders:
        if holder.tenant not in ("*", principal.tenant):
            continue
        if holder.kind == "Group" and holder.name in principal.groups:
            return True
        if holder.kind == "User" and holder.name == principal.name:
            return True
        if (
            holder.kind == "ServiceAccount"
            and principal.name == f"system:serviceaccount:{holder.namespace}:{holder.name}"
        ):
            return True
    return False


def test_what_if_says_what_a_binding_there_will_give(new_standing_door: Callable[..., Door]) -> None:
    """Before it is written, in the words of the cluster's roles, and no more than its accounts hold."""
    door = new_standing_door()
    owner, viewer = door.person("olga", Role.OWNER), door.person("vera", Role.VIEWER)
    namespace = door.place(owner, on=STANDING_IN)
    email, actor = f"vera@{door.name}.test", actor_of(door.tenant.memberships.get(role=Role.OWNER).user)
    path = f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings"

    def asked(role: str, kind: str = "ClusterRole") -> dict[str, Any]:
        return {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "b", "namespace": namespace},
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": f"tenantry:{email}"}],
        }

    def gained(manifest: dict[str, Any]) -> list[tuple[str, Rule]]:
        effects = what_if(actor=actor, cluster=space_of(door.name), manifest=manifest)
        return [(effect.name, rule) for effect in effects for rule in effect.gains]

    # Kubernetes' own role is no role of workspaces: it gives nothing at the door.
    assert gained(asked("edit")) == gained({**asked("tenantry-tenant-edit"), "subjects": []}) == []
    with pytest.raises(BadRequest):
        gained(asked("unknown", "Role"))
    foreseen = gained(asked("tenantry-tenant-edit"))
    creates = Attributes("create", "", "configmaps", "", namespace)
    assert {name for name, _ in foreseen} == {email}
    assert any(rule.allows(creates) for _, rule in foreseen)
    assert not any(rule.allows(creates._replace(resource="pods/proxy", subresource="proxy")) for _, rule in foreseen)
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    assert viewer.post(maps, config_map("a")).status == 403
    assert owner.post(path, asked("tenantry-tenant-edit")).status == 201
    door.until(lambda: viewer.post(maps, config_map("a")).status in (201, 409))
