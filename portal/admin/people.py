"""Accounts and their tokens in the console."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from access.credentials import credential_revoke, token_revoke
from access.models import Credential, PersonalAccessToken
from portal import accounts
from portal.admin.translating import Translator, actor
from tenants.models import User


class NewUserForm(forms.ModelForm):  # type: ignore[type-arg]
    """An account with a first password, or without one for single sign-on."""

    password = forms.CharField(
        required=False, strip=False, max_length=accounts.MAX_PASSWORD, widget=forms.PasswordInput
    )

    class Meta:
        model = User
        fields = ("email", "name", "password", "is_staff")


@admin.register(User)
class UserAdmin(Translator):
    """Accounts; hashes are never shown, and only superusers make superusers (API-23)."""

    list_display = ("email", "name", "status", "is_staff", "is_superuser", "last_login", "created_at")
    list_filter = ("status", "is_staff")
    search_fields = ("email__istartswith", "name__istartswith")
    ordering = ("-created_at", "-id")
    fields = ("email", "name", "status", "is_staff", "is_superuser", "issuer", "subject", "last_login", "created_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """By the service."""
        return self.has_module_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """By the service."""
        return self.has_module_permission(request)

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """New accounts have a form of their own."""
        if obj is None:
            kwargs["form"] = NewUserForm
        return super().get_form(request, obj, change, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Those of the form."""
        return self.fields if obj else ("email", "name", "password", "is_staff")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Who one is comes from elsewhere; the highest right only superusers give."""
        if obj is None:
            return ()
        fixed = ("email", "issuer", "subject", "last_login", "created_at")
        return fixed if request.user.is_superuser else (*fixed, "is_superuser")

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Create or change."""
        if change:
            changed = {name: form.cleaned_data[name] for name in form.changed_data}
            accounts.user_change(actor=actor(request), user_id=obj.pk, **changed)
        else:
            made = accounts.user_create(actor=actor(request), **form.cleaned_data)
            obj.pk = made.pk


@admin.register(PersonalAccessToken)
class PersonalAccessTokenAdmin(Translator):
    """Tokens without their digests; operators may end them."""

    list_display = (
        "prefix",
        "user",
        "tenant",
        "name",
        "scope",
        "created_at",
        "expires_at",
        "last_used_at",
        "revoked_at",
    )
    list_filter = ("scope",)
    list_select_related = ("user", "tenant")
    search_fields = ("prefix__startswith", "user__email__istartswith")
    fields = ("prefix", "user", "tenant", "name", "scope", "created_at", "expires_at", "last_used_at", "revoked_at")
    ordering = ("-created_at", "-id")
    actions = ("revoke",)

    @admin.action(description="Revoke")
    def revoke(self, request: HttpRequest, rows: QuerySet[PersonalAccessToken]) -> None:
        """End them at once."""
        who = actor(request)
        self.each(request, rows, lambda row: token_revoke(actor=who, token_id=row.pk, now=timezone.now()), "Revoked")


@admin.register(Credential)
class CredentialAdmin(Translator):
    """Issued kubeconfigs as facts."""

    list_display = ("jti", "workspace", "issued_to", "role", "ip_address", "issued_at", "expires_at", "revoked_at")
    list_select_related = ("workspace", "issued_to")
    search_fields = ("jti__exact", "issued_to__email__istartswith")
    ordering = ("-issued_at", "-id")
    actions = ("revoke",)

    @admin.action(description="Revoke")
    def revoke(self, request: HttpRequest, rows: QuerySet[Credential]) -> None:
        """One by one, on their clusters."""
        who = actor(request)
        self.each(
            request,
            rows.exclude(jti=None)[:50],
            lambda row: credential_revoke(actor=who, jti=row.jti, now=timezone.now()),
            "Revoked",
        )
