"""Invitations by link: made and ended by those who may add members, used once by whom they are for (GW14)."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables
from django.views.decorators.http import require_http_methods, require_safe

from kube.requests.status import NotFound, StatusError
from portal.database.scopes import everything
from portal.http.actors import actor_of
from portal.pages.forms import EmptyForm, InvitationForm, JoinForm, add_status_error
from portal.signin import accounts, attempts
from portal.signin.oidc.provider import configured, provider_name
from portal.views.actions import form_status, render_action
from tenants import selectors, services
from tenants.models import Invitation, Role, User
from tenants.rights import require_role
from tenants.services.invitations import digest_of, invitation_that_counts, invitations_waiting

_OPENED: Final = "invitation"
"""Where a session keeps the digest of the link that was opened in it."""


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def member_invite(request: HttpRequest, name: str) -> HttpResponse:
    """The form, and the link, which is shown this once: its secret is stored nowhere."""
    actor = actor_of(request)
    selectors.tenant_visible_to(actor, name)
    require_role(actor, name, Role.ADMIN)
    form = InvitationForm(request.POST or None)
    crumbs = [
        {"text": "Tenants", "url": reverse("tenants")},
        {"text": name, "url": reverse("tenant", args=[name])},
        {"text": "Members", "url": reverse("members", args=[name])},
    ]
    if request.method == "POST" and form.is_valid():
        try:
            made = services.invitation_create(actor=actor, tenant=name, now=timezone.now(), **form.cleaned_data)
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            link = request.build_absolute_uri(reverse("join-by", args=[made.secret]))
            context = {"link": link, "invitation": made.invitation, "back": reverse("members", args=[name])}
            return render(request, "pages/joining/created.html", {**context, "crumbs": crumbs})
    context = {
        "form": form,
        "title": f"Invite to {name}",
        "submit": "Make the link",
        "back": reverse("members", args=[name]),
        "crumbs": crumbs,
    }
    return render(request, "pages/action.html", context, status=form_status(request, form))


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def invitation_end(request: HttpRequest, name: str, pk: UUID) -> HttpResponse:
    """Confirm and revoke an invitation."""
    actor = actor_of(request)
    selectors.tenant_visible_to(actor, name)
    now = timezone.now()
    found = next((each for each in invitations_waiting(actor, name, now=now) if each.pk == pk), None)
    if found is None:
        raise NotFound("There is no such invitation.", kind="invitations")
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: services.invitation_revoke(actor=actor, tenant=name, invitation_id=pk, now=now),
        title=f"Revoke the invitation of {found.email}",
        submit="Revoke",
        done="The link does not work any more.",
        back=reverse("members", args=[name]),
        texts=[f"Whoever has the link cannot join {name} by it."],
        destroys=True,
    )


@sensitive_variables("secret", "digest")
@never_cache
@require_safe
@everything()  # who is invited is no member yet: the link says whose rows these are
def join_by(request: HttpRequest, secret: str) -> HttpResponse:
    """Open a link: the session remembers its digest, so that no address that is logged or followed has the secret."""
    digest = digest_of(secret)
    invitation_that_counts(digest, now=timezone.now())
    request.session[_OPENED] = digest
    return redirect("join")


@sensitive_variables("digest")
@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@everything()
def join(request: HttpRequest) -> HttpResponse:
    """What somebody is invited to; accepted by the account of that address, or by a new one with a password.

    ``NotFound`` for a link that counts no more, whoever comes with it.
    """
    now = timezone.now()
    digest = str(request.session.get(_OPENED, ""))
    found = invitation_that_counts(digest, now=now)
    person = User.objects.filter(email__same=found.email).first()
    mine = person is not None and person.pk == request.user.pk
    sent = request.POST if request.method == "POST" and (mine or not _is_somebody(request, person)) else None
    form: Any = (JoinForm if person is None else EmptyForm)(sent)
    if form.is_valid():
        try:
            user = person or accounts.user_join(request, digest=digest, now=now, **form.cleaned_data)
            if person is not None:
                services.invitation_accept(actor=actor_of(request), user=person, digest=digest, now=now)
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            request.session.pop(_OPENED, None)
            answer = redirect("tenant", found.tenant_id)
            if person is None:
                accounts.come_in(request, user)
                attempts.remember_device(request, answer, user)
            messages.success(request, f"Welcome to {found.tenant_id}.", extra_tags="allow")
            return answer
    return _page(request, found, form, person=person, mine=mine)


def _is_somebody(request: HttpRequest, person: User | None) -> bool:
    """Whether an account is there already, signed in or behind the address: a new one is made for nobody else."""
    return request.user.is_authenticated or person is not None


def _page(request: HttpRequest, found: Invitation, form: Any, *, person: User | None, mine: bool) -> HttpResponse:
    provider = provider_name() if configured() is not None else ""
    context = {
        "invitation": found,
        "form": form,
        "mine": mine,
        "new": person is None,
        "somebody_else": request.user.is_authenticated and not mine,
        "provider": provider,
        "here": request.path,
    }
    return render(request, "pages/joining/join.html", context, status=form_status(request, form))
