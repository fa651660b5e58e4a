"""Questions about rights as people put them: chosen from what exists, pasted as a command, or by an audit ID (AZ11)."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import re
import threading
import time
import uuid
from html import unescape
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client
from psycopg import Cursor

from audit.recorder import Actor
from gateway.server import questiondeadlines
from kube.requests.status import ServiceUnavailable
from portal.access import explanation, inquiries, queries, questionlimits
from store import synchronous
from tenants.models import Role, Tenant, User
from tenants.services.tenants import tenant_create
from tests import factories
from tests.portal.conftest import signed_in
from tests.portal.test_access import RBAC, put
from tests.portal.test_api import bearer, send
from tests.tenants.conftest import OPERATOR


@pytest.fixture
def acme() -> Tenant:
    made = tenant_create(actor=OPERATOR, name="acme")
    put("root:acme", "", "namespaces", {"kind": "Namespace", "metadata": {"name": "team"}})
    put(
        "root:acme", "", "serviceaccounts", {"kind": "ServiceAccount", "metadata": {"name": "bot", "namespace": "team"}}
    )
    role = {"kind": "ClusterRole", "metadata": {"name": "deployers"}}
    role["rules"] = [{"verbs": ["get", "delete"], "apiGroups": ["apps"], "resources": ["deployments"]}]
    put("root:acme", RBAC, "clusterroles", role)
    crd: dict[str, Any] = {"kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.org"}}
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]}
    crd["spec"] = {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [{"name": "v1"}]}
    crd["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
    put("root:acme", "apiextensions.k8s.io", "customresourcedefinitions", crd)
    return made


@pytest.fixture
def owner(acme: Tenant) -> User:
    return factories.member(acme, Role.OWNER, factories.user("olivia@acme.test"))


def listed(page: str, name: str) -> list[str]:
    """What a field offers."""
    return [
        unescape(each)
        for each in re.findall(r'value="([^"]*)"', page.split(f'<datalist id="{name}">')[1].split("</datalist>")[0])
    ]


def shown(browser: Client, **asked: str) -> str:
    answer = browser.get("/explain/", asked, follow=True)
    assert answer.status_code == 200, answer.content.decode()
    return unescape(re.sub(r"<[^>]+>|\s+", " ", answer.content.decode())).replace("  ", " ")


def field(page: str, name: str) -> str:
    return re.search(rf'name="{name}" value="([^"]*)"', page)[1]  # type: ignore[index]


def test_what_is_in_a_workspace_is_offered_to_whoever_may_enter_it(acme: Tenant, owner: User) -> None:
    """KC2: its name is in the list of all members, the names in it are not."""
    closed, entered = "root:acme:merger", "root:acme:lab"
    viewer = factories.member(acme, Role.VIEWER)
    for path in (closed, entered):
        name = path.rpartition(":")[2]
        put("root:acme", "tenancy.kcp.io", "workspaces", {"kind": "Workspace", "metadata": {"name": name}})
        state = {"kind": "LogicalCluster", "metadata": {"name": "cluster"}, "status": {"phase": "Ready"}}
        put(path, "core.kcp.io", "logicalclusters", state)
        put(path, "", "namespaces", {"kind": "Namespace", "metadata": {"name": "takeover"}})
    role: dict[str, Any] = {"kind": "ClusterRole", "metadata": {"name": "visitors"}}
    role["rules"] = [{"verbs": ["access"], "nonResourceURLs": ["/"]}]
    put(entered, RBAC, "clusterroles", role)
    binding: dict[str, Any] = {"kind": "ClusterRoleBinding", "metadata": {"name": "visitors"}}
    binding["roleRef"] = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "visitors"}
    binding["subjects"] = [{"apiGroup": RBAC, "kind": "User", "name": viewer.email}]
    put(entered, RBAC, "clusterrolebindings", binding)
    for who, path, offered in ((viewer, closed, False), (viewer, entered, True), (owner, closed, True)):
        answer = signed_in(who).get("/explain/choices/", {"cluster": path}).content.decode()
        assert path in listed(answer, "places")
        assert ("takeover" in listed(answer, "namespaces")) is offered
        assert bool(listed(answer, "people")) is offered


def test_the_form_offers_what_exists_and_begins_with_oneself(acme: Tenant, owner: User) -> None:
    viewer = factories.member(acme, Role.VIEWER)
    page = signed_in(owner).get("/explain/").content.decode()
    assert (field(page, "person"), field(page, "cluster")) == ("olivia@acme.test", "root:acme")
    people = {name for name in listed(page, "people") if not name.endswith(":default")}
    assert people == {"olivia@acme.test", viewer.email, "system:serviceaccount:team:bot"}
    assert {"default", "team"} <= set(listed(page, "namespaces"))
    assert {"deployments.apps", "deployments.apps/scale", "pods/exec", "widgets.example.org"} <= set(
        listed(page, "things")
    )
    assert "nodes" not in listed(page, "things")
    assert "ClusterRole/deployers" in listed(page, "roles")


def test_who_hands_out_no_rights_is_offered_nobody_else_and_no_roles(acme: Tenant, owner: User) -> None:
    viewer, stranger = factories.member(acme, Role.VIEWER), factories.user()
    page = signed_in(viewer).get("/explain/").content.decode()
    assert (listed(page, "people"), listed(page, "roles")) == ([viewer.email], [])
    there = signed_in(stranger).get("/explain/choices/", {"cluster": "root:acme"}).content.decode()
    assert [listed(there, name) for name in ("places", "people", "things", "namespaces", "roles")] == [[]] * 5


def test_an_operator_chooses_anywhere(acme: Tenant, owner: User, operator: User) -> None:
    browser = signed_in(operator)
    assert {"root", "root:acme"} <= set(listed(browser.get("/explain/").content.decode(), "places"))
    there = browser.get("/explain/choices/", {"cluster": "root:acme"}).content.decode()
    assert "olivia@acme.test" in listed(there, "people")


def test_a_chosen_person_is_asked_about_with_the_groups_that_they_have(
    acme: Tenant, owner: User, operator: User
) -> None:
    viewer = factories.member(acme, Role.VIEWER)
    asked = {"person": viewer.email, "thing": "deploy", "cluster": "root:acme", "namespace": "team"}
    for asking in (owner, operator):
        page = shown(signed_in(asking), action="get", **asked)
        assert "Allowed" in page
        assert f"Asked as {viewer.email} of acme, in tenantry:viewer" in page
        page = shown(signed_in(asking), action="delete", **asked)
        assert "403 Forbidden" in page
        assert "deployments.apps in namespace team of root:acme" in page


def test_steps_without_an_opinion_are_folded(owner: User) -> None:
    page = (
        signed_in(owner)
        .get("/explain/", {"person": owner.email, "action": "get", "thing": "pods", "cluster": "root:acme"})
        .content.decode()
    )
    ladder = page.split('<ol class="trace">')[1].split("</ol>")[0]
    assert re.search(r"<summary>\d+ steps have no opinion</summary>", ladder)
    assert len(re.findall(r"<strong>", ladder)) == 1, "the one that decides"


def test_a_pasted_command_fills_the_form_and_is_explained(acme: Tenant, owner: User) -> None:
    viewer = factories.member(acme, Role.VIEWER)
    browser = signed_in(owner)
    command = f"kubectl -n team delete deploy/web --as {viewer.email}"
    answer = browser.get("/explain/", {"paste": command, "cluster": "root:acme"}, follow=True)
    page = answer.content.decode()
    assert [field(page, name) for name in ("person", "thing", "namespace", "name")] == [
        viewer.email, "deployments.apps", "team", "web",
    ]  # fmt: skip
    assert "403 Forbidden" in page
    assert "Allowed" in shown(browser, paste="kubectl get wd -n team")
    who = shown(browser, paste="kubectl get wd -n team", ask="who")
    assert "Group tenantry:owner" in who
    assert "Allowed" in shown(browser, paste="GET /apis/apps/v1/namespaces/team/deployments/web?pretty=true")
    refused = browser.get("/explain/", {"paste": "kubectl apply -f web.yaml"})
    assert refused.status_code == 422
    assert "choose the action" in refused.content.decode()


def test_an_audit_id_explains_what_was_refused(acme: Tenant, owner: User) -> None:
    viewer, other = factories.member(acme, Role.VIEWER), factories.user()
    audit_id = str(uuid.uuid4())
    factories.api_request(
        "acme", actor=viewer.email, verb="delete", code=403, allowed=False, space="root:acme", request_id=audit_id,
        path="/apis/apps/v1/tenants/acme/namespaces/team/deployments/web",
    )  # fmt: skip
    for asking in (owner, viewer):
        page = signed_in(asking).get("/explain/", {"paste": audit_id}, follow=True).content.decode()
        assert [field(page, name) for name in ("person", "thing", "namespace", "name")] == [
            viewer.email, "deployments.apps", "team", "web",
        ]  # fmt: skip
        assert "403 Forbidden" in page
    refused = signed_in(other).get("/explain/", {"paste": audit_id})
    assert (refused.status_code, "No refused request" in refused.content.decode()) == (422, True)


def test_a_role_for_somebody_is_shown_as_a_diff_and_nothing_is_saved(acme: Tenant, owner: User) -> None:
    browser = signed_in(owner)
    change = {"cluster": "root:acme", "namespace": "team", "person": "jane", "role": "ClusterRole/deployers"}
    page = unescape(re.sub(r"<[^>]+>|\s+", " ", browser.post("/explain/?ask=change", change).content.decode()))
    assert re.search(r"User jane of acme +in namespace team +\+ +get, delete +deployments +of +apps", page)
    role = {"kind": "RoleBinding", "metadata": {"name": "jane", "namespace": "team"}}
    role |= {"roleRef": {"kind": "ClusterRole", "name": "deployers"}, "subjects": [{"kind": "User", "name": "jane"}]}
    put("root:acme", RBAC, "rolebindings", role)
    gone = {"cluster": "root:acme", "binding": "RoleBinding/team/jane"}
    page = unescape(re.sub(r"<[^>]+>|\s+", " ", browser.post("/explain/?ask=change", gone).content.decode()))
    assert re.search(r"User jane of acme +in namespace team +\N{MINUS SIGN} +get, delete", page)
    for wrong in ({}, {"person": "jane"}, {**change, "binding": "RoleBinding/team/jane"}, {**gone, "binding": "x"}):
        assert browser.post("/explain/?ask=change", {"cluster": "root:acme", **wrong}).status_code == 422


SLOW = "takes too long to be answered here"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which a second of work passes with each look at it."""
    clock = itertools.count()
    worked = SimpleNamespace(monotonic=time.monotonic, thread_time=lambda: float(next(clock)))
    monkeypatch.setattr(questiondeadlines, "time", worked)


