"""What is in a workspace, in the portal: asked of the API server as the person, with no more rights than theirs (GW27)."""

from __future__ import annotations

import html
import re
from typing import Any

import orjson
import pytest
import requests
import yaml
from django.conf import settings as django_settings
from django.test import Client
from django.urls import URLPattern, reverse
from django.utils import timezone

from access.credentials import credential_revoke, portalsessions, tenant_kubeconfig_issue
from access.models import Credential, Login
from audit.models import ApiRequest, AuditEntry
from portal import urls
from portal.contents import door
from store.models import StoredObject
from tenants.models import Cluster, Phase
from tenants.services import workspace_resume, workspace_suspend
from tests import factories
from tests.clusters import TestCluster
from tests.portal.inhabited import HOSTILE, RIGHT_TO_LEFT, Inhabited, deployment, inhabited, pod, secret
from tests.portal.test_stored_texts import Looking
from tests.story.product import eventually
from tests.tenants.conftest import OPERATOR, actor_of

pytestmark = pytest.mark.django_db(transaction=True)

LIVE = {"HX-Request": "true", "HX-Target": "live"}


@pytest.fixture
def acme(embedded: TestCluster, settings: Any) -> Inhabited:
    settings.PORTAL_TOKEN_KEY_FILE = embedded.real.folder / "pki" / "portal-tokens.key"
    return inhabited(embedded, "acme")


def text_of(answer: Any) -> str:
    """What a reader sees."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode())))


def seen(browser: Client, path: str, code: int = 200) -> str:
    answer = browser.get(path)
    assert answer.status_code == code, text_of(answer)
    return text_of(answer)


def kept(acme: Inhabited, resource: str, name: str) -> dict[str, Any]:
    """An object as the API server has it; empty when it is gone."""
    row = StoredObject.objects.filter(space=acme.space, resource=resource, name=name).first()
    return orjson.loads(bytes(row.data)) if row is not None else {}


def uid_of(acme: Inhabited, resource: str, name: str) -> str:
    return str(kept(acme, resource, name)["metadata"]["uid"])


def test_an_editor_looks_around_and_is_known_by_name(acme: Inhabited, monkeypatch: pytest.MonkeyPatch) -> None:
    """One login and one credential for the session, each recorded once; every request in the record is the person's."""
    issued: list[str] = []
    make = portalsessions.portal_token

    def watched(*args: Any, **more: Any) -> str:
        issued.append(make(*args, **more))
        return issued[-1]

    monkeypatch.setattr(portalsessions, "portal_token", watched)
    browser = acme.browser()
    assert "Nothing runs here yet" in seen(browser, acme.url())
    acme.put(deployment("web"), pod("web-1"), pod("web-2"), secret("keys", token="c2VjcmV0"))
    assert "2 Pods" in seen(browser, acme.url())
    listed = seen(browser, acme.url("pods/"))
    assert "web-1 1/1 Running 3" in listed
    shown = seen(browser, acme.url("deployments.apps/web/"))
    assert "1 of 2 ready" in shown
    assert "web-2" in shown
    assert "managedFields:" not in shown
    assert f"kubectl -n {acme.workspace.k8s_namespace} scale deployments.apps/web --replicas=2" in shown
    assert "2 Pods" in seen(browser, f"/workspaces/{acme.workspace.pk}/running/")

    login, credential = Login.objects.get(), Credential.objects.get()
    assert login.machine == "this portal"
    assert (credential.role, credential.login_id, credential.workspace_id) == ("editor", login.pk, None)
    assert AuditEntry.objects.filter(action="contents.open", actor="editor@acme.test").count() == 1
    assert AuditEntry.objects.filter(action="login.allow").count() == 1

    def recorded() -> bool:
        rows = ApiRequest.objects.filter(tenant="acme", path__contains=f"/{acme.workspace.k8s_namespace}/pods")
        return set(rows.values_list("actor", "credential")) == {("editor@acme.test", f"JTI={credential.jti}")}

    assert eventually(recorded)
    assert "this portal" in seen(browser, "/credentials/")
    assert len(set(issued)) > 1, "each answer has a token of its own"
    for model in (Login, Credential, AuditEntry, ApiRequest):
        assert not any(token in repr(row) for token in issued for row in model.objects.values_list())


