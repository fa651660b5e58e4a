"""Accounts and their tokens in the console."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.forms import AdminPasswordChangeForm, SetPasswordMixin, SetUnusablePasswordMixin
from django.core.exceptions import PermissionDenied
from django.core.validators import MaxLengthValidator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.utils.html import format_html
from django.views.decorators.debug import sensitive_post_parameters

from access.credentials import credential_revoke, token_revoke
from access.models import Credential, PersonalAccessToken
from portal.admin.translating import ServiceBackedAdmin, actor, confirmed
from portal.signin import accounts
from tenants.models import User


class NewUserForm(SetUnusablePasswordMixin, SetPasswordMixin, forms.ModelForm):  # type: ignore[misc,type-arg]
    """An account with a first password, typed twice, or without one for single sign-on, said aloud."""

    usable_password = SetUnusablePasswordMixin.create_usable_password_field(
        "Without a password the account is opened by single sign-on alone; leave both fields below empty then."
    )
    password1, password2 = SetPasswordMixin.create_password_fields()

    class Meta:
        model = User
        fields = ("email", "name", "is_staff", "is_auditor")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("password1", "password2"):
            # Required unless the choice above says otherwise: the mixin sees to it.
            self.fields[name].required = False
            self.fields[name].validators.append(MaxLengthValidator(accounts.MAX_PASSWORD))

    def clean(self) -> dict[str, Any]:
        """Both passwords are there and alike, or neither."""
        super().clean()
        self.validate_passwords()
        if not self.cleaned_data["set_usable_password"] and (self.data.get("password1") or self.data.get("password2")):
            self.add_error("password1", "Leave the passwords empty, or let the account have one.")
        self.validate_password_for_user(
            User(email=self.cleaned_data.get("email", ""), name=self.cleaned_data.get("name", ""))
        )
        return self.cleaned_data


class NewPasswordForm(AdminPasswordChangeForm):  # type: ignore[type-arg]
    """A password for somebody else, typed twice."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Taking the password away is no part of this: a disabled account is disabled by its status.
        self.fields.pop("usable_password", None)
        for name in ("password1", "password2"):
            self.fields[name].required = True
            self.fields[name].validators.append(MaxLengthValidator(accounts.MAX_PASSWORD))