@pytest.mark.usefixtures("impatient")
def test_a_question_that_takes_too_long_is_given_up_in_words(acme: Tenant, owner: User) -> None:
    """DOS-03: whoever asks has written what is looked through."""
    script, asked = (
        bearer(owner, "read"),
        {"cluster": "root:acme", "verb": "get", "group": "apps", "resource": "deployments"},
    )
    answer = send(script, "POST", "access/who-can", asked)
    assert (answer.status_code, SLOW in answer.content.decode()) == (503, True)
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "deployers"}, "rules": []}
    assert send(script, "POST", "access/what-if", {"cluster": "root:acme", "manifest": role}).status_code == 503
    browser = signed_in(owner)
    asked = {"person": owner.email, "action": "get", "thing": "deploy", "cluster": "root:acme", "namespace": "team"}
    for ask in ("may", "who"):
        page = browser.get("/explain/", {**asked, "ask": ask})
        assert (page.status_code, SLOW in page.content.decode()) == (422, True)


@pytest.mark.parametrize("kind", ["clusterroles", "namespaces"])
def test_a_question_holds_so_much_however_large_the_objects_are(
    acme: Tenant, owner: User, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DOS-03: what decides is held as long as it is asked about, and of what is only named nothing is held."""
    mebibyte = 1024 * 1024
    group, notes = (RBAC if kind == "clusterroles" else ""), {"note": "x" * mebibyte}
    for number in range(45):
        put("root:acme", group, kind, {"kind": "Any", "metadata": {"name": f"n{number:02}", "annotations": notes}})
    held: list[int] = []

    class Counting(Cursor[Any]):
        def fetchall(self) -> list[Any]:
            rows = super().fetchall()
            held.append(sum(len(each) for row in rows for each in row if isinstance(each, bytes)))
            return rows

    monkeypatch.setattr(synchronous, "Cursor", Counting)
    asked = {"cluster": "root:acme", "verb": "get", "group": "apps", "resource": "deployments"}
    decided = send(bearer(owner, "read"), "POST", "access/who-can", asked)
    page = signed_in(owner).get("/explain/", {"cluster": "root:acme"})
    assert max(held) < 34 * mebibyte
    if kind == "clusterroles":
        assert (decided.status_code, SLOW in decided.content.decode()) == (503, True)
    else:
        assert max(held) < 4 * mebibyte
        assert (decided.status_code, page.status_code) == (200, 200)
        assert {"n00", "n44", "team"} <= set(listed(page.content.decode(), "namespaces"))


def test_few_are_answered_at_a_time_and_nobody_waits_for_a_thread(acme: Tenant, owner: User, operator: User) -> None:
    asked = {"cluster": "root:acme", "verb": "get", "group": "apps", "resource": "deployments"}
    path, mine, other = "access/who-can", bearer(owner, "read"), bearer(operator, "operate")
    busy = threading.Barrier(questionlimits.OF_PERSON + 1)
    done = threading.Event()

    def ask() -> None:
        with questionlimits._desk.answering(Actor(name=owner.email, user_id=owner.pk)):
            busy.wait(300)
            done.wait(300)

    threads = [threading.Thread(target=ask) for _ in range(questionlimits.OF_PERSON)]
    for thread in threads:
        thread.start()
    busy.wait(300)
    refused = send(mine, "POST", path, asked)
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "2")
    assert (
        "ask again in a moment"
        in signed_in(owner).get("/explain/", {**asked, "ask": "who", "action": "get", "thing": "pods"}).content.decode()
    )
    assert send(other, "POST", path, asked).status_code == 200, "others have places of their own"
    done.set()
    for thread in threads:
        thread.join()
    assert send(mine, "POST", path, asked).status_code == 200


def test_the_people_of_one_tenant_leave_a_place_for_others(acme: Tenant, owner: User, operator: User) -> None:
    """DOS-03: each of them has less than all, and so have all of them together; an operator needs none of theirs."""
    asked = {"cluster": "root:acme", "verb": "get", "group": "apps", "resource": "deployments"}
    mate, third = (factories.member(acme, Role.ADMIN) for _ in range(2))
    other = factories.member(tenant_create(actor=OPERATOR, name="globex"), Role.OWNER)
    scripts = {person: bearer(person, "read") for person in (third, other)}
    answering = questionlimits._desk.answering
    with contextlib.ExitStack() as stack:
        for person in (owner, mate, mate):
            stack.enter_context(answering(Actor(name=person.email, user_id=person.pk)))
            questionlimits._desk._within.depth = 0
        assert send(scripts[third], "POST", "access/who-can", asked).status_code == 503
        there = {**asked, "cluster": "root:globex"}
        assert send(scripts[other], "POST", "access/who-can", there).status_code == 200
        stack.enter_context(answering(Actor(name="stranger")))
        questionlimits._desk._within.depth = 0
        assert send(scripts[other], "POST", "access/who-can", there).status_code == 503
        assert send(bearer(operator, "operate"), "POST", "access/who-can", asked).status_code == 200
    assert send(scripts[third], "POST", "access/who-can", asked).status_code == 200


def test_everything_that_looks_through_rights_has_its_place_and_its_time() -> None:
    """Each public function of the portal that asks the API server's authorizers, or lists what they decide by."""
    answering = [
        *(explanation.explain_request, explanation.explain_access, explanation.explain_own_write),
        *(queries.who_can, queries.what_if, queries.change_explained, inquiries.choices_in, inquiries.question_in),
    ]
    named = {each.__name__ for each in answering}
    asking = {
        name
        for module in (explanation, queries, inquiries)
        for name, each in vars(module).items()
        if inspect.isfunction(each) and each.__module__ == module.__name__ and not name.startswith("_")
        if "actor" in inspect.signature(each).parameters
    }
    assert asking - named == {"as_member", "may_grant", "is_theirs", "own_identity"}, (
        "a membership is all that these look at"
    )
    somebody = Actor(name="somebody")
    with contextlib.ExitStack() as stack:
        for number in range(questionlimits.AT_ONCE):
            stack.enter_context(questionlimits._desk.answering(Actor(name=f"p{number}")))
            questionlimits._desk._within.depth = 0
        for each in answering:
            with pytest.raises(ServiceUnavailable):
                each(actor=somebody)  # type: ignore[operator]
