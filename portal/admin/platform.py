"""Tiers, prices and clusters in the console."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Field, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from kube.quota.charges import Price
from portal.admin.translating import ServiceBackedAdmin, actor
from tenants import services
from tenants.charges import prices_all
from tenants.models import Cluster, CredentialKind, Tier, UsagePrice

_LISTS = ("limit_range",)
_RULES = ("policies", "request_limits")
_CHOICES = ("pod_security", "network", "recording", "approval")


@admin.register(Tier)
class TierAdmin(ServiceBackedAdmin):
    """Tiers: quotas, limits and fences of workspaces; a change reaches those that have it (GW2)."""

    list_display = ("name", "display_name", "workspaces_per_user", "is_available", "position")
    ordering = ("position", "name")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Allowed; the service decides about the object itself."""
        return self.may_change(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allowed; the service decides about the object itself."""
        return self.may_change(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allowed; the service decides about the object itself."""
        return self.may_change(request)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The name cannot be changed: workspaces refer to it."""
        return ("name",) if obj else ()

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Lists may be empty, which JSON fields take for nothing; what is not chosen stays as it is."""
        form = super().get_form(request, obj, change, **kwargs)
        for name in {*_LISTS, *_RULES, *_CHOICES} & set(form.base_fields):
            form.base_fields[name].required = False
        return form

    def save_model(self, request: HttpRequest, obj: Tier, form: Any, change: bool) -> None:
        """Create or change by the service, which checks and audits."""
        values = {**form.cleaned_data, **{name: form.cleaned_data[name] or [] for name in _LISTS}}
        values |= {name: form.cleaned_data[name] or {} for name in _RULES}
        values = {name: value for name, value in values.items() if value or name not in _CHOICES}
        if change:
            services.tier_change(actor=actor(request), name=obj.name, **values)
        else:
            services.tier_create(actor=actor(request), **values)

    def delete_model(self, request: HttpRequest, obj: Tier) -> None:
        """Delete by the service; ``Conflict`` while workspaces have it."""
        services.tier_delete(actor=actor(request), name=obj.name)


@admin.register(UsagePrice)
class UsagePriceAdmin(ServiceBackedAdmin):
    """What is charged for what tenants use (AD7)."""

    list_display = ("measure", "amount", "per", "since")
    ordering = ("measure",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Allowed; the service decides about the object itself."""
        return self.may_change(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allowed; the service decides about the object itself."""
        return self.may_change(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allowed; the service decides about the object itself."""
        return self.may_change(request)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """A price is known by its measure."""
        return ("measure",) if obj else ()

    def save_model(self, request: HttpRequest, obj: UsagePrice, form: Any, change: bool) -> None:
        """Set by the service, which checks and audits."""
        others = [price for price in prices_all() if price.measure != obj.measure]
        services.prices_change(
            actor=actor(request), prices=[*others, Price(obj.measure, obj.amount, obj.per)], now=timezone.now()
        )

    def delete_model(self, request: HttpRequest, obj: UsagePrice) -> None:
        """Leave it out of the prices."""
        others = [price for price in prices_all() if price.measure != obj.measure]
        services.prices_change(actor=actor(request), prices=others, now=timezone.now())


@admin.register(Cluster)
class ClusterAdmin(ServiceBackedAdmin):
    """Clusters; registered on the portal's page, the credential never shown (GW12)."""

    list_display = ("name", "kind", "server", "tenant_role", "is_default", "last_seen_at", "last_error")
    ordering = ("name",)
    fields = (
        "name",
        "kind",
        "server",
        "client_url",
        "ca_data",
        "tenant_role",
        "ingress_domain",
        "limits_events",
        "opened",
        "credential_kinds",
        "is_default",
        "last_error",
        "last_seen_at",
    )
    readonly_fields = ("name", "kind", "last_error", "last_seen_at")
    actions = ("connect",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Cluster]:
        """All columns but the encrypted credential, which is never loaded here."""
        return super().get_queryset(request).defer("sealed_credential")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """By the service: another server or CA wipes the credential (API-32)."""
        return self.may_change(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Allowed; the service decides about the object itself."""
        return self.may_change(request)

    def formfield_for_dbfield(self, db_field: Field[Any, Any], request: HttpRequest, **kwargs: Any) -> Any:
        """Kinds of credentials are ticked."""
        if db_field.name != "credential_kinds":
            return super().formfield_for_dbfield(db_field, request, **kwargs)
        widget = forms.CheckboxSelectMultiple
        return forms.MultipleChoiceField(choices=CredentialKind.choices, required=False, widget=widget)

    def save_model(self, request: HttpRequest, obj: Cluster, form: Any, change: bool) -> None:
        """Change by the service the fields that the form changed, and no other."""
        changed = {name: form.cleaned_data[name] for name in form.changed_data}
        services.cluster_change(actor=actor(request), name=obj.name, **changed)

    def delete_model(self, request: HttpRequest, obj: Cluster) -> None:
        """Delete by the service; ``Conflict`` while workspaces are on it."""
        services.cluster_delete(actor=actor(request), name=obj.name)

    @admin.action(description="Check the connection")
    def connect(self, request: HttpRequest, rows: QuerySet[Cluster]) -> None:
        """Connect now; what was found stands in the list."""
        who = actor(request)
        self.each(request, rows[:20], lambda row: services.cluster_check(actor=who, name=row.name), "Checked")