def test_what_a_token_of_the_portal_opened_ends_with_the_session(
    acme: Inhabited, embedded: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signing out, ending the portal's login, and revoking its credential each end what was made before."""
    doors: list[door.Door] = []
    fetch = door.Door.fetch

    def watched(self: door.Door, *args: Any, **more: Any) -> bytes:
        doors.append(self)
        return fetch(self, *args, **more)

    monkeypatch.setattr(door.Door, "fetch", watched)

    def opens(one: door.Door) -> bool:
        try:
            fetch(one, "GET", one.path("", "v1", "pods"))
        except door.StatusError as error:
            assert error.code == 401
            return False
        return True

    def used(browser: Client) -> door.Door:
        seen(browser, acme.url("pods/"))
        assert opens(doors[-1])
        assert doors[-1]._token not in repr(doors[-1])
        return doors[-1]

    browser = acme.browser()
    one = used(browser)
    browser.post("/logout/")
    assert eventually(lambda: not opens(one))

    browser = acme.browser()
    one = used(browser)
    login = Login.objects.get(session__session_key=browser.session.session_key)
    browser.post(reverse("login-revoke", args=[login.pk]))
    assert eventually(lambda: not opens(one))
    assert "You have signed the portal itself out" in seen(browser, acme.url("pods/"), 403)

    browser = acme.browser()
    one = used(browser)
    admin = actor_of(acme.people["admin"])
    credential_revoke(actor=admin, jti=one.credential, now=timezone.now())
    assert eventually(lambda: not opens(one))
    assert "This credential was revoked; sign out of the portal" in seen(browser, acme.url("pods/"), 403)


def test_each_role_does_what_it_may(acme: Inhabited) -> None:
    """Buttons are there where the API server says so; who posts without them is told what the API server says."""
    acme.put(deployment("web"), pod("web-1"), secret("keys", token="c2VjcmV0"))
    viewer, editor = acme.browser("viewer"), acme.browser("editor")
    looked = viewer.get(acme.url("deployments.apps/web/")).content.decode()
    page = acme.url("deployments.apps/web/")
    assert not [action for action in ("restart", "scale", "delete") if f"{page}{action}/" in looked]
    looked = editor.get(acme.url("deployments.apps/web/")).content.decode()
    assert all(f"{page}{action}/" in looked for action in ("restart", "scale", "delete"))
    refused = seen(viewer, acme.url("secrets/"), 403)
    assert 'secrets is forbidden: User "viewer@acme.test" cannot list resource "secrets"' in refused
    assert "c2VjcmV0" not in seen(viewer, acme.url("secrets/keys/values/token/"), 403)
    asked = seen(viewer, acme.url())
    assert "\u2013 Secrets" in asked, "what may not be counted is said to be there"

    uid = {"uid": uid_of(acme, "deployments", "web")}
    for action, sent in (("restart", {}), ("scale", {"replicas": "0"}), ("delete", {"name": "web"})):
        answer = viewer.post(f"{page}{action}/", {**uid, **sent})
        assert 'User "viewer@acme.test" cannot' in text_of(answer), action
    assert kept(acme, "deployments", "web")["spec"]["replicas"] == 2

    form = editor.get(f"{page}scale/").content.decode()
    assert uid["uid"] in form
    assert editor.post(f"{page}scale/", {**uid, "replicas": "5"}).status_code == 302
    assert kept(acme, "deployments", "web")["spec"]["replicas"] == 5
    assert editor.post(f"{page}restart/", uid).status_code == 302
    template = kept(acme, "deployments", "web")["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]
    assert "This is not the name" in text_of(editor.post(f"{page}delete/", {**uid, "name": "wep"}))
    another = editor.post(f"{page}delete/", {"uid": "another", "name": "web"})
    assert "precondition" in text_of(another).lower(), "one that took its name is not meant"
    assert kept(acme, "deployments", "web")
    answer = editor.post(f"{page}delete/", {**uid, "name": "web"})
    assert answer["Location"] == acme.url("deployments.apps/")
    assert not kept(acme, "deployments", "web")
    assert editor.post(acme.url("pods/web-1/delete/"), {"uid": uid_of(acme, "pods", "web-1")}).status_code == 302
    assert editor.get(acme.url("pods/web-1/")).status_code in {200, 404}


def test_values_are_shown_one_by_one(acme: Inhabited) -> None:
    """Neither the list nor the page nor its YAML has a value, nor has the annotation that repeats them all."""
    acme.put(
        secret("keys", token="dGhlLXZhbHVl", blob="/wD/"),
        (
            "",
            "configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}, "data": {"a": "plain-text"}},
        ),
    )
    browser = acme.browser()
    for path in ("secrets/", "secrets/keys/", "configmaps/", "configmaps/conf/"):
        page = browser.get(acme.url(path)).content.decode()
        assert not [value for value in ("dGhlLXZhbHVl", "the-value", "plain-text") if value in page], path
    assert "token 9 bytes" in seen(browser, acme.url("secrets/keys/"))
    assert "the-value" in seen(browser, acme.url("secrets/keys/values/token/"))
    assert "/wD/" in seen(browser, acme.url("secrets/keys/values/blob/"))
    assert "plain-text" in seen(browser, acme.url("configmaps/conf/values/a/"))
    assert "has no key" in seen(browser, acme.url("secrets/keys/values/none/"), 404)


def test_another_tenants_people_get_nothing_by_any_page(acme: Inhabited, embedded: TestCluster) -> None:
    """Neither by the workspace's own addresses nor by theirs with another's names."""
    globex = inhabited(embedded, "globex")
    acme.put(pod("only-of-acme"), secret("only-of-acme", key="c2VjcmV0"))
    strangers = [globex.browser(role) for role in globex.people]
    parts = {"pk": acme.workspace.pk, "resource": "pods", "name": "only-of-acme", "key": "key"}
    looked = 0
    for pattern in urls.urlpatterns:
        route = str(pattern.pattern)
        if not isinstance(pattern, URLPattern) or not ("/contents/" in route or route.endswith("/running/")):
            continue
        path = reverse(str(pattern.name), kwargs={part: parts[part] for part in pattern.pattern.converters})
        for browser in strangers:
            for answer in (browser.get(path), browser.post(path, {"uid": "x", "name": "only-of-acme"})):
                assert answer.status_code in {404, 405}, path
                assert "c2VjcmV0" not in answer.content.decode()
                looked += 1
    assert looked == 2 * len(strangers) * 13
    outside = strangers[0].get(globex.url("pods/only-of-acme/"))
    assert outside.status_code == 404
    for path in (f"pods/..%2F..%2F{acme.workspace.k8s_namespace}%2Fpods%2Fonly-of-acme/", "pods/../", "pods/%2e%2e/"):
        assert "Running" not in text_of(strangers[0].get(globex.url(path)))
    assert Client().get(acme.url()).status_code == 302
    assert not Credential.objects.filter(tenant_id="acme").exists()


def test_a_suspended_workspace_says_so_and_comes_back(acme: Inhabited, embedded: TestCluster) -> None:
    acme.put(pod("web-1"))
    browser = acme.browser()
    assert "web-1" in seen(browser, acme.url("pods/"))
    workspace_suspend(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="mining suspected")
    before = Credential.objects.count()
    for path in ("", "pods/", "pods/web-1/", "pods/web-1/logs/", "pods/web-1/delete/"):
        shown = seen(browser, acme.url(path), 409)
        assert "The workspace is suspended: mining suspected" in shown
    answer = browser.get(acme.url("pods/"), headers=LIVE)
    assert answer.status_code == 200, "a part of a page that was open tells it in its place"
    assert "mining suspected" in text_of(answer)
    assert Credential.objects.count() == before
    embedded.settle(acme.workspace, Phase.SUSPENDED)
    workspace_resume(actor=OPERATOR, workspace_id=acme.workspace.pk)
    embedded.settle(acme.workspace, Phase.READY)
    assert eventually(lambda: "web-1" in text_of(browser.get(acme.url("pods/"))))


def test_five_thousand_pods_are_leafed_through_and_searched(acme: Inhabited) -> None:
    for first in range(0, 5000, 500):
        acme.put(*(pod(f"web-{number:04}", labels={"shard": str(number % 50)}) for number in range(first, first + 500)))
    browser = acme.browser()
    page = browser.get(acme.url("pods/")).content.decode()
    assert page.count('href="' + acme.url("pods/web-")) == 100
    assert "4900 more." in page
    names, address = [], acme.url("pods/")
    for _ in range(3):
        page = browser.get(address).content.decode()
        names += re.findall(r"<bdi>(web-\d{4})</bdi>", page)
        following = re.search(r'href="([^"]+)"\s+rel="next"', page)
        assert following is not None
        address = html.unescape(following[1])
    assert names == [f"web-{number:04}" for number in range(300)]
    address = acme.url("pods/?q=4999")
    while "web-4999" not in (page := browser.get(address).content.decode()):
        # A slow machine looks through some at a time, and says where it goes on.
        assert "names were looked through" in page
        following = re.search(r'href="([^"]+)"\s+rel="next"', page)
        assert following is not None
        address = html.unescape(following[1])
    assert "web-4998" not in page
    assert len(re.findall(r"web-\d{4}", seen(browser, acme.url("pods/?labels=shard%3D7")))) == 100
    assert "5000 Pods" in seen(browser, acme.url())
    assert "First page" in seen(browser, acme.url("pods/?after=forged"), 400)
    assert "unable to parse" in seen(browser, acme.url("pods/?labels=%21%21"), 400).lower()


def test_the_living_part_is_sent_when_it_is_another(acme: Inhabited) -> None:
    acme.put(pod("web-1"))
    browser = acme.browser()
    answer = browser.get(acme.url("pods/?q=web"), headers=LIVE)
    assert "<html" not in answer.content.decode()
    again = re.search(r'hx-get="([^"]+)"', answer.content.decode())
    assert again is not None
    address = html.unescape(again[1])
    assert browser.get(address, headers=LIVE).status_code == 204
    acme.put(pod("web-2"))
    assert eventually(lambda: "web-2" in browser.get(address, headers=LIVE).content.decode())
    Login.objects.update(revoked_at=timezone.now())
    answer = browser.get(address, headers=LIVE)
    assert answer.status_code == 200
    assert "hx-get" in answer.content.decode(), "it goes on to ask"


def test_no_text_of_an_object_is_more_than_text(acme: Inhabited) -> None:
    """Names that Kubernetes allows for Roles, annotations, messages, keys: no markup, no letters that act, no end."""
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": []}
    acme.put(
        deployment("web", note=HOSTILE),
        pod("told", told=HOSTILE),
        secret("keys", **{"a.b": "PGI-"}),
        ("rbac.authorization.k8s.io", "roles", {**role, "metadata": {"name": f"<b data-forged>{RIGHT_TO_LEFT}:x"}}),
        (
            "",
            "configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": HOSTILE}},
        ),
    )
    browser = acme.browser("admin")
    roles = browser.get(acme.url("roles.rbac.authorization.k8s.io/"))
    linked = re.search(r'href="([^"]+%3Cb[^"]+)"', roles.content.decode())
    assert linked is not None
    paths = [
        "",
        "deployments.apps/web/",
        "pods/told/",
        "pods/told/logs/?q=%3Cb%20data-forged%3E",
        "configmaps/c/values/k/",
    ]
    shown = 0
    for path in [*map(acme.url, paths), html.unescape(linked[1]), acme.url("roles.rbac.authorization.k8s.io/")]:
        answer = browser.get(path)
        body = answer.content.decode()
        assert answer.status_code == 200, path
        looking = Looking()
        looking.feed(body)
        assert not looking.found, path
        assert not [letter for letter in (RIGHT_TO_LEFT, "\x1b", "\x07") if letter in body], path
        shown += "data-forged" in body
    assert shown >= 5