@admin.register(User)
class UserAdmin(ServiceBackedAdmin):
    """Accounts; hashes are never shown, and only superusers make superusers (API-23)."""

    list_display = ("email", "name", "status", "is_staff", "is_auditor", "is_superuser", "last_login", "created_at")
    list_filter = ("status", "is_staff", "is_auditor")
    search_fields = ("email__istartswith", "name__istartswith")
    ordering = ("-created_at", "-id")
    fields = (
        "email",
        "page_link",
        "password_link",
        "name",
        "status",
        "is_staff",
        "is_auditor",
        "is_superuser",
        "issuer",
        "subject",
        "last_login",
        "created_at",
    )
    add_fields = ("email", "name", "usable_password", "password1", "password2", "is_staff", "is_auditor")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Allowed; the service decides about the account itself."""
        return self.may_change(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allowed; the service decides about the account itself."""
        return self.may_change(request)

    def get_urls(self) -> list[Any]:
        """With Django's address for another's password."""
        view = self.admin_site.admin_view(self.user_change_password)
        return [path("<id>/password/", view, name="auth_user_password_change"), *super().get_urls()]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """New accounts have a form of their own."""
        if obj is None:
            kwargs["form"] = NewUserForm
            # The fields of the form that are none of the model's are the form's own.
            kwargs["fields"] = NewUserForm.Meta.fields
        return super().get_form(request, obj, change, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Those of the form; the way to another's password is for those who may go it."""
        if obj is None:
            return self.add_fields
        return tuple(name for name in self.fields if name != "password_link" or request.user.is_superuser)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The highest right, and whose sign-in at the provider opens the account, only superusers give."""
        if obj is None:
            return ()
        fixed = ("email", "page_link", "last_login", "created_at")
        return (*fixed, *(("password_link",) if request.user.is_superuser else ("is_superuser", "issuer", "subject")))

    @admin.display(description="In the portal")
    def page_link(self, user: User) -> str:
        """The person's page: sessions, tokens, credentials, and their end."""
        return format_html('<a href="{}">{}</a>', reverse("user", args=[user.pk]), "Sessions, access and password")

    @admin.display(description="Password")
    def password_link(self, user: User) -> str:
        """Whether there is one, and the way to another."""
        said = "Set." if user.has_usable_password() else "None: single sign-on alone opens this account."
        word = "Change the password" if user.has_usable_password() else "Set a password"
        return format_html(
            '{} <a href="{}">{}</a>', said, reverse("admin:auth_user_password_change", args=[user.pk]), word
        )

    @method_decorator(sensitive_post_parameters("password1", "password2"))
    def user_change_password(self, request: HttpRequest, id: str) -> HttpResponse:  # noqa: A002 - Django's name
        """Another password for somebody else's account; sessions, passkeys, second factor and tokens go.

        One's own is changed where the present one is asked for: a session that somebody has got hold of keeps no account.
        """
        if not request.user.is_superuser:
            raise PermissionDenied("Only superusers change other people's passwords.")
        user = self.get_object(request, unquote(id))
        if not isinstance(user, User):
            raise Http404
        if user.pk == request.user.pk:
            return HttpResponseRedirect(reverse("profile"))
        form = NewPasswordForm(user, request.POST or None)
        if request.method == "POST" and form.is_valid():
            accounts.password_change(
                actor=actor(request),
                user=user,
                password=form.cleaned_data["password1"],
            )
            self.message_user(request, "The password is changed.", messages.SUCCESS)
            return HttpResponseRedirect(reverse("admin:tenants_user_change", args=[user.pk]))
        context = {
            **self.admin_site.each_context(request),
            "title": f"Password of {user.email}",
            "form": form,
            "opts": self.opts,
            "original": user,
        }
        return TemplateResponse(request, "admin/auth/user/change_password.html", context)

    def save_model(self, request: HttpRequest, obj: User, form: Any, change: bool) -> None:
        """Create or change by the service, which checks and audits."""
        if change:
            changed = {name: form.cleaned_data[name] for name in form.changed_data}
            accounts.user_change(actor=actor(request), user_id=obj.pk, **changed)
        else:
            said = form.cleaned_data
            made = accounts.user_create(
                actor=actor(request),
                email=said["email"],
                name=said["name"],
                password=said["password1"] if said["set_usable_password"] else "",
                is_staff=said["is_staff"],
                is_auditor=said["is_auditor"],
            )
            obj.pk = made.pk


@admin.register(PersonalAccessToken)
class PersonalAccessTokenAdmin(ServiceBackedAdmin):
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
    @confirmed("Revoke these access tokens?")
    def revoke(self, request: HttpRequest, rows: QuerySet[PersonalAccessToken]) -> None:
        """Revoke the chosen tokens; they are refused from the next request on."""
        who = actor(request)
        self.each(request, rows, lambda row: token_revoke(actor=who, token_id=row.pk, now=timezone.now()), "Revoked")


@admin.register(Credential)
class CredentialAdmin(ServiceBackedAdmin):
    """Who was issued a kubeconfig and when, to read; operators may revoke."""

    list_display = (
        "jti",
        "kind",
        "tenant",
        "workspace",
        "issued_to",
        "role",
        "ip_address",
        "issued_at",
        "expires_at",
        "revoked_at",
    )
    list_select_related = ("tenant", "workspace", "issued_to")
    search_fields = ("jti__exact", "issued_to__email__istartswith")
    ordering = ("-issued_at", "-id")
    actions = ("revoke",)

    @admin.action(description="Revoke")
    @confirmed("Revoke these credentials?")
    def revoke(self, request: HttpRequest, rows: QuerySet[Credential]) -> None:
        """Revoke the chosen credentials one by one: each needs its cluster."""
        who = actor(request)
        self.each(
            request,
            rows.exclude(jti=None)[:50],
            lambda row: credential_revoke(actor=who, jti=row.jti, now=timezone.now()),
            "Revoked",
        )
