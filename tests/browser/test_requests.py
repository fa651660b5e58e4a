"""Asking, deciding and being told, in a browser: every page in every look (GW25)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from tenants.models import AccessRequest, Notification, OperationState, Webhook
from tests import factories
from tests.browser.window import Visit


def crowd(house: dict[str, Any]) -> AccessRequest:
    """Requests of every state, things told, and a webhook."""
    web, alice, operator = house["web"], house["alice"], house["operator"]
    bob = house["staging"].user
    long = (
        "the on-call rotation needs to restart stuck consumers without waiting for somebody in another time zone " * 3
    )
    found = factories.access_request(web.tenant, bob, reason=long)
    found.comments.create(author=alice.email, text="For how long, and who else knows? " * 4)
    found.comments.create(author=bob.email, text="For good: I am the only one in this time zone.")
    factories.access_request(
        web.tenant, alice, state="denied", answer="Ask for a role in the other tenant", decided_at=timezone.now()
    )
    factories.access_request(web.tenant, alice, kind="break-glass", role="admin", minutes=60, approvers="operator")
    for person in (alice, operator):
        for read in (None, timezone.now()):
            text = f"{bob.email} asks for the role owner in acme"
            Notification.objects.create(user=person, kind="request.opened", text=text, request=found, read_at=read)
    hook = Webhook.objects.create(
        tenant=web.tenant,
        url=f"https://hooks.example.org/{'very-long-path/' * 9}",
        sealed_secret=b"x",
        kinds=["request.opened", "membership.changed"],
        created_by=alice.email,
    )
    hook.deliveries.create(kind="request.opened", body="{}", attempts=3, answer="no answer (ClientConnectorError)")
    house["staging"].operations.update(state=OperationState.FAILED, error="The quota cannot be set: forbidden")
    web.expires_at = timezone.now() + timedelta(days=6)
    web.save()
    return found


PAGES = {
    "what-waits": ("inbox", "request", "notifications", "my-requests", "choices"),
    "webhooks": ("webhooks", "webhook", "webhook-new"),
    "ends": ("workspace-ends", "workspace-end", "members-end"),
    "forms": ("ask-tenant", "ask-tier", "ask-quota", "ask-role", "ask-break-glass"),
    "operators": ("inbox", "request", "platform-webhooks"),
}


@pytest.mark.parametrize("part", PAGES)
def test_every_page_of_requests_in_every_look(visit: Callable[..., Visit], house: dict[str, Any], part: str) -> None:
    """No violation of the policy, none of axe's rules, no horizontal scrolling; light, dark, phone."""
    found = crowd(house)
    paths = {
        "inbox": "/inbox/",
        "request": f"/inbox/{found.pk}/",
        "notifications": "/notifications/",
        "my-requests": "/my-requests/",
        "choices": "/notifications/choices/",
        "webhooks": "/tenants/acme/webhooks/",
        "webhook": f"/webhooks/{Webhook.objects.get().pk}/",
        "webhook-new": "/tenants/acme/webhooks/new/",
        "platform-webhooks": "/webhooks/",
        "workspace-ends": f"/workspaces/{house['web'].pk}/",
        "workspace-end": f"/workspaces/{house['web'].pk}/end/",
        "members-end": "/tenants/acme/members/",
        **{f"ask-{kind}": f"/my-requests/new/{kind}/" for kind in ("tenant", "tier", "quota", "role", "break-glass")},
    }
    window = visit()
    window.sign_in(house["operator" if part == "operators" else "alice"])
    for name in PAGES[part]:
        window.page.goto(window.site + paths[name])
        window.check_in_every_look(f"{part}-{name}")
    assert window.problems == []
