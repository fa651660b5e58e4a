"""Forms: what people type, checked for shape; whether it may be done is decided by the services."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4, uuid5

from django import forms
from django.core.exceptions import ValidationError
from django.forms.renderers import TemplatesSetting
from django.http import HttpRequest

from access.models import PersonalAccessToken
from audit.models import Outcome
from kube.quota.storedbytes import MEBIBYTES_MAX
from kube.requests.status import StatusError
from portal.pages import labels
from portal.pages.navigation import DENSITIES, THEMES
from portal.signin.accounts import MAX_PASSWORD
from tenants.models import Approval, CredentialKind, Network, PodSecurity, RecordingMode, Role, Tier


class Renderer(TemplatesSetting):
    """Draws each field by the product's own component."""

    field_template_name = "components/forms/field.html"


def add_status_error(request: HttpRequest, form: forms.Form, error: StatusError) -> None:
    """Show a service's refusal at the fields that it names, the rest above the form; ``request`` remembers its code."""
    request.refused_with = error.code  # type: ignore[attr-defined]
    placed = False
    for cause in error.causes:
        name = cause.field.split("[")[0].rsplit(".", 1)[-1]
        if name in form.fields:
            form.add_error(name, cause.message)
            placed = True
    if not placed:
        form.add_error(None, error.message)


class SignInForm(forms.Form):
    """E-mail address and password."""

    username = forms.EmailField(
        label="E-mail address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
    )
    password = forms.CharField(
        max_length=MAX_PASSWORD, strip=False, widget=forms.PasswordInput(attrs={"autocomplete": "current-password"})
    )


