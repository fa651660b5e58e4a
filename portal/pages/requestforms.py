"""Forms of requests, one a kind, and what a person says to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django import forms

from portal.pages.forms import QuantitiesField
from tenants.models import NoticeKind, RequestKind, Role, Tier, Workspace
from tenants.notices import ALWAYS
from tenants.services.notices import MAIL, PORTAL, WAYS
from tenants.services.requests import RequestDraft


class WishForm(forms.Form):
    """What every request says: why."""

    kind: RequestKind

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"] = forms.CharField(
            max_length=1024,
            label="Why",
            help_text="Read by those who decide, and kept in the audit log.",
            widget=forms.TextInput(attrs={"autocomplete": "off"}),
        )

    def draft(self, data: dict[str, Any]) -> RequestDraft:
        """What the checked form asks for."""
        return RequestDraft(kind=self.kind, **data)


class TenantWishForm(WishForm):
    """A tenant of one's own."""

    kind = RequestKind.TENANT
    tenant = forms.CharField(
        max_length=63,
        label="Name",
        help_text="Lower-case letters, digits and dashes; it cannot be changed.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    display_name = forms.CharField(required=False, max_length=128)


class TierWishForm(WishForm):
    """Another tier for a workspace."""

    kind = RequestKind.TIER
    workspace = forms.TypedChoiceField(coerce=UUID)
    tier = forms.ChoiceField()

    def __init__(self, *args: Any, workspaces: Sequence[Workspace], tiers: Sequence[Tier], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["workspace"].choices = [(str(each.pk), f"{each} ({each.tier})") for each in workspaces]  # type: ignore[attr-defined]
        self.fields["tier"].choices = [(tier.name, str(tier)) for tier in tiers]  # type: ignore[attr-defined]


class QuotaWishForm(WishForm):
    """More of what a tenant's quota bounds."""

    kind = RequestKind.QUOTA
    tenant = forms.ChoiceField()
    hard = QuantitiesField(
        label="New amounts",
        max_length=4096,
        help_text="What should be more, one a line: <code>pods: 200</code>. The rest stays as it is. "
        "The quota of one workspace is its tier's: ask for another tier.",
    )

    def __init__(self, *args: Any, tenants: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["tenant"].choices = [(name, name) for name in tenants]  # type: ignore[attr-defined]


class LeaveWishForm(WishForm):
    """The end of a tenant, after some time in which its people take along what is theirs."""

    kind = RequestKind.LEAVE
    tenant = forms.ChoiceField(
        help_text="Nobody writes in it any more once an operator agrees; it is deleted 30 days later. Only those that you own."
    )

    def __init__(self, *args: Any, tenants: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["tenant"].choices = [(name, name) for name in tenants]  # type: ignore[attr-defined]


class RoleWishForm(WishForm):
    """A role in a tenant, for good."""

    kind = RequestKind.ROLE
    tenant = forms.CharField(
        max_length=63,
        help_text="Its name, in full. You need not be a member.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    role = forms.ChoiceField(choices=Role.choices, initial=Role.EDITOR)


class BreakGlassWishForm(RoleWishForm):
    """A role in a tenant, for some hours."""

    kind = RequestKind.BREAK_GLASS
    role = forms.ChoiceField(
        choices=[choice for choice in Role.choices if choice[0] != Role.OWNER],
        initial=Role.ADMIN,
        help_text="It lets you work, and lets you let in nobody else.",
    )
    minutes = forms.TypedChoiceField(
        label="For",
        coerce=int,
        initial=60,
        choices=[(30, "30 minutes"), (60, "1 hour"), (120, "2 hours"), (240, "4 hours"), (480, "8 hours")],
        help_text="From the approval on; then it ends by itself.",
    )


class ApproveForm(forms.Form):
    """A word with the yes."""

    answer = forms.CharField(
        required=False,
        max_length=512,
        label="Note",
        help_text="Shown to whoever asked.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class DenyForm(forms.Form):
    """Why a request is denied; whoever asked reads it."""

    answer = forms.CharField(
        max_length=512,
        label="Reason",
        help_text="Shown to whoever asked, and kept in the audit log.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )


class NoticeChoicesForm(forms.Form):
    """What one is told, and how: a field a kind."""

    def __init__(self, *args: Any, off: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for kind, label in NoticeKind.choices:
            if kind in ALWAYS:
                continue
            self.fields[kind.replace(".", "-")] = forms.MultipleChoiceField(
                required=False,
                label=label,
                choices=[(PORTAL, "here"), (MAIL, "by e-mail")],
                initial=[way for way in WAYS if f"{kind}/{way}" not in off],
                widget=forms.CheckboxSelectMultiple,
            )

    def wanted(self) -> list[str]:
        """What is chosen, as the service takes it."""
        return [
            f"{kind}/{way}" for kind in NoticeKind.values for way in self.cleaned_data.get(kind.replace(".", "-")) or []
        ]


class WebhookForm(forms.Form):
    """An address that is told what happens."""

    url = forms.CharField(
        max_length=512,
        label="URL",
        help_text="Begins with <code>https://</code> and leads to a public address. Every message is signed.",
        widget=forms.URLInput(attrs={"autocomplete": "off", "spellcheck": "false", "placeholder": "https://"}),
    )
    kinds = forms.MultipleChoiceField(
        required=False,
        label="Told of",
        choices=NoticeKind.choices,
        widget=forms.CheckboxSelectMultiple,
        help_text="Of everything when nothing is chosen.",
    )


class CommentForm(forms.Form):
    """A question, or an answer to one."""

    text = forms.CharField(max_length=2048, label="Comment", widget=forms.TextInput(attrs={"autocomplete": "off"}))
