"""What a person is told in the portal, and the choice of what that is (GW25)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from audit.selectors import page_of
from portal.http.actors import actor_of
from portal.notices.sending import addresses_of
from portal.pages.lists import pager
from portal.pages.requestforms import NoticeChoicesForm
from portal.views.actions import render_action
from tenants.models import Notification
from tenants.services.notices import notices_choose, notifications_read


@require_safe
@login_required
def notifications(request: HttpRequest) -> HttpResponse:
    """What one is told, newest first."""
    user: Any = request.user
    page = page_of(Notification.objects.filter(user=user), request.GET.get("after", ""), 50)
    context = {
        "rows": [
            {"notification": each, "url": url}
            for each, url in zip(page.rows, addresses_of(user, page.rows), strict=True)
        ],
        "listed": "Notifications",
        "pager": pager(request, page.next),
    }
    return render(request, "pages/requests/notifications.html", context)


@require_POST
@login_required
def notifications_done(request: HttpRequest) -> HttpResponse:
    """Mark one as read, or all (POST)."""
    user: Any = request.user
    try:
        one = UUID(request.POST["notification"]) if "notification" in request.POST else None
    except ValueError:
        return redirect("notifications")
    notifications_read(user=user, now=timezone.now(), notification_id=one)
    return redirect("notifications")


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def choices(request: HttpRequest) -> HttpResponse:
    """Choose what one is told, and how."""
    user: Any = request.user
    form = NoticeChoicesForm(request.POST if request.method == "POST" else None, off=user.notices_off)
    return render_action(
        request,
        form,
        lambda _: notices_choose(actor=actor_of(request), user=user, wanted=form.wanted()),
        title="What you are told",
        submit="Save",
        done="Saved.",
        back=reverse("notifications"),
        template="pages/form.html",
        intro="E-mail goes out where a mail server is configured. What changes about how you sign in is always told.",
        crumbs=[{"text": "Notifications", "url": reverse("notifications")}],
    )
