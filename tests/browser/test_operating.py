"""What operators do with the whole house, in a browser: every page in every look, and by the keyboard (GW28)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from audit.actions import Action
from kube.quota.charges import Price
from portal.access.reports import REPORTS
from portal.admin import admin
from tenants.models import (
    Announcement,
    Cluster,
    Freeze,
    Lock,
    Operation,
    OperationState,
    Tenant,
    UsageHour,
    User,
    Workspace,
)
from tenants.services import prices_change
from tenants.services.operating.offboarding import tenant_offboard
from tests import factories
from tests.browser.window import Visit
from tests.tenants.conftest import OPERATOR


def said(text: str, **fields: Any) -> Announcement:
    return Announcement.objects.create(text=text, created_by="olga", starts_at=timezone.now(), **fields)


def test_every_page_with_banners_and_freezes_in_every_look(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    """No violation of the policy, none of axe's rules, no horizontal scrolling; light, dark, phone."""
    said("Read the new rules before Monday.", severity="info")
    said(
        f"Maintenance of the storage: {'volumes-cannot-be-made ' * 8}",
        severity="warning",
        ends_at=timezone.now() + timedelta(hours=3),
    )
    said("The cluster ber-2 is away.", severity="critical", dismissible=False)
    web = house["web"]
    reason = "An incident is looked into: nothing may change until it is understood"
    Freeze.objects.create(tenant=web.tenant, space="root:acme", reason=reason, frozen_by="olga@platform.test")
    Freeze.objects.create(
        tenant=web.tenant,
        workspace=web,
        space="root:acme",
        namespace=web.k8s_namespace,
        reason=reason,
        frozen_by="olga@platform.test",
        until=timezone.now() + timedelta(days=2),
    )
    now = timezone.now()
    tenant_offboard(
        actor=OPERATOR, name="globex-0", reason="They go elsewhere", ends_at=now + timedelta(days=30), now=now
    )
    member = visit()
    member.sign_in(house["alice"])
    for name, path in (("overview", "/"), ("workspace", f"/workspaces/{web.pk}/")):
        member.page.goto(member.site + path)
        member.check_in_every_look(f"banner-{name}")
    operator = visit()
    operator.sign_in(house["operator"])
    for name, path in (
        ("announcements", "/announcements/"),
        ("announcement-new", "/announcements/new/"),
        ("tenant-frozen", "/tenants/acme/"),
        ("workspace-frozen", f"/workspaces/{web.pk}/"),
        ("freeze", "/tenants/globex-0/freeze/"),
        ("tenant-leaving", "/tenants/globex-0/"),
        ("tenants-leaving", "/tenants/"),
        ("offboard", "/tenants/globex-1/offboard/"),
        ("export", "/tenants/globex-0/export/"),
    ):
        operator.page.goto(operator.site + path)
        operator.check_in_every_look(name)
    operator.page.goto(f"{operator.site}/admin/")
    assert operator.page.get_by_text("The cluster ber-2 is away.").count() == 1
    assert member.problems == operator.problems == []


def test_by_the_keyboard_a_banner_is_put_away_and_a_phone_finds_by_a_part_of_a_name(
    visit: Callable[..., Visit], house: dict[str, Any]
) -> None:
    said("Read the new rules before Monday.")
    window = visit()
    window.sign_in(house["alice"])
    window.page.goto(f"{window.site}/workspaces/")
    window.page.get_by_role("button", name="Put away: Read the new rules").focus()
    window.page.keyboard.press("Enter")
    window.came("text=Read the new rules", "detached")
    assert window.page.url.endswith("/workspaces/"), "one stays where one was"
    window.look("phone")
    window.page.get_by_role("button", name="Search").click()
    window.page.get_by_role("searchbox", name="Search").fill(house["web"].k8s_namespace[2:])
    window.page.get_by_role("link", name="web acme").click()
    window.page.wait_for_url(f"**/workspaces/{house['web'].pk}/")
    assert window.problems == []


def test_by_the_keyboard_many_rows_are_chosen_looked_at_and_done_and_on_a_phone(
    visit: Callable[..., Visit], house: dict[str, Any]
) -> None:
    window = visit()
    window.sign_in(house["operator"])
    for path in ("tenants", "workspaces", "users"):
        window.page.goto(f"{window.site}/{path}/")
        window.check_in_every_look(f"bulk-{path}")
    window.page.goto(f"{window.site}/tenants/")
    for name in ("globex-0", "globex-1"):
        window.page.get_by_role("checkbox", name=f"Choose {name}", exact=True).focus()
        window.page.keyboard.press("Space")
    window.page.get_by_label("With the chosen rows").select_option("freeze")
    window.page.get_by_role("button", name="Preview…").focus()
    window.page.keyboard.press("Enter")
    window.page.get_by_label("Reason").fill("An audit")
    window.check_in_every_look("bulk-words")
    window.page.keyboard.press("Enter")
    window.page.get_by_text("2 would be done.").wait_for()
    window.check_in_every_look("bulk-preview")
    window.look("phone")
    window.page.get_by_role("button", name="Freeze 2").click()
    window.page.get_by_text("2 done.").wait_for()
    assert Freeze.objects.filter(tenant__in=("globex-0", "globex-1")).count() == 2
    window.check_in_every_look("bulk-done")
    window.page.get_by_role("link", name="Back to the list").click()
    window.page.wait_for_url("**/tenants/")
    assert window.problems == []


