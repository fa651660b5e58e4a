"""Tenants, memberships and workspaces in the console."""

from __future__ import annotations

from typing import Any

import yaml
from django import forms
from django.contrib import admin
from django.contrib.admin.helpers import ActionForm
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from portal.admin.translating import ServiceBackedAdmin, actor, confirmed, lines
from portal.pages import labels, progress
from tenants import services
from tenants.models import Lock, Membership, Operation, Role, Tenant, Workspace
from tenants.quotas import stored_use, tenant_quota


class ReasonActionForm(ActionForm):
    """A reason next to the actions: suspending needs one."""

    reason = forms.CharField(required=False, max_length=512, widget=forms.TextInput(attrs={"placeholder": "Reason"}))


@admin.register(Tenant)
class TenantAdmin(ServiceBackedAdmin):
    """Created and ended by the services, as by kubectl (TS1)."""

    list_display = ("name", "display_name", "state", "created_at")
    list_filter = ("state",)
    search_fields = ("name__startswith",)
    ordering = ("name",)
    readonly_fields = ("quota", "state", "suspended_reason", "suspended_at", "suspended_by", "created_at")
    actions = ("suspend", "resume")
    action_form = ReasonActionForm

    @admin.display(description="Quota")
    def quota(self, tenant: Tenant) -> str:
        """What the tenant may hold and what it holds, and the way to change it (AD1)."""
        if not tenant.pk:
            return "-"
        found = tenant_quota(tenant.name)
        said = [f"{name}: {found.used.get(name, '0')} of {hard} used" for name, hard in sorted(found.hard.items())]
        said += [f"{name}: more than allowed, nothing more is admitted" for name in sorted(found.beyond)]
        hard, used = stored_use(tenant.name).amounts
        said += [f"{name}: {used[name]} of {hard[name]} used" for name in hard]
        link = reverse("tenant-quota-change", args=[tenant.name])
        return format_html('{}<a href="{}">Change quota</a>', lines("\n".join(said)), link)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Allowed; the service decides about the object itself."""
        return self.may_change(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """By the service, all but the operators' own tenant."""
        return self.may_change(request) and (obj is None or obj.name != "system")

    def save_model(self, request: HttpRequest, obj: Tenant, form: Any, change: bool) -> None:
        """Create the tenant by the service, its space with it."""
        services.tenant_create(actor=actor(request), name=obj.name, display_name=obj.display_name)

    def delete_model(self, request: HttpRequest, obj: Tenant) -> None:
        """Begin to delete the tenant; workers end what is in it."""
        services.tenant_delete(actor=actor(request), name=obj.name)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Workers delete what is in it; nothing is protected."""
        return [f"{obj} and everything in it" for obj in objs], {}, set(), []

    @admin.action(description="Suspend (give a reason)")
    @confirmed("Suspend these tenants?")
    def suspend(self, request: HttpRequest, rows: QuerySet[Tenant]) -> None:
        """Suspend the chosen tenants, with the reason that was given (GW5)."""
        reason = request.POST.get("reason", "")
        who = actor(request)
        self.each(
            request, rows, lambda row: services.tenant_suspend(actor=who, name=row.name, reason=reason), "Suspended"
        )

    @admin.action(description="Resume")
    @confirmed("Resume these tenants?")
    def resume(self, request: HttpRequest, rows: QuerySet[Tenant]) -> None:
        """Resume the chosen tenants."""
        who = actor(request)
        self.each(request, rows, lambda row: services.tenant_resume(actor=who, name=row.name), "Resumed")


@admin.register(Membership)
class MembershipAdmin(ServiceBackedAdmin):
    """Who is in which tenant; the last owner stays."""

    list_display = ("tenant", "user", "role", "created_at")
    list_filter = ("role",)
    list_select_related = ("tenant", "user")
    search_fields = ("tenant__name__startswith", "user__email__istartswith")
    autocomplete_fields = ("tenant", "user")
    ordering = ("tenant_id", "pk")

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
        """Person and tenant of a membership cannot be changed, only the role."""
        return ("tenant", "user") if obj else ()

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        """Set the role by the service, which keeps the last owner."""
        made = services.membership_set(actor=actor(request), tenant=obj.tenant_id, user=obj.user, role=Role(obj.role))
        obj.pk = made.pk

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        """End the membership by the service, its credentials with it."""
        services.membership_remove(actor=actor(request), tenant=obj.tenant_id, user=obj.user)


@admin.register(Workspace)
class WorkspaceAdmin(ServiceBackedAdmin):
    """To read, and the kill switch (GW5)."""

    list_display = ("name", "tenant", "user", "cluster", "status", "phase", "k8s_namespace", "created_at")
    list_filter = ("status", "phase")
    list_select_related = ("tenant", "user", "cluster")
    search_fields = ("name__startswith", "k8s_namespace__startswith", "tenant__name__startswith")
    ordering = ("-created_at", "-id")
    exclude = ("saved_bindings", "service_accounts", "receipt")
    readonly_fields = ("accounts", "proofs", "bindings")
    actions = ("suspend", "resume")
    action_form = ReasonActionForm

    @admin.display(description="Service accounts")
    def accounts(self, workspace: Workspace) -> str:
        """The names and UIDs of the workspace's service accounts."""
        return lines("\n".join(f"{name}  {uid}" for name, uid in workspace.service_accounts.items()))

    @admin.display(description="Role bindings that a suspension took away")
    def bindings(self, workspace: Workspace) -> str:
        """As they were, to be applied by hand where the cluster refused to take them back, with what it said."""
        return lines(yaml.safe_dump_all(workspace.saved_bindings) if workspace.saved_bindings else "")

    @admin.display(description="Receipt")
    def proofs(self, workspace: Workspace) -> str:
        """The receipt of the suspension: each layer, and when it was verified."""
        return lines(progress.receipt_text(workspace))

    @admin.action(description="Suspend (give a reason)")
    @confirmed("Suspend these workspaces?")
    def suspend(self, request: HttpRequest, rows: QuerySet[Workspace]) -> None:
        """Suspend the chosen workspaces, with the reason that was given (GW5)."""
        reason = request.POST.get("reason", "")
        who = actor(request)
        self.each(
            request,
            rows,
            lambda row: services.workspace_suspend(actor=who, workspace_id=row.pk, reason=reason),
            "Suspended",
        )

    @admin.action(description="Resume")
    @confirmed("Resume these workspaces?")
    def resume(self, request: HttpRequest, rows: QuerySet[Workspace]) -> None:
        """Resume the chosen workspaces; credentials from before stay dead (P5)."""
        who = actor(request)
        self.each(request, rows, lambda row: services.workspace_resume(actor=who, workspace_id=row.pk), "Resumed")


@admin.register(Operation)
class OperationAdmin(ServiceBackedAdmin):
    """The queue of operations, to read: what is to be done for which workspace, and how it stands."""

    list_display = ("workspace", "desired", "generation", "state", "step", "attempts", "error", "created_at")
    exclude = ("steps_done",)
    readonly_fields = ("done",)
    list_filter = ("state", "desired")
    list_select_related = ("workspace",)
    ordering = ("-created_at", "-id")

    @admin.display(description="Steps done")
    def done(self, operation: Operation) -> str:
        """The steps that are done, with the seconds that each took."""
        steps = progress.steps_of(operation.steps_done, since=operation.created_at)
        return lines("\n".join(f"{step.took:>9}  {labels.step_name(step.name)}: {step.note}" for step in steps))


@admin.register(Lock)
class LockAdmin(ServiceBackedAdmin):
    """Which spaces and namespaces are suspended, and why; to read."""

    list_display = ("space", "namespace", "reason", "created_at")
    search_fields = ("space__startswith",)
    ordering = ("space", "namespace")