class WorkspaceForm(forms.Form):
    """A new workspace."""

    name = forms.CharField(
        required=False,
        max_length=63,
        help_text="Lower-case letters, digits and dashes. Made up for you when empty.",
        widget=forms.TextInput(attrs={"placeholder": "payments-staging", "autocomplete": "off", "spellcheck": "false"}),
    )
    tenant = forms.ChoiceField()
    tier = forms.ChoiceField()
    once = forms.UUIDField(required=False, initial=uuid4, widget=forms.HiddenInput(attrs={"autocomplete": "off"}))

    @property
    def key(self) -> str:
        """The same for one form that is sent twice, another one for other words or a form opened anew (GW6)."""
        said = self.cleaned_data
        return str(uuid5(said["once"] or uuid4(), f"{said['tenant']}/{said['tier']}/{said['name']}"))

    def __init__(self, *args: Any, tenants: list[str], tiers: list[Tier], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["tenant"].choices = [(name, name) for name in tenants]  # type: ignore[attr-defined]
        self.fields["tier"].choices = [(tier.name, str(tier)) for tier in tiers]  # type: ignore[attr-defined]


class TierChoiceForm(forms.Form):
    """Another tier for a workspace."""

    tier = forms.ChoiceField()

    def __init__(self, *args: Any, tiers: list[Tier], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["tier"].choices = [(tier.name, str(tier)) for tier in tiers]  # type: ignore[attr-defined]


class EmptyForm(forms.Form):
    """A question that needs only a yes."""


class ReasonForm(forms.Form):
    """Why something is closed; people will read it."""

    reason = forms.CharField(
        max_length=512,
        help_text="Shown to the members and kept in the audit log.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class FreezeForm(ReasonForm):
    """Why, and until when."""

    until = forms.DateTimeField(
        required=False,
        label="Until",
        help_text="UTC. It ends then by itself; without, by an operator.",
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
    )


class SuspendForm(FreezeForm):
    """The same, and how far."""

    stop = forms.BooleanField(
        required=False,
        label="and stop everything",
        help_text="Pods end within 30 seconds, open shells and port-forwards with them, and none can begin. What owns "
        "them (Deployments, StatefulSets) brings them back on resume; pods without an owner are lost.",
    )


class EndForm(forms.Form):
    """When something ends by itself."""

    days = forms.TypedChoiceField(
        label="Ends in",
        coerce=int,
        initial=30,
        choices=[(7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "1 year"), (0, "It does not end")],
        help_text="Its people are warned a week and a day before.",
    )


class ConfirmForm(forms.Form):
    """The name, typed, of what is about to end."""

    name = forms.CharField(max_length=253, widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}))

    def __init__(self, *args: Any, expected: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.expected = expected
        self.fields["name"].label = f"Type {expected} to confirm"
        self.fields["name"].widget.attrs["data-confirm-name"] = expected

    def clean_name(self) -> str:
        """The name must be exactly the one."""
        if self.cleaned_data["name"] != self.expected:
            raise ValidationError("This is not the name.")
        return self.expected


class MemberForm(forms.Form):
    """Somebody who has an account, and as what."""

    email = forms.EmailField(label="E-mail address", max_length=254, help_text="The person needs an account already.")
    role = forms.ChoiceField(choices=Role.choices, initial=Role.EDITOR)


class InvitationForm(forms.Form):
    """Somebody who may join, as what, and until when."""

    email = forms.EmailField(
        label="E-mail address", max_length=254, help_text="Only somebody with this address can use the link."
    )
    role = forms.ChoiceField(choices=Role.choices, initial=Role.EDITOR)
    days = forms.TypedChoiceField(
        label="Counts for", coerce=int, initial=7, choices=[(1, "1 day"), (7, "7 days"), (30, "30 days")]
    )


class JoinForm(forms.Form):
    """The account of somebody who is invited and has none."""

    name = forms.CharField(
        required=False, max_length=128, label="Your name", widget=forms.TextInput(attrs={"autocomplete": "name"})
    )
    password = forms.CharField(
        strip=False,
        max_length=MAX_PASSWORD,
        help_text="At least 12 characters.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


class RoleForm(forms.Form):
    """A member's new role."""

    role = forms.ChoiceField(choices=Role.choices)


class TenantForm(forms.Form):
    """A new tenant."""

    name = forms.CharField(
        max_length=63,
        help_text="Lower-case letters, digits and dashes; it cannot be changed.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    display_name = forms.CharField(required=False, max_length=128)
    owner = forms.EmailField(
        required=False, max_length=254, label="Owner's e-mail address", help_text="The person needs an account already."
    )


class TokenForm(forms.Form):
    """A new personal access token."""

    name = forms.CharField(max_length=64, help_text="What it is for, so that you can tell it from others.")
    scope = forms.ChoiceField(choices=PersonalAccessToken.Scope.choices)
    tenant = forms.ChoiceField(required=False)
    days = forms.TypedChoiceField(
        label="Ends in",
        coerce=int,
        initial=30,
        choices=[(7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "1 year")],
    )

    def __init__(self, *args: Any, tenants: list[str], operator: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["tenant"].choices = [("", "All of my tenants"), *((name, name) for name in tenants)]  # type: ignore[attr-defined]
        if not operator:
            scopes = [
                choice for choice in PersonalAccessToken.Scope.choices if choice[0] != PersonalAccessToken.Scope.OPERATE
            ]
            self.fields["scope"].choices = scopes  # type: ignore[attr-defined]


class QuantitiesField(forms.CharField):
    """``resource: quantity``, one a line."""

    widget = forms.Textarea(attrs={"class": "mono", "rows": 8, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        """A mapping of what the lines say."""
        pairs = {}
        for line in (value or "").splitlines():
            if line.strip():
                resource, colon, quantity = line.rpartition(":")
                if not colon or not resource.strip():
                    raise ValidationError(f"“{line.strip()[:80]}” is not of the form resource: quantity.")
                pairs[resource.strip()] = quantity.strip()
        return pairs

    def validate(self, value: Any) -> None:
        """At least one."""
        if self.required and not value:
            raise ValidationError("Give at least one limit.")

    def run_validators(self, value: Any) -> None:
        """The service checks the quantities themselves."""

    def prepare_value(self, value: Any) -> Any:
        """The quantities as lines, as they are typed."""
        return "\n".join(f"{key}: {amount}" for key, amount in value.items()) if isinstance(value, dict) else value


class ListField(forms.CharField):
    """A JSON list."""

    widget = forms.Textarea(attrs={"class": "mono", "rows": 10, "spellcheck": "false"})

    def to_python(self, value: Any) -> Any:
        """The list that the text holds. Raises ``ValidationError`` for anything else."""
        try:
            parsed = json.loads(value or "[]")
        except (ValueError, RecursionError) as error:
            raise ValidationError("This is not JSON.") from error
        if not isinstance(parsed, list):
            raise ValidationError("A JSON list is needed.")
        return parsed

    def validate(self, value: Any) -> None:
        """An empty list is fine."""

    def run_validators(self, value: Any) -> None:
        """The service checks what is in it."""

    def prepare_value(self, value: Any) -> Any:
        """The list as indented JSON."""
        return json.dumps(value, indent=2) if isinstance(value, list) else value


class TenantQuotaForm(forms.Form):
    """What a tenant may hold."""

    hard = QuantitiesField(
        required=False,
        label="Quota",
        max_length=16_384,
        help_text="Amounts by resource name, one a line: <code>pods: 100</code>. What is not named is not bounded.",
    )


class TierForm(forms.Form):
    """A tier. Its name cannot be changed."""

    name = forms.CharField(max_length=63, help_text="Lower-case letters, digits and dashes; it cannot be changed.")
    display_name = forms.CharField(max_length=64)
    description = forms.CharField(required=False, max_length=256)
    quota = QuantitiesField(max_length=16_384, help_text="The hard limits, one a line: <code>requests.cpu: 4</code>")
    limit_range = ListField(
        required=False,
        label="Default limits",
        max_length=16_384,
        help_text="The <code>limits</code> of the LimitRange. Plain pods need defaults for cpu and memory.",
    )
    pod_security = forms.TypedChoiceField(
        required=False, choices=PodSecurity.choices, empty_value=PodSecurity.BASELINE, label="Pod security"
    )
    network = forms.TypedChoiceField(
        required=False,
        choices=Network.choices,
        empty_value=Network.TENANT,
        help_text="What pods reach, and who reaches them: the default NetworkPolicy.",
    )
    request_limits = QuantitiesField(
        required=False,
        label="Limits on requests",
        max_length=1024,
        help_text="What its tenants may ask of an API server, one a line, else as the server's flags say: "
        "<code>read_qps: 200</code>, <code>write_burst: 100</code>, <code>open_watches: 500</code>, "
        "<code>person_share: 50</code> (per cent of it for one person).",
    )
    stored_mebibytes = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MEBIBYTES_MAX,
        label="Stored mebibytes",
        help_text="What all objects of a tenant may take in the database, together; 0 is no bound, empty the server's default.",
    )
    recording = forms.TypedChoiceField(
        required=False,
        choices=RecordingMode.choices,
        empty_value=RecordingMode.OFF,
        label="Recorded of sessions in pods",
        help_text="Of commands, shells and attached terminals through Tenantry. What people type never is.",
    )
    proxies = forms.BooleanField(
        required=False,
        label="Proxy into pods and services",
        help_text="Opens <code>pods/proxy</code> and <code>services/proxy</code> to editors. Each cluster needs the role "
        "<code>tenantry-tenant-proxy</code> of the manifests first.",
    )
    approval = forms.ChoiceField(
        required=False,
        choices=[("", "Nobody: it is taken freely"), *Approval.choices],
        label="Given on request by",
        help_text="With somebody named here nobody takes it for themselves: it is asked for.",
    )
    workspaces_per_user = forms.IntegerField(min_value=0, max_value=1000, initial=1, label="Workspaces per person")
    position = forms.IntegerField(min_value=0, max_value=1000, initial=0, help_text="Smaller ones come first.")
    is_available = forms.BooleanField(required=False, initial=True, label="Offered to users")


class ClusterForm(forms.Form):
    """A cluster by the kubeconfig of the gateway's restricted account."""

    name = forms.CharField(max_length=63, help_text="Lower-case letters, digits and dashes.")
    kubeconfig = forms.CharField(
        max_length=262_144,
        widget=forms.Textarea(attrs={"class": "mono", "rows": 10, "spellcheck": "false", "autocomplete": "off"}),
        help_text="Of the gateway's restricted service account, never of a cluster admin. Sealed, never shown again.",
    )
    client_url = forms.CharField(
        required=False,
        max_length=512,
        label="URL in kubeconfigs",
        help_text="What users' kubeconfigs point at; the server's own when empty.",
    )
    tenant_role = forms.CharField(max_length=253, initial="tenantry-tenant-admin", label="ClusterRole of tenants")
    ingress_domain = forms.CharField(
        required=False,
        max_length=190,
        label="Domain of host names",
        help_text="Tenants' host names are within <code>tenant.domain</code>; empty: they may claim none.",
    )
    limits_events = forms.BooleanField(
        required=False,
        label="The cluster limits the rate of events (EventRateLimit)",
        help_text="Else tenants write none: no quota of Kubernetes counts them.",
    )
    credential_kinds = forms.MultipleChoiceField(
        required=False,
        label="Credentials for people",
        choices=CredentialKind.choices,
        initial=CredentialKind.values,
        widget=forms.CheckboxSelectMultiple,
        help_text="Through Tenantry they end at once and carry the person's name; straight at the cluster they pass it by.",
    )
    is_default = forms.BooleanField(required=False, label="Default for new workspaces")


class ClusterCredentialForm(forms.Form):
    """Another credential of the gateway's for a cluster that is registered."""

    kubeconfig = forms.CharField(
        max_length=262_144,
        widget=forms.Textarea(attrs={"class": "mono", "rows": 10, "spellcheck": "false", "autocomplete": "off"}),
        help_text="Of the user tenantry-gateway, for the same cluster. Sealed, never shown again.",
    )


class UserForm(forms.Form):
    """A new account."""

    email = forms.EmailField(label="E-mail address", max_length=254)
    name = forms.CharField(required=False, max_length=128)
    password = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_PASSWORD,
        help_text="At least 12 characters; to be changed at the first sign-in. Empty: single sign-on, or a link later.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )
    is_staff = forms.BooleanField(required=False, label="Operator of this platform")
    is_auditor = forms.BooleanField(required=False, label="Auditor: sees everything, changes nothing")


class PasswordForm(forms.Form):
    """The old password and a new one."""

    old = forms.CharField(
        label="Present password",
        strip=False,
        max_length=MAX_PASSWORD,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}),
    )
    password = forms.CharField(
        label="New password",
        strip=False,
        max_length=MAX_PASSWORD,
        help_text="At least 12 characters.",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
    )


class AppearanceForm(forms.Form):
    """How the pages look in this browser."""

    theme = forms.ChoiceField(choices=list(zip(THEMES, ("As the system", "Light", "Dark"), strict=True)))
    density = forms.ChoiceField(choices=[(name, name.capitalize()) for name in DENSITIES])


CHOICES_MAX = 50
"""More than this is a list that nobody reads: the name is typed."""


def _day(label: str) -> forms.DateField:
    words = {"invalid": "Write the day as 2026-11-30."}
    widget = forms.DateInput(attrs={"type": "date", "title": "The day in UTC, itself included"})
    return forms.DateField(required=False, label=label, error_messages=words, widget=widget)


class AuditForm(forms.Form):
    """Filters of the audit log."""

    text = forms.CharField(
        required=False, max_length=128, label="Words", widget=forms.TextInput(attrs={"type": "search"})
    )
    chain = forms.ChoiceField(required=False, label="Tenant")
    action = forms.ChoiceField(required=False, label="Event")
    outcome = forms.ChoiceField(required=False, choices=[("", "Any"), *Outcome.choices])
    since = _day("Since the start of")
    until = _day("Until the end of")
    workspace = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, chains: list[tuple[str, str]], actions: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.required = False
        if len(chains) > CHOICES_MAX:
            words = forms.TextInput(attrs={"placeholder": "name of a tenant", "spellcheck": "false"})
            self.fields["chain"] = forms.CharField(required=False, max_length=63, label="Tenant", widget=words)
        else:
            self.fields["chain"].choices = chains  # type: ignore[attr-defined]
        events = [(action, labels.action_name(action)) for action in actions]
        self.fields["action"].choices = [("", "Any"), *events]  # type: ignore[attr-defined]


class ApiRequestForm(forms.Form):
    """Filters of the log of requests."""

    tenant = forms.ChoiceField(required=False)
    actor = forms.CharField(
        required=False, max_length=253, label="Who", widget=forms.TextInput(attrs={"type": "search"})
    )
    show = forms.ChoiceField(required=False, choices=[("", "Refused"), ("all", "All")])

    def __init__(self, *args: Any, tenants: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if len(tenants) > CHOICES_MAX:
            words = forms.TextInput(attrs={"placeholder": "name of a tenant", "spellcheck": "false"})
            self.fields["tenant"] = forms.CharField(required=False, max_length=63, widget=words)
        else:
            self.fields["tenant"].choices = [(name, name) for name in tenants]  # type: ignore[attr-defined]