def test_custom_resources_have_the_columns_of_their_definition(acme: Inhabited, embedded: TestCluster) -> None:
    owner = acme.people["owner"]
    file = tenant_kubeconfig_issue(actor=actor_of(owner), tenant="acme", now=timezone.now())
    token = yaml.safe_load(file.yaml)["users"][0]["user"]["token"]
    columns = [{"name": "Flavour", "type": "string", "jsonPath": ".spec.flavour"}]
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "cakes.bakery.test"},
        "spec": {
            "group": "bakery.test",
            "scope": "Namespaced",
            "names": {"plural": "cakes", "kind": "Cake"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": columns,
                }
            ],
        },
    }
    authority = embedded.real.folder / "proxy-ca.pem"
    authority.write_bytes(embedded.proxy.ca.cert_pem.bytes())

    def post(path: str, body: dict[str, Any]) -> int:
        bearer = {"Authorization": f"Bearer {token}"}
        return requests.post(
            f"{embedded.proxy.url}{path}", json=body, headers=bearer, verify=authority, timeout=300
        ).status_code

    assert post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition) == 201
    cake = {"apiVersion": "bakery.test/v1", "kind": "Cake", "metadata": {"name": "plum"}, "spec": {"flavour": "sour"}}
    there = f"/apis/bakery.test/v1/namespaces/{acme.workspace.k8s_namespace}/cakes"
    assert eventually(lambda: post(there, cake) == 201)
    browser = acme.browser("owner")
    shown = seen(browser, acme.url("cakes.bakery.test/"))
    assert "Custom resources Cakes" in shown
    assert "Name Flavour plum sour" in shown
    assert "flavour: sour" in seen(browser, acme.url("cakes.bakery.test/plum/"))
    assert "doesn't have a resource type" in seen(browser, acme.url("pies.bakery.test/"), 404)


