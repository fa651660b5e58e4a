"""Credentials: kubeconfigs for a workspace and for a whole tenant, shown once, and their end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from access.credentials import (
    credential_revoke,
    credential_roles,
    kubeconfig_issue,
    logins,
    tenant_kinds,
    tenant_kubeconfig_issue,
)
from access.credentials.portaltokens import plugin_installation
from access.credentials.selectors import credential_visible_to, credentials_of_person
from access.credentials.warnings import ends_soon
from access.models import Credential, Login
from kube.requests.status import StatusError
from portal.http.actors import actor_of
from portal.pages import labels
from portal.pages.credentialforms import KubeconfigForm, TenantKubeconfigForm
from portal.pages.forms import EmptyForm, add_status_error
from portal.views.actions import form_status, render_action
from tenants import selectors
from tenants.models import CredentialKind, Role, Workspace
from tenants.rights import role_of

_ONCE = (
    "A token in it ends after two hours at most; there is no renewal.",
    "It is stored nowhere. What is issued is recorded: to whom, when, from where.",
    "You can revoke it before it ends.",
)


@require_safe
@login_required
def credentials(request: HttpRequest) -> HttpResponse:
    """My machines that are signed in, and what was issued to me."""
    user: Any = request.user
    now = timezone.now()
    machines = [machine_row(row, logins.login_lives(row, now=now)) for row in logins.logins_of(user)]
    issued = [credential_row(row) for row in credentials_of_person(actor_of(request))]
    return render(request, "pages/credentials/list.html", {"machines": machines, "credentials": issued})


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def workspace_kubeconfig(request: HttpRequest, pk: UUID) -> HttpResponse:
    """Issue a kubeconfig by POST and show it once (GW3); a GET only asks."""
    actor = actor_of(request)
    found = selectors.workspace_visible_to(actor, pk)
    back = reverse("workspace", args=[found.pk])
    form = KubeconfigForm(
        request.POST or None,
        kinds=found.cluster.credential_kinds,
        roles=credential_roles(role_of(actor, found.tenant_id) or Role.VIEWER),
    )
    if request.method == "POST" and form.is_valid():
        try:
            wanted = {**form.cleaned_data, "minutes": form.cleaned_data["minutes"] or 0}
            issued = kubeconfig_issue(actor=actor, workspace_id=found.pk, **wanted, now=timezone.now())
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            return _shown(
                request,
                yaml=issued.yaml,
                credentials=[issued.credential] if issued.credential else [],
                about=found.name,
                filename=f"{found.tenant_id}-{found.name}.kubeconfig",
                back=back,
                crumbs=workspace_crumbs(found),
            )
    context = {
        "form": form,
        "title": f"Kubeconfig for {found.name}",
        "submit": "Issue kubeconfig",
        "back": back,
        "texts": [f"kubectl will work in the namespace {found.k8s_namespace} and nowhere else."],
        "points": _ONCE,
        "crumbs": workspace_crumbs(found),
    }
    return render(request, "pages/action.html", context, status=form_status(request, form))


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def tenant_kubeconfig(request: HttpRequest, name: str) -> HttpResponse:
    """Issue one file for everything that a tenant has by POST and show it once; a GET only asks."""
    actor = actor_of(request)
    found = selectors.tenant_visible_to(actor, name)
    back, crumbs = reverse("tenant", args=[name]), _tenant_crumbs(name)
    form = TenantKubeconfigForm(request.POST or None, kinds=tenant_kinds())
    if request.method == "POST" and form.is_valid():
        try:
            issued = tenant_kubeconfig_issue(
                actor=actor, tenant=found.name, kind=form.cleaned_data["kind"], now=timezone.now()
            )
        except StatusError as error:
            add_status_error(request, form, error)
        else:
            return _shown(
                request,
                yaml=issued.yaml,
                credentials=issued.credentials,
                missing=issued.missing,
                about=name,
                filename=f"{name}.kubeconfig",
                back=back,
                crumbs=crumbs,
            )
    context = {
        "form": form,
        "title": f"Kubeconfig for all of {name}",
        "submit": "Issue kubeconfig",
        "back": back,
        "texts": [
            "One file with a context for each workspace and each namespace of its space, with all the rights of your role.",
            "What is not ready, or suspended, is left out, and named beside the file.",
        ],
        "points": _ONCE,
        "crumbs": crumbs,
    }
    return render(request, "pages/action.html", context, status=form_status(request, form))


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def credential_end(request: HttpRequest, credential: str) -> HttpResponse:
    """Confirm and revoke one credential that the caller may see."""
    actor = actor_of(request)
    row = credential_visible_to(actor, credential)
    direct = row.kind == CredentialKind.DIRECT
    place = reverse("workspace", args=[row.workspace_id]) if row.workspace else reverse("tenant", args=[row.tenant_id])
    return render_action(
        request,
        EmptyForm(request.POST),
        lambda _: credential_revoke(actor=actor, jti=credential, now=timezone.now()),
        title="Revoke this credential",
        submit="Revoke",
        done=f"The credential is revoked; it is refused within {'ten seconds' if direct else 'a second'}.",
        back=place,
        texts=[f"It was issued to {row.issued_to.email} from {row.ip_address or 'an unknown address'}. Others stay."],
        crumbs=workspace_crumbs(row.workspace) if row.workspace else _tenant_crumbs(row.tenant_id),
        destroys=True,
    )


def machine_row(row: Login, lives: bool) -> dict[str, Any]:
    """A machine as the page lists it."""
    return {
        "name": row.machine or "without a name",
        "ip_address": row.ip_address or "an unknown address",
        "last_used_at": row.last_used_at,
        "ends_at": logins.login_end(row) if lives else row.revoked_at,
        "state": labels.State(labels.ALLOW, "Signed in") if lives else labels.State(labels.PASS, "Ended"),
        "end_url": reverse("login-revoke", args=[row.pk]) if lives else "",
    }


def credential_row(row: Credential, *, revocable: bool = True) -> dict[str, Any]:
    """A credential as pages list it, for whoever may revoke it or for whoever only looks."""
    now = timezone.now()
    if row.failed_at:
        state = labels.State(labels.DENY, "Not issued")
    elif row.revoked_at:
        state = (
            labels.State(labels.DENY, "Revoked")
            if row.revocation_confirmed_at
            else labels.State(labels.WAIT, "Being revoked")
        )
    elif row.expires_at is None:
        state = labels.State(labels.WAIT, "Being issued")
    elif row.expires_at <= now:
        state = labels.State(labels.PASS, "Ended")
    elif ends_soon(row.issued_at, row.expires_at, now=now):
        state = labels.State(labels.WAIT, "Ends soon")
    else:
        state = labels.State(labels.ALLOW, "Works")
    return {
        "issued_to": row.issued_to.email,
        "role": row.role,
        "way": row.get_kind_display(),
        "jti": row.jti or "",
        "ip_address": row.ip_address,
        "issued_at": row.issued_at,
        "ends_at": row.revoked_at or row.expires_at,
        "state": state,
        "revocable": revocable and state.text in {"Works", "Ends soon"},
        "revoke_url": reverse("credential-revoke", args=[row.jti or row.pk]),
    }


def _shown(
    request: HttpRequest,
    *,
    yaml: str,
    credentials: Sequence[Credential],
    about: str,
    filename: str,
    back: str,
    crumbs: list[dict[str, str]],
    missing: Sequence[tuple[Workspace | None, str]] = (),
) -> HttpResponse:
    """The only page that ever holds the file, if there is a secret in it."""
    until = min((row.expires_at for row in credentials if row.expires_at), default=None)
    context = {
        "about": about,
        "kubeconfig": yaml,
        "filename": filename,
        "credential_ids": [row.jti for row in credentials],
        "missing": " ".join(f"{workspace.name}: {why}" if workspace else why for workspace, why in missing),
        "systems": _systems(filename),
        "ends_text": f"It works until {until:%H:%M} UTC" if until else "",
        "install": "" if until else plugin_installation(),
        "back": back,
        "crumbs": crumbs,
    }
    return render(request, "pages/workspaces/kubeconfig.html", context)


def _tenant_crumbs(name: str) -> list[dict[str, str]]:
    return [
        {"text": "Tenants", "url": reverse("tenants")},
        {"text": name, "url": reverse("tenant", args=[name])},
    ]


def workspace_crumbs(found: Workspace) -> list[dict[str, str]]:
    """The way back from what is done with a workspace."""
    return [
        {"text": "Workspaces", "url": reverse("workspaces")},
        {"text": found.name, "url": reverse("workspace", args=[found.pk])},
    ]


def _systems(filename: str) -> list[dict[str, str]]:
    """What to do with the file on each system, downloaded or copied.

    What is copied is fed to the shell, which keeps in its history what it is told.
    """
    return [
        {
            "id": "posix",
            "name": "Linux and macOS",
            "downloaded": f'chmod 600 ~/Downloads/{filename} && export KUBECONFIG="$HOME/Downloads/{filename}"',
            "copied": f'(umask 077; cat > {filename}) && export KUBECONFIG="$PWD/{filename}"',
            "how": "Run this, paste the copied file, press Enter and Ctrl-D.",
        },
        {
            "id": "windows",
            "name": "Windows (PowerShell)",
            "downloaded": f'$Env:KUBECONFIG = "$HOME\\Downloads\\{filename}"',
            "copied": f'Get-Clipboard -Raw | Set-Content -NoNewline {filename}; $Env:KUBECONFIG = "$PWD\\{filename}"',
            "how": "Copy the file, then run this.",
        },
    ]
