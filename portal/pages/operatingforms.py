"""Forms of what operators do with the whole house."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django import forms

from portal.pages.forms import ReasonForm
from tenants.models import Announcement, Audience, Offboarding, Severity, Tier
from tenants.services.operating import offboarding
from tenants.services.operating.announcements import TEXT_MAX, Said
from tenants.services.operating.postponing import DAYS_MAX

_MOMENT = "%Y-%m-%dT%H:%M"


def moment_field(label: str, help_text: str) -> forms.DateTimeField:
    """A time in UTC, or none."""
    return forms.DateTimeField(
        required=False,
        label=label,
        help_text=help_text,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format=_MOMENT),
    )


class NamesField(forms.CharField):
    """Names between blanks, commas or line ends."""

    def clean(self, value: Any) -> Any:
        """The names as a list. Raises ``ValidationError``."""
        return [name for name in re.split(r"[\s,]+", super().clean(value)) if name]


class PostponeForm(forms.Form):
    """Until when a row of the inbox is put off, and why."""

    until = forms.DateField(
        label="Until",
        help_text=f"At most {DAYS_MAX} days ahead; it is back at 00:00 UTC.",
        widget=forms.DateInput(attrs={"type": "date"}),
    )
    reason = forms.CharField(max_length=512, widget=forms.TextInput(attrs={"autocomplete": "off"}))


class OffboardForm(ReasonForm):
    """Why a tenant leaves, how it is closed until it is gone, and for how long it is kept."""

    manner = forms.ChoiceField(choices=Offboarding.Manner.choices, label="Closed how")
    days = forms.IntegerField(
        min_value=1,
        max_value=offboarding.DAYS_MAX,
        initial=offboarding.DAYS_KEPT,
        label="Kept for, in days",
        help_text="Then it is deleted. Again, with other words, puts the end elsewhere.",
    )


class ExportForm(forms.Form):
    """Whether Secrets are wanted too."""

    secrets = forms.BooleanField(
        required=False,
        label="with Secrets",
        help_text="Those that you may read, in plain text. Keep the file accordingly; that it was made is in the audit log.",
    )


class AnnouncementForm(forms.Form):
    """What is said, to whom and for how long."""

    text = forms.CharField(
        max_length=TEXT_MAX, help_text="One line, plain text.", widget=forms.TextInput(attrs={"autocomplete": "off"})
    )
    severity = forms.ChoiceField(choices=Severity.choices, initial=Severity.INFO)
    audience = forms.ChoiceField(label="For", choices=Audience.choices, initial=Audience.EVERYBODY)
    tenants = NamesField(
        required=False,
        max_length=16000,
        help_text="Their names, when it is for some tenants.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )
    tiers = forms.MultipleChoiceField(
        required=False, help_text="When it is for some tiers.", widget=forms.CheckboxSelectMultiple
    )
    starts_at = moment_field("From", "UTC; at once without.")
    ends_at = moment_field("Until", "UTC; until somebody ends it without.")
    dismissible = forms.BooleanField(
        required=False, initial=True, label="may be put away", help_text="By each person, for themselves."
    )

    def __init__(self, *args: Any, tiers: Sequence[Tier], of: Announcement | None = None, **kwargs: Any) -> None:
        if of is not None:
            kwargs["initial"] = {
                "text": of.text,
                "severity": of.severity,
                "audience": of.audience,
                "tenants": " ".join(sorted(each.name for each in of.tenants.all())),
                "tiers": [each.name for each in of.tiers.all()],
                "starts_at": of.starts_at,
                "ends_at": of.ends_at,
                "dismissible": of.dismissible,
            }
        super().__init__(*args, **kwargs)
        self.fields["tiers"].choices = [(tier.name, str(tier)) for tier in tiers]  # type: ignore[attr-defined]

    def said(self, data: dict[str, Any]) -> Said:
        """What the checked form says."""
        return Said(**data)
