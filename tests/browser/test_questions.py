"""Questions about rights in a real browser: by keyboard, on a phone, light and dark (AZ11, GW14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.core.cache import cache

from tenants.models import Role
from tenants.services.tenants import tenant_create
from tests import factories
from tests.browser.window import Visit
from tests.tenants.conftest import OPERATOR


@pytest.fixture
def tenant(house: dict[str, Any]) -> dict[str, Any]:
    """A tenant with a space of its own."""
    made = tenant_create(actor=OPERATOR, name="umbrella")
    owner = factories.member(made, Role.OWNER, factories.user("ada@umbrella.test"))
    factories.member(made, Role.VIEWER, factories.user("ben@umbrella.test"))
    return {"owner": owner}


def test_a_pasted_command_becomes_a_decision_by_keyboard_alone(
    visit: Callable[..., Visit], tenant: dict[str, Any]
) -> None:
    window = visit()
    window.sign_in(tenant["owner"])
    window.page.goto(f"{window.site}/explain/")
    window.check_in_every_look("explain-empty")
    window.page.focus("[name=paste]")
    window.page.keyboard.type("kubectl -n default delete deploy/web --as ben@umbrella.test")
    window.page.keyboard.press("Enter")
    window.page.wait_for_selector("text=403 Forbidden")
    assert window.page.input_value("[name=person]") == "ben@umbrella.test"
    assert window.page.input_value("[name=thing]") == "deployments.apps"
    window.page.locator(".trace summary").first.press("Enter")
    window.page.wait_for_selector(".trace details[open]")
    window.check_in_every_look("explain")
    window.page.get_by_role("link", name="Who can").click()
    window.page.wait_for_selector("button:has-text('Find out')")
    assert window.page.input_value("[name=thing]") == "deployments.apps", "the question goes along"
    window.page.get_by_role("button", name="Find out").click()
    window.page.wait_for_selector("td:has-text('tenantry:owner')")
    window.check_in_every_look("who-can")
    assert window.problems == []


def test_a_role_for_somebody_is_tried_and_another_place_has_other_choices(
    visit: Callable[..., Visit], house: dict[str, Any], tenant: dict[str, Any]
) -> None:
    window = visit()
    window.sign_in(house["operator"])
    window.page.goto(f"{window.site}/explain/?ask=change")
    window.page.fill("[name=cluster]", "root:umbrella")
    window.page.press("[name=cluster]", "Tab")
    window.page.wait_for_selector("#people option[value='ben@umbrella.test']", state="attached")
    window.page.fill("[name=namespace]", "default")
    window.page.fill("[name=person]", "ben@umbrella.test")
    window.page.fill("[name=role]", "ClusterRole/edit")
    window.page.get_by_role("button", name="Try").click()
    window.page.wait_for_selector(".diff >> text=in namespace default")
    window.check_in_every_look("what-if")
    assert window.problems == []


def test_a_new_workspace_says_in_one_place_that_nothing_runs(
    visit: Callable[..., Visit], house: dict[str, Any]
) -> None:
    """And in one line how many limits there are."""
    counted = {**dict.fromkeys(house["web"].tier.quota, "0"), "count/configmaps": "1"}
    cache.set(f"portal:quota:{house['web'].pk}", counted, 600)  # what its cluster has answered last
    window = visit()
    window.sign_in(house["alice"])
    window.page.goto(f"{window.site}/workspaces/{house['web'].pk}/")
    window.page.wait_for_selector("text=Nothing runs here yet")
    assert window.page.locator(".meter:visible").count() == 0
    window.page.get_by_text("All 6 limits").click()
    assert window.page.locator(".meter:visible").count() == 6
    window.check_in_every_look("workspace-new")
    assert window.problems == []
