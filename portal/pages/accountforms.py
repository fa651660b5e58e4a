"""Forms of what opens accounts: codes, passwords, and what operators do for people who are locked out."""

from __future__ import annotations

from typing import Any

from django import forms

from portal.pages.forms import TokenForm
from portal.signin.accounts import MAX_PASSWORD
from tenants.models import User


def _code(label: str, help_text: str) -> forms.CharField:
    attributes = {"autocomplete": "one-time-code", "autofocus": True, "spellcheck": "false", "autocapitalize": "none"}
    return forms.CharField(label=label, max_length=32, help_text=help_text, widget=forms.TextInput(attrs=attributes))


def _password(label: str, autocomplete: str, help_text: str = "") -> forms.CharField:
    return forms.CharField(
        label=label,
        strip=False,
        max_length=MAX_PASSWORD,
        help_text=help_text,
        widget=forms.PasswordInput(attrs={"autocomplete": autocomplete}),
    )


class CodeForm(forms.Form):
    """A code of the app, or a recovery code."""

    code = _code("Code", "Six digits from your app, or one of your recovery codes.")


class EnrolForm(forms.Form):
    """The first code of an app."""

    code = _code("Code", "The six digits that the app shows now.")


class PresentPasswordForm(forms.Form):
    """The present password, asked again before what opens an account is changed."""

    old = _password("Present password", "current-password")


class OwnEnrolForm(EnrolForm, PresentPasswordForm):
    """The first code of an app, and the password of whoever sets it up."""

    field_order = ("code", "old")


class LaterTokenForm(TokenForm):
    """A new access token, and the password of whoever has signed in some time ago."""

    old = _password(
        "Present password",
        "current-password",
        "You signed in some time ago, and the token lasts longer than your session.",
    )


class PasskeyForm(forms.Form):
    """What a passkey has answered; the page's script puts it in."""

    passkey = forms.CharField(max_length=32768, required=False, widget=forms.HiddenInput)


class NewPasskeyForm(PasskeyForm, PresentPasswordForm):
    """A new passkey's answer, what it is called, and the password of whoever adds it."""

    name = forms.CharField(
        max_length=64,
        label="Name",
        help_text="By which you know the device: “Phone”, “Office stick”.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autofocus": True}),
    )
    field_order = ("name", "old", "passkey")


class NewPasswordForm(forms.Form):
    """A password of one's own."""

    password = _password("New password", "new-password", "At least 12 characters.")


class AskForm(forms.Form):
    """Whose password was forgotten."""

    email = forms.EmailField(
        label="E-mail address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "username", "autofocus": True}),
    )


class ResetForm(forms.Form):
    """How somebody else gets a new password."""

    way = forms.ChoiceField(label="How", widget=forms.RadioSelect)
    keep_factors = forms.BooleanField(
        required=False,
        label="Keep passkeys, second factor and access tokens",
        help_text="Only where you know that nobody else had the account: whoever had it may have added one of them.",
    )

    def __init__(self, *args: Any, mail: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        ways = [("link", "A link to copy: they choose the password. It works once, for 24 hours.")]
        if mail:
            ways.append(("mail", "The same link, sent to their e-mail address."))
        ways.append(("password", "A password made up now, which they change at the next sign-in."))
        self.fields["way"].choices = ways  # type: ignore[attr-defined]
        self.fields["way"].initial = ways[0][0]


class AddressForm(forms.Form):
    """Another e-mail address of somebody's."""

    email = forms.EmailField(
        label="New e-mail address",
        max_length=254,
        widget=forms.EmailInput(attrs={"autocomplete": "off", "autofocus": True}),
    )


class StatusForm(forms.Form):
    """What an account is to be from now on, whatever it is when the form arrives."""

    status = forms.ChoiceField(choices=User.Status.choices, widget=forms.HiddenInput)


class RightsForm(forms.Form):
    """What an account is on the platform."""

    kind = forms.ChoiceField(
        label="The person is",
        widget=forms.RadioSelect,
        choices=[
            ("user", "A user: what their memberships give"),
            ("auditor", "An auditor: sees everything, changes nothing"),
            ("operator", "An operator: sees and changes everything"),
        ],
    )
