"""A person's page, for operators and auditors: all that opens anything for them, and the end of it (GW8, RV-11)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from access.credentials import logins
from access.credentials.selectors import credentials_issued_to
from access.credentials.tokens import tokens_of
from kube.requests.status import NotFound, StatusError
from portal.admin.places import console_of
from portal.http.actors import actor_of
from portal.pages.accountforms import AddressForm, RightsForm
from portal.pages.browsers import browser_name
from portal.pages.forms import ConfirmForm, EmptyForm, add_status_error
from portal.signin import accounts, factors
from portal.signin.ranks import may_change, person_named
from portal.signin.sessions import session_end, session_of, sessions_of
from portal.views.accounts.mine import session_row
from portal.views.actions import form_status, render_action
from portal.views.credentials import credential_row, machine_row
from portal.views.people import token_state
from tenants.models import User
from tenants.rights import require_operator


@require_safe
@login_required
def user(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Who it is, where they are a member, what was issued to them, and where they are signed in."""
    actor, now = actor_of(request), timezone.now()
    person = person_named(actor, pk)
    found = [session_row(row) for row in sessions_of(person, now=now)]
    may = may_change(actor, person)
    for row in found:
        row["end_url"] = reverse("user-session-end", args=[pk, row["id"]]) if may else ""
    machines = [machine_row(row, logins.login_lives(row, now=now)) for row in logins.logins_of(person)]
    tokens = tokens_of(person)
    credentials = [credential_row(row, revocable=actor.operator) for row in credentials_issued_to(actor, person)]
    used = [row["last_used_at"] for row in (*found, *machines)] + [token.last_used_at for token in tokens]
    context = {
        "person": person,
        "console": console_of(actor, person),
        "kind": kind_of(person),
        "may": may,
        "myself": person.pk == actor.user_id,
        "view_as": may and person.is_active and person.pk != actor.user_id,
        "memberships": person.memberships.order_by("tenant_id")[:100],
        "sessions": found,
        "machines": machines if actor.operator else [{**row, "end_url": ""} for row in machines],
        "tokens": [{"row": token, "state": token_state(token)} for token in tokens],
        "credentials": credentials,
        "factor": factors.factor_of(person),
        "passkeys": person.passkeys.count(),
        "codes_left": factors.codes_left(person),
        "last_used_at": max((moment for moment in used if moment is not None), default=person.last_login),
        # An operator's before those that anybody asks for.
        "link": person.password_resets.filter(ended_at=None, expires_at__gt=now).order_by("-made_by").first(),
    }
    return render(request, "pages/accounts/user.html", context)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def user_end(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm, and end all access of a person at once; what was ended stands on the page that follows."""
    actor = actor_of(request)
    require_operator(actor)
    person = person_named(actor, pk)
    form = ConfirmForm(request.POST or None, expected=person.email)
    context: dict[str, Any] = {"back": reverse("user", args=[pk]), "crumbs": _crumbs(person), "person": person}
    if request.method == "POST" and form.is_valid():
        try:
            ended, entry = accounts.access_end(actor=actor, user_id=pk)
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            return render(request, "pages/accounts/ended.html", {**context, "ended": ended, "entry": entry})
    context |= {
        "form": form,
        "title": f"End all access of {person.email}",
        "submit": "End all access",
        "texts": ["At once, and all of it:"],
        "points": [
            "the account is disabled: no sign-in, by password or by single sign-on",
            "sessions in browsers, and machines that are signed in for kubectl",
            "personal access tokens, credentials, and links for a new password",
        ],
        "warning": "What the person has made stays, and so do memberships: enabled again, the account has its roles.",
        "destroys": True,
    }
    return render(request, "pages/action.html", context, status=form_status(request, form))


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def user_rights(request: HttpRequest, pk: UUID) -> HttpResponse:
    """What the account is on the platform: a user, an auditor or an operator. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    person = person_named(actor, pk)
    return render_action(
        request,
        RightsForm(request.POST or None, initial={"kind": _rank(person)}),
        lambda data: accounts.user_change(
            actor=actor, user_id=pk, is_staff=data["kind"] == "operator", is_auditor=data["kind"] == "auditor"
        ),
        title=f"Rights of {person.email}",
        submit="Set",
        done="The rights are changed; they count from the next request on.",
        back=reverse("user", args=[pk]),
        crumbs=_crumbs(person),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def user_address(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Another e-mail address for an account. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    person = person_named(actor, pk)
    texts = [
        "They sign in by it from now on, and roles in spaces that name the old address are not theirs any more.",
        "Links for a new password end; sessions, credentials and memberships stay.",
        "Where mail for the old address may have gone to somebody else, reset the password too.",
    ]
    if person.subject:
        texts.append(
            "The account is linked to the provider: the address that this has verified is taken at each sign-in."
        )
    return render_action(
        request,
        AddressForm(request.POST or None),
        lambda data: accounts.address_change(actor=actor, user_id=pk, email=data["email"]),
        title=f"Change the address of {person.email}",
        submit="Change address",
        done="The address is changed.",
        back=reverse("user", args=[pk]),
        texts=texts,
        crumbs=_crumbs(person),
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def user_factor_remove(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Let somebody in without the phone that they have lost. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    person = person_named(actor, pk)
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: factors.factor_remove(actor=actor, user_id=pk),
        title=f"Remove the second factor of {person.email}",
        submit="Remove",
        done="No code is asked for any more.",
        back=reverse("user", args=[pk]),
        texts=["Passkeys go too: the password alone opens the account then. Be sure that it is the person who asks."],
        crumbs=_crumbs(person),
        destroys=True,
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def user_session_end(request: HttpRequest, pk: UUID, session: UUID) -> HttpResponse:
    """End one session of somebody else's. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    found = session_of(actor, session)
    if found.user_id != pk:
        raise NotFound("There is no such session.", kind="sessions")
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: session_end(actor=actor, session_id=session, now=timezone.now()),
        title=f"End the session in {browser_name(found.user_agent)}",
        submit="End session",
        done="The session is over.",
        back=reverse("user", args=[pk]),
        texts=["Machines that were signed in for kubectl from it are signed out too."],
        crumbs=_crumbs(found.user),
        destroys=True,
    )


def kind_of(person: User) -> str:
    """What an account is on the platform, in a word."""
    if person.is_superuser:
        return "Superuser"
    return {"operator": "Operator", "auditor": "Auditor", "user": "User"}[_rank(person)]


def _rank(person: User) -> str:
    if person.is_staff:
        return "operator"
    return "auditor" if person.is_auditor else "user"


def _crumbs(person: User) -> list[dict[str, str]]:
    return [
        {"text": "Users", "url": reverse("users")},
        {"text": person.email, "url": reverse("user", args=[person.pk])},
    ]
