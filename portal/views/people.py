"""What is one's own: access tokens, password, the look; and, for operators, everybody's accounts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.contrib import auth, messages
from django.contrib.auth.decorators import login_required
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from access.credentials import token_create, token_revoke
from access.credentials.tokens import token_of, tokens_of
from access.credentials.warnings import ends_soon
from access.models import PersonalAccessToken
from audit.selectors import page_of
from kube.requests.status import NotFound, StatusError
from portal.bulk.deeds import SORTS
from portal.http.actors import actor_of
from portal.pages import labels
from portal.pages.accountforms import LaterTokenForm, StatusForm
from portal.pages.forms import AppearanceForm, EmptyForm, PasswordForm, TokenForm, UserForm, add_status_error
from portal.pages.lists import pager
from portal.pages.navigation import page
from portal.signin import accounts, attempts, factors, proofs
from portal.signin.oidc.provider import way_in
from portal.signin.passkeys import passkeys_of
from portal.signin.viewing import viewings_of
from portal.views.actions import form_status, render_action
from tenants import selectors
from tenants.models import Membership, User
from tenants.rights import require_operator

_YEAR = 365 * 86400


@require_safe
@login_required
def tokens(request: HttpRequest) -> HttpResponse:
    """The caller's personal access tokens, without the secrets."""
    user: Any = request.user
    now = timezone.now()
    rows = tokens_of(user)
    for row in rows:
        row.live = row.revoked_at is None and row.expires_at > now  # type: ignore[attr-defined]
        row.state = token_state(row)  # type: ignore[attr-defined]
    return render(request, "pages/tokens/list.html", {"rows": rows, "listed": "Tokens"})


@sensitive_post_parameters("old")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def token_new(request: HttpRequest) -> HttpResponse:
    """The form, and the new token's text, which is shown this once and stored nowhere.

    Whoever has not signed in just now says the present password; who has none signs in again.
    """
    actor = actor_of(request)
    user: Any = request.user
    recent = proofs.is_recent(request)
    if not recent and not user.has_usable_password():
        said = {"minutes": proofs.MINUTES, "single_sign_on": way_in(request.path), "back": reverse("tokens")}
        status = 200 if request.method in ("GET", "HEAD") else 403
        return render(request, "pages/sessions/again.html", said, status=status)
    mine = {tenant.name: tenant for tenant in selectors.tenants_open_to(actor).order_by("name")[:200]}
    kind = TokenForm if recent else LaterTokenForm
    form = kind(request.POST or None, tenants=list(mine), operator=actor.operator)
    if request.method == "POST" and form.is_valid():
        data, now = form.cleaned_data, timezone.now()
        try:
            if not recent:
                proofs.require_password(user, data["old"])
            minted = token_create(
                actor=actor,
                user=user,
                name=data["name"],
                scope=data["scope"],
                now=now,
                expires_at=now + timedelta(days=data["days"]),
                tenant=mine.get(data["tenant"]),
            )
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            url = request.build_absolute_uri("/api/v1/workspaces/")
            # Neither the shell's history nor the list of processes shows a token that is read from the terminal.
            example = f'read -rs TENANTRY_TOKEN  # paste it, press Enter\ncurl -H @- {url} <<< "Authorization: Bearer $TENANTRY_TOKEN"'
            context = {"token": minted.text, "name": data["name"], "example": example}
            return render(request, "pages/tokens/created.html", context)
    context = {
        "form": form,
        "title": "New access token",
        "submit": "Create token",
        "back": reverse("tokens"),
        "crumbs": [{"text": "Access tokens", "url": reverse("tokens")}],
    }
    return render(request, "pages/action.html", context, status=form_status(request, form))


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def token_end(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm and revoke one of the caller's tokens."""
    token = token_of(request.user, pk)  # type: ignore[arg-type]
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: token_revoke(actor=actor_of(request), token_id=pk, now=timezone.now()),
        title=f"Revoke {token.name}",
        submit="Revoke",
        done="The token does not work any more.",
        back=reverse("tokens"),
        texts=["Scripts that use it stop working with their next request."],
        crumbs=[{"text": "Access tokens", "url": reverse("tokens")}],
        destroys=True,
    )


@require_safe
@login_required
def profile(request: HttpRequest) -> HttpResponse:
    """The caller's own page: theme, density, password, memberships."""
    return _profile(request, PasswordForm())


@require_POST
@login_required
def appearance(request: HttpRequest) -> HttpResponse:
    """Keep theme and density in cookies of this browser (POST)."""
    form = AppearanceForm(request.POST)
    response = redirect("profile")
    if form.is_valid():
        for name, value in form.cleaned_data.items():
            # Read by the theme switch too, hence not HttpOnly; it holds one word of a fixed list.
            response.set_cookie(name, value, max_age=_YEAR, samesite="Lax", secure=request.is_secure())
        messages.success(request, "Saved.", extra_tags="allow")
    return response


