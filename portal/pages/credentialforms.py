"""Forms about credentials: by which way, with which rights, and the code of a device."""

from __future__ import annotations

from typing import Any

from django import forms

from tenants.models import CredentialKind

_WAYS: dict[str, str] = {
    CredentialKind.GATEWAY: "Through Tenantry a file ends at once when the right does, and requests carry your name.",
    CredentialKind.EXEC: "Signed in by the browser, the file holds no secret and works for as long as you are signed in here.",
    CredentialKind.DIRECT: "Straight at the cluster it carries the name of the workspace's service account.",
}
_FILES: dict[str, str] = {
    CredentialKind.GATEWAY: "With tokens, for two hours",
    CredentialKind.EXEC: "Signed in by the browser: no secret in the file",
}


class KubeconfigForm(forms.Form):
    """By which way, the recommended one first, and with which rights, the role's own by default."""

    kind = forms.ChoiceField(label="Way")
    role = forms.ChoiceField(label="Rights")
    minutes = forms.TypedChoiceField(
        label="Life of the token",
        choices=[(120, "Two hours"), (60, "One hour"), (30, "Half an hour"), (10, "Ten minutes")],
        coerce=int,
        empty_value=None,
        required=False,
        help_text="A file that is signed in by the browser holds none.",
    )

    def __init__(self, *args: Any, kinds: list[str], roles: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ways = [(kind, CredentialKind(kind).label) for kind in kinds]
        self.fields["kind"].choices = ways  # type: ignore[attr-defined]
        self.fields["kind"].help_text = " ".join(_WAYS[kind] for kind in kinds)
        words = {
            "admin": "Admin: workloads, network policies, roles and service accounts",
            "editor": "Editor: change workloads",
            "viewer": "Viewer: read only",
        }
        self.fields["role"].choices = [(role, words[role]) for role in roles]  # type: ignore[attr-defined]


class TenantKubeconfigForm(forms.Form):
    """By which way a tenant's file works."""

    kind = forms.ChoiceField(label="Way")

    def __init__(self, *args: Any, kinds: list[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["kind"].choices = [(kind, _FILES[kind]) for kind in kinds]  # type: ignore[attr-defined]


class UserCodeForm(forms.Form):
    """The code that a device shows."""

    user_code = forms.CharField(
        max_length=16,
        label="Code",
        help_text="As tenantry-login shows it: BCDF-GHJK.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false", "autocapitalize": "characters"}),
    )