def test_an_api_server_that_is_away_is_said_to_be(acme: Inhabited, embedded: TestCluster) -> None:
    browser = acme.browser()
    seen(browser, acme.url("pods/"))
    Cluster.objects.filter(kind=Cluster.Kind.EMBEDDED).update(server="https://127.0.0.1:1")
    answer = browser.get(acme.url("configmaps/"))
    assert answer.status_code == 503
    assert answer["Retry-After"] == "5"
    assert "The API server cannot be reached" in text_of(answer)
    assert "an operator sees the reason" in text_of(answer)
    part = browser.get(f"/workspaces/{acme.workspace.pk}/running/")
    assert part.status_code == 200
    assert "cannot be reached" in text_of(part)
    Cluster.objects.update(ca_data="none")
    assert "certificate authority cannot be read" in seen(browser, acme.url("configmaps/"), 503)
    Cluster.objects.update(kind=Cluster.Kind.EXTERNAL)
    assert "not registered" in seen(browser, acme.url("configmaps/"), 409)


def test_operators_are_themselves_there_too(acme: Inhabited) -> None:
    acme.put(pod("web-1"))
    operator = factories.operator("olga@platform.test")
    browser = Client()
    browser.force_login(operator)
    assert "web-1" in seen(browser, acme.url("pods/"))
    assert AuditEntry.objects.filter(action="contents.open", actor=operator.email, chain="acme").exists()
    assert django_settings.SESSION_COOKIE_NAME in browser.cookies


def test_a_refusal_is_drawn_where_it_was_asked_for(acme: Inhabited) -> None:
    """In a dialog as a dialog, in a part of a page as a part, and else as a page with its status."""
    browser = acme.browser()
    path = acme.url("pods/nobody/delete/")
    dialog = browser.get(path, headers={"HX-Request": "true", "HX-Target": "dialog"})
    assert dialog.status_code == 200
    assert "dialog__head" in dialog.content.decode()
    part = browser.get(path, headers={"HX-Request": "true"})
    assert part.status_code == 200
    assert "<h" not in part.content.decode()
    assert browser.get(path).status_code == 404
    assert all('pods "nobody" not found' in text_of(answer) for answer in (dialog, part, browser.get(path)))