def test_an_operator_sees_what_a_member_sees_under_a_banner(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    window = visit()
    window.sign_in(house["operator"])
    window.page.goto(f"{window.site}/users/{house['alice'].pk}/")
    window.check_in_every_look("person")
    window.page.get_by_role("link", name="View as acme").click()
    window.page.get_by_label("Reason").fill("A ticket")
    window.page.get_by_role("button", name="View", exact=True).click()
    window.page.get_by_role("button", name="Be yourself again").wait_for()
    window.check_in_every_look("viewing")
    window.page.get_by_role("button", name="Be yourself again").focus()
    window.page.keyboard.press("Enter")
    window.page.get_by_text("You are yourself again.").wait_for()
    member = visit()
    member.sign_in(house["alice"])
    member.page.goto(f"{member.site}/profile/")
    assert member.page.get_by_text("A ticket").count() == 1
    member.check_in_every_look("profile-seen")
    assert window.problems == member.problems == []


def test_every_report_and_what_is_put_off_in_every_look(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    now = timezone.now()
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for model in (User, Tenant, Workspace):
        model.objects.update(created_at=now - timedelta(days=400))
    has, may = {"pods": 96, "requests.memory": 2**30, "services": 4}, {"pods": 100, "requests.memory": 2**36}
    for number, tenant in enumerate(Tenant.objects.order_by("name")[:12]):
        UsageHour.objects.update_or_create(
            tenant=tenant.name,
            namespace="",
            hour=hour,
            defaults={"requests": 900 * (number + 1), "used": has, "hard": may},
        )
    prices_change(actor=OPERATOR, prices=[Price("requests", Decimal("0.40"), 100)], now=now)
    house["web"].operations.update(state=OperationState.FAILED, error="no route to the cluster")
    operator = visit()
    operator.sign_in(house["operator"])
    for kind in REPORTS:
        operator.page.goto(f"{operator.site}/reports/{kind}/")
        operator.check_in_every_look(f"report-{kind}")
    operator.page.goto(f"{operator.site}/inbox/")
    operator.check_in_every_look("inbox-to-postpone")
    operator.page.get_by_role("link", name="Postpone acme/web").click()
    operator.page.get_by_label("Until").fill(f"{now + timedelta(days=3):%Y-%m-%d}")
    operator.page.get_by_label("Reason").fill("The network is repaired on Friday")
    operator.page.get_by_role("button", name="Postpone").click()
    operator.page.get_by_text("Put off. It is back on that day").wait_for()
    assert operator.page.get_by_role("link", name="Postpone acme/web").count() == 0
    operator.page.get_by_role("link", name="Postponed", exact=True).click()
    operator.page.get_by_text("The network is repaired on Friday").wait_for()
    operator.check_in_every_look("inbox-postponed")
    operator.page.get_by_role("button", name="Bring back: acme/web").click()
    operator.page.get_by_role("link", name="Postpone acme/web").wait_for()
    assert operator.problems == []


def test_every_list_of_the_console_fits_a_small_screen(visit: Callable[..., Visit], house: dict[str, Any]) -> None:
    """At 1280 px no column is cut off, whatever stands in it."""
    long = "a-name-as-long-as-names-become-in-earnest"
    web, alice = house["web"], house["alice"]
    User.objects.filter(pk=alice.pk).update(name="Alexandra Featherstonehaugh-Cholmondeley")
    factories.credential(web, alice)
    Operation.objects.update(error=f"The cluster refused: namespaces {long!r} is forbidden: exceeded quota: limits")
    factories.event("acme", Action.WORKSPACE_READY, alice, of=web)
    said("The cluster ber-2 is away for maintenance until Monday, six in the morning; nothing is lost meanwhile.")
    Lock.objects.create(space=f"root:{long}", namespace=long, reason="mined coins for three days, see ticket 4711")
    Cluster.objects.update(
        last_error="x509: certificate signed by unknown authority: " + long, server=f"https://{long}.example.org:6443"
    )
    window = visit()
    window.sign_in(house["operator"])
    window.page.set_viewport_size({"width": 1280, "height": 800})
    wider = {}
    for model in admin.site._registry:
        window.page.goto(f"{window.site}/admin/{model._meta.app_label}/{model._meta.model_name}/")
        more = window.page.evaluate(
            "Math.max(0, ...[document.documentElement, ...document.querySelectorAll('.results')]"
            ".map(each => each.scrollWidth - each.clientWidth))"
        )
        if more:
            wider[model.__name__] = more
    assert wider == {}