@sensitive_post_parameters("old", "password")
@require_POST
@login_required
def password(request: HttpRequest) -> HttpResponse:
    """Change the password; other sessions end, this one goes on under a new key."""
    form = PasswordForm(request.POST)
    user: Any = request.user
    if form.is_valid():
        try:
            attempt = attempts.present_password(user)
            if not user.check_password(form.cleaned_data["old"]):
                form.add_error("old", "This is not your present password.")
            else:
                attempt.succeeded()
                accounts.password_change(
                    actor=actor_of(request),
                    user=user,
                    password=form.cleaned_data["password"],
                    keep=str(request.session.session_key),
                )
                auth.update_session_auth_hash(request, user)
                left = accounts.left_after(user)
                said = f"The password is changed; your other sessions are over{left}."
                messages.success(request, said, extra_tags="wait" if left else "allow")
                return redirect(f"{reverse('profile')}#passkeys" if left else "profile")
        except StatusError as error:
            add_status_error(request, form, error)
    return _profile(request, form, status=422)


@require_safe
@login_required
def users(request: HttpRequest) -> HttpResponse:
    """Everybody, newest first. Operators and auditors."""
    actor = actor_of(request)
    query = request.GET.get("q", "").strip()[:128]
    found = page_of(selectors.people_found(actor, search=query), request.GET.get("after", ""), 50)
    # Of the page alone: joined to everybody it would be counted for everybody.
    of_page = Membership.objects.filter(user__in=[row.pk for row in found.rows]).values_list("user_id")
    counts = dict(of_page.annotate(Count("pk")))
    for row in found.rows:
        row.tenant_count = counts.get(row.pk, 0)  # type: ignore[attr-defined]
    context = {
        "rows": found.rows,
        "listed": "Users",
        "query": query,
        "deeds": SORTS["people"].deeds if actor.operator else {},
        "pager": pager(request, found.next),
    }
    return render(request, "pages/users/list.html", context)


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def user_new(request: HttpRequest) -> HttpResponse:
    """The form, and a new account. Operators only."""
    actor = actor_of(request)
    require_operator(actor)
    return render_action(
        request,
        UserForm(request.POST or None),
        lambda data: accounts.user_create(actor=actor, **data),
        title="New user",
        submit="Create user",
        done="The account is there. Add the person to a tenant next.",
        back=reverse("users"),
        crumbs=[{"text": "Users", "url": reverse("users")}],
    )


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def user_status(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Confirm and disable an account, its sessions and tokens with it, or enable it again. Operators only.

    Which of the two, the form says: pressed twice, or by two people at once, it is what was asked for.
    """
    actor = actor_of(request)
    require_operator(actor)
    person = User.objects.filter(pk=pk).first()
    if person is None:
        raise NotFound("There is no such user.", kind="users")
    asked = request.GET.get("status")
    if asked not in User.Status.values:
        asked = User.Status.DISABLED if person.is_active else User.Status.ACTIVE
    form = StatusForm(request.POST if request.method == "POST" else None, initial={"status": asked})
    disable = form["status"].value() == User.Status.DISABLED
    return render_action(
        request,
        form,
        lambda data: accounts.user_change(actor=actor, user_id=pk, status=data["status"]),
        title=f"{'Disable' if disable else 'Enable'} {person.email}",
        submit="Disable" if disable else "Enable",
        done=f"{person.email} is {'disabled' if disable else 'enabled'}.",
        back=reverse("users"),
        texts=[
            "The person cannot sign in; sessions and access tokens stop working at once."
            if disable
            else "The person may sign in again."
        ],
        crumbs=[{"text": "Users", "url": reverse("users")}],
        destroys=disable,
    )


def _profile(request: HttpRequest, form: PasswordForm, status: int = 200) -> HttpResponse:
    user: Any = request.user
    look = page(request)
    context = {
        "appearance": AppearanceForm(initial={"theme": look["theme"], "density": look["density"]}),
        "password": form if user.has_usable_password() else None,
        "factor": factors.factor_of(user),
        "passkeys": passkeys_of(user),
        "codes_left": factors.codes_left(user),
        "memberships": user.memberships.order_by("tenant_id")[:100],
        "viewings": viewings_of(user, now=timezone.now()),
    }
    return render(request, "pages/profile/profile.html", context, status=status)


def token_state(token: PersonalAccessToken) -> labels.State:
    """Whether a token works, in words."""
    if token.revoked_at:
        return labels.State(labels.DENY, "Revoked")
    if token.expires_at <= timezone.now():
        return labels.State(labels.PASS, "Ended")
    if ends_soon(token.created_at, token.expires_at, now=timezone.now()):
        return labels.State(labels.WAIT, "Ends soon")
    return labels.State(labels.ALLOW, "Works")
