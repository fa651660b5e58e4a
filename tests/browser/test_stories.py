"""A day of five people in a real browser, from where they begin to what they came for (GW14, GW16, GW25, GW27).

The first two have no mouse, and a phone: what they use is reached by Tab, and pressed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.utils import timezone

from tenants.models import AccessRequest, Cluster, OperationState, Phase, User, Workspace
from tests import factories
from tests.browser.test_invitations import invited
from tests.browser.window import Visit
from tests.clusters import TestCluster
from tests.portal.inhabited import Inhabited, deployment, inhabited, pod

TABS_MAX = 90
"""Of the longest way to anything on a page."""


@pytest.fixture
def site(transactional_db: None, live_server: Any) -> str:
    """Of whichever house a story is in."""
    return str(live_server.url).replace("127.0.0.1", "localhost")


@pytest.fixture
def busy(transactional_db: None, settings: Any, request: pytest.FixtureRequest) -> Inhabited:
    """Instead of the house of all pages, one whose workspace is on an API server, with something in it."""
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    embedded: TestCluster = request.getfixturevalue("embedded")
    settings.PORTAL_TOKEN_KEY_FILE = embedded.real.folder / "pki" / "portal-tokens.key"
    made = inhabited(embedded, "umbrella")
    made.put(deployment("web"), pod("web-7d4b9c6f5-x2kqa"), pod("web-7d4b9c6f5-x2kqb"))
    return made


def reach(window: Visit, wanted: Any) -> None:
    """Go on by Tab until it has the focus."""
    wanted.first.wait_for()
    for _ in range(TABS_MAX):
        # Looked for each time: what is alive takes its own place every few seconds, and the focus goes along.
        if wanted.first.evaluate("wanted => wanted === document.activeElement"):
            return
        window.page.keyboard.press("Tab")
    raise AssertionError(f"no way by Tab to {wanted}")


def press(window: Visit, role: str, name: str) -> None:
    """Reach what is called so, and press Enter."""
    reach(window, window.page.get_by_role(role, name=name, exact=True))
    window.page.keyboard.press("Enter")


def write(window: Visit, name: str, text: str) -> None:
    """Reach a field, and type."""
    within = "dialog[open]" if window.page.locator("dialog[open]").count() else "main"
    reach(window, window.page.locator(f"{within} [name={name}]"))
    window.page.keyboard.type(text)


def shown(window: Visit, title: str) -> None:
    """A page has come, and is right on this screen."""
    window.came(f"h1:has-text('{title}')")
    window.check(f"story-{title}")


def test_a_new_member_comes_by_a_link_and_makes_a_workspace(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    owner, newcomer = visit(), visit()
    owner.sign_in(house["alice"])
    link = invited(owner, "newt@acme.test")
    newcomer.look("phone")
    newcomer.page.goto(link)
    assert newcomer.page.url == f"{newcomer.site}/join/", "the secret stays in no address"
    shown(newcomer, "Join Acme Corporation")
    write(newcomer, "name", "Newt")
    write(newcomer, "password", "a long and windy road")
    newcomer.page.keyboard.press("Enter")
    newcomer.page.wait_for_selector("text=Welcome to acme.")
    newt = User.objects.get(email="newt@acme.test")
    assert newt.memberships.get().role == "editor"
    owner.page.reload()
    owner.page.wait_for_selector("td:has-text('newt@acme.test')")

    press(newcomer, "link", "Open menu")
    press(newcomer, "link", "Workspaces")
    newcomer.came("h1:text-is('Workspaces')")
    press(newcomer, "link", "New workspace")
    shown(newcomer, "New workspace")
    write(newcomer, "name", "first-steps")
    press(newcomer, "button", "Create workspace")
    shown(newcomer, "first-steps")
    newcomer.page.wait_for_selector("#progress[aria-busy=true]")
    made = Workspace.objects.get(name="first-steps")
    made.operations.update(state=OperationState.DONE)
    Workspace.objects.filter(pk=made.pk).update(
        phase=Phase.READY, ready_at=timezone.now(), observed_generation=made.generation
    )
    newcomer.page.wait_for_selector("#progress", state="detached")
    reach(newcomer, newcomer.page.get_by_role("link", name="Get kubeconfig"))
    assert owner.problems + newcomer.problems == []


def test_an_editor_gets_a_kubeconfig_looks_around_and_asks_for_more(
    visit: Callable[..., Visit], busy: Inhabited
) -> None:
    window = visit()
    window.look("phone")
    window.sign_in(busy.people["editor"])
    press(window, "link", "web")
    shown(window, "web")
    press(window, "link", "Get kubeconfig")
    window.page.wait_for_selector("dialog[open] h2:text-is('Kubeconfig for web')")
    press(window, "button", "Issue kubeconfig")
    reach(window, window.page.get_by_role("button", name="Download", exact=True))
    window.check("story-kubeconfig")
    with window.page.expect_download() as download:
        window.page.keyboard.press("Enter")
    assert download.value.suggested_filename.startswith("umbrella")
    window.page.keyboard.press("Escape")
    window.page.wait_for_selector("dialog[open]", state="detached")

    press(window, "link", "What is in it")
    press(window, "link", "2 Pods")
    shown(window, "Pods")
    press(window, "link", "web-7d4b9c6f5-x2kqb")
    shown(window, "web-7d4b9c6f5-x2kqb")
    press(window, "link", "Delete")
    window.page.wait_for_selector("dialog[open] h2:text-is('Delete web-7d4b9c6f5-x2kqb')")
    press(window, "button", "Delete")
    window.page.wait_for_selector("text=web-7d4b9c6f5-x2kqb is being deleted.")

    press(window, "link", "Open menu")
    press(window, "link", "My requests")
    shown(window, "My requests")
    press(window, "link", "A role in a tenant")
    window.page.wait_for_selector("dialog[open] [name=reason]")
    window.check("story-ask")
    for name, text in (("tenant", "umbrella"), ("role", "Admin"), ("reason", "on call")):
        write(window, name, text)
    window.page.keyboard.press("Enter")
    window.page.get_by_text("Asked. You are told what becomes of it.").wait_for()
    assert AccessRequest.objects.get().role == "admin"
    assert window.problems == []


def test_an_owner_says_yes_to_one_and_goodbye_to_another(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    bob = house["staging"].user
    factories.access_request(house["web"].tenant, bob, role="admin", reason="I am on call")
    asking, owner = visit(), visit()
    asking.sign_in(bob)
    owner.sign_in(house["alice"])
    owner.page.get_by_role("link", name="Inbox 1 waiting").click()
    owner.came("h1:text-is('Inbox')")
    owner.page.get_by_role("link", name="Approve").click()
    owner.page.wait_for_selector("dialog[open] [name=answer]")
    owner.check_in_every_look("approve-dialog")
    owner.page.fill("dialog[open] [name=answer]", "welcome")
    owner.page.keyboard.press("Enter")
    owner.page.get_by_text("Approved and done.").wait_for()
    asking.page.goto(f"{asking.site}/my-requests/")
    asking.page.get_by_role("link", name="The role admin in acme").click()
    asking.page.get_by_text("welcome").first.wait_for()

    owner.page.goto(f"{owner.site}/tenants/acme/members/")
    assert owner.page.get_by_label(f"Role of {bob.email}", exact=True).input_value() == "admin"
    owner.page.get_by_role("link", name="Remove carol@acme.test").click()
    owner.page.wait_for_selector("dialog[open]")
    owner.page.locator("dialog[open] [type=submit]").click()
    owner.page.locator("tr", has_text="carol@acme.test").wait_for(state="detached")
    owner.page.goto(f"{owner.site}/audit/?chain=acme&action=membership.remove")
    owner.page.locator("tbody tr", has_text="alice@acme.test").wait_for()
    assert owner.problems + asking.problems == []


def test_an_operator_sees_a_cluster_fail_tells_people_and_tries_again(
    visit: Callable[..., Visit], house: dict[str, Any]
) -> None:
    stuck = factories.workspace(house["web"].tenant, house["alice"], "stuck", cluster=Cluster.objects.get(name="ber-2"))
    stuck.operations.update(state=OperationState.FAILED, attempts=7, error="no route to the cluster")
    desk, member = visit(), visit()
    desk.sign_in(house["operator"])
    member.sign_in(house["alice"])
    desk.page.locator(".callout", has_text="ber-2").first.wait_for()
    desk.page.get_by_role("link", name="Inbox", exact=False).first.click()
    desk.page.get_by_text("no route to the cluster").first.wait_for()
    desk.check_in_every_look("story-inbox")
    desk.page.goto(f"{desk.site}/clusters/ber-2/")
    desk.page.get_by_text("The cluster cannot be reached: no connection in time.").first.wait_for()

    desk.page.goto(f"{desk.site}/announcements/new/")
    desk.page.get_by_label("Text").fill("ber-2 is away: what is there runs on, and changes wait.")
    desk.page.locator("main [type=submit]").click()
    desk.came("h1:text-is('Announcements')")
    member.page.reload()
    member.page.get_by_text("ber-2 is away: what is there runs on").wait_for()
    member.check_in_every_look("story-told")

    Cluster.objects.update(unreached_since=None, unreached_why="", away_until=None, last_error="")
    desk.page.goto(f"{desk.site}/operations/")
    desk.page.get_by_role("button", name="Try acme/stuck again").click()
    desk.page.get_by_text("It is being tried again.").wait_for()
    stuck.operations.update(state=OperationState.DONE)
    desk.page.goto(f"{desk.site}/inbox/")
    assert desk.page.get_by_text("no route to the cluster").count() == 0
    assert desk.problems + member.problems == []


def test_an_auditor_looks_at_everything_and_changes_nothing(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    auditor = factories.user("eve.auditor@platform.test", is_auditor=True)
    window = visit()
    window.sign_in(auditor)
    for name, path in {
        "overview": "/",
        "tenant": "/tenants/acme/",
        "members": "/tenants/acme/members/",
        "workspace": f"/workspaces/{house['web'].pk}/",
        "tier": "/tiers/basic/",
        "cluster": "/clusters/ber-2/",
        "users": "/users/",
        "user": f"/users/{house['alice'].pk}/",
        "operations": "/operations/",
        "audit": "/audit/",
        "profile": "/profile/",
    }.items():
        window.page.goto(window.site + path)
        window.check_in_every_look(f"auditor-{name}")
    window.page.goto(f"{window.site}/admin/")
    assert window.page.get_by_role("link", name="Add").count() == 0

    window.page.goto(f"{window.site}/audit/?action=workspace.suspend")
    row = window.page.locator("tbody tr", has_text="olga@platform.test")
    row.get_by_role("link").first.click()
    window.page.locator("dialog[open]", has_text="Mining").wait_for()
    window.page.keyboard.press("Escape")
    with window.page.expect_download() as download:
        window.page.get_by_role("link", name="CSV").click()
    assert "Mining" in download.value.path().read_text()
    window.page.goto(f"{window.site}/workspaces/{house['web'].pk}/")
    assert window.page.get_by_role("link", name="Suspend").count() == 0
    refused = window.page.request.post(f"{window.site}/workspaces/{house['web'].pk}/suspend/", form={"reason": "x"})
    assert refused.status == 403
    assert window.problems == []
