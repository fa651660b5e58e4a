"""Forms of questions about rights: chosen from what exists, pasted, or as the server reads them."""

from __future__ import annotations

import re
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError

from gateway.server.judging import PATCH_TYPES, STRATEGIC
from kube.authentication.inspection import TEXT_MAX
from kube.kinds.kubectl import LENGTH_MAX

ACTIONS: Final = (
    (
        "Reading",
        (("get", "read (get)"), ("list", "list"), ("watch", "follow (watch)")),
    ),
    (
        "Writing",
        (
            ("create", "create"),
            ("update", "replace (update)"),
            ("patch", "change (patch)"),
            ("delete", "delete"),
            ("deletecollection", "delete all of them"),
        ),
    ),
    (
        "Rights",
        (
            ("bind", "hand out (bind)"),
            ("escalate", "widen (escalate)"),
            ("impersonate", "act as (impersonate)"),
            ("use", "use"),
            ("access", "enter (access)"),
        ),
    ),
)
_VERB: Final = re.compile(r"[a-z]{1,63}|\*")


def _typed(listed: str, **attributes: str) -> forms.TextInput:
    """A field that is typed or chosen from what the page lists."""
    return forms.TextInput(attrs={"list": listed, "autocomplete": "off", "spellcheck": "false", **attributes})


class PasteForm(forms.Form):
    """A question as people have it at hand."""

    paste = forms.CharField(
        max_length=LENGTH_MAX,
        label="Paste a kubectl command, an audit ID or a path",
        widget=forms.TextInput(
            attrs={"class": "mono", "placeholder": "kubectl -n team delete deploy/web", "spellcheck": "false"}
        ),
    )


class PlaceForm(forms.Form):
    """Where a question is about: a logical cluster, and a namespace of it."""

    cluster = forms.CharField(
        max_length=512, label="Space or workspace", help_text="<code>root:acme</code>", widget=_typed("places")
    )
    namespace = forms.CharField(
        required=False, max_length=63, help_text="All of them when empty.", widget=_typed("namespaces")
    )


class WhoCanForm(PlaceForm):
    """An action on a thing."""

    action = forms.ChoiceField(choices=ACTIONS, initial="get")
    thing = forms.CharField(
        max_length=506,
        help_text="<code>pods</code>, <code>deployments.apps</code>, <code>pods/exec</code>, or a path",
        widget=_typed("things"),
    )
    name = forms.CharField(
        required=False,
        max_length=253,
        label="Its name",
        help_text="Any when empty.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # What was pasted may ask about a verb that nobody would choose.
        verb = str(self["action"].value() or "")
        known = {value for _, group in ACTIONS for value, _ in group}
        if verb not in known and _VERB.fullmatch(verb):
            self.fields["action"].choices = [*ACTIONS, ("Other", ((verb, verb),))]  # type: ignore[attr-defined]


def _manifest(help_text: str) -> forms.CharField:
    return forms.CharField(
        required=False,
        max_length=6000,
        label="What it sends",
        widget=forms.Textarea(attrs={"class": "mono", "rows": 6, "spellcheck": "false"}),
        help_text=help_text,
    )


def _patch() -> forms.ChoiceField:
    return forms.ChoiceField(
        required=False, label="Type of the patch", choices=[(name, name) for name in PATCH_TYPES], initial=STRATEGIC
    )


_JUDGED: Final = "In YAML or JSON: then quotas, policies and Pod Security are asked as well, and nothing is saved."


class MayForm(WhoCanForm):
    """A person, an action and a thing; of a write also what it sends."""

    person = forms.CharField(max_length=253, widget=_typed("people"))
    manifest = _manifest(f"The object that is created or replaces one, or the changes of a patch. {_JUDGED}")
    patch = _patch()


class WhatIfForm(PlaceForm):
    """A role for somebody, a binding less, or any role, binding or policy as it would be written."""

    person = forms.CharField(required=False, max_length=253, label="Somebody is given", widget=_typed("people"))
    role = forms.CharField(
        required=False,
        max_length=320,
        label="the role",
        help_text="<code>ClusterRole/view</code>",
        widget=_typed("roles"),
    )
    binding = forms.CharField(
        required=False, max_length=320, label="Or this binding is taken away", widget=_typed("bindings")
    )
    manifest = forms.CharField(
        required=False,
        max_length=262_144, widget=forms.Textarea(attrs={"class": "mono", "rows": 12, "spellcheck": "false"}),
        help_text="A Role, ClusterRole, RoleBinding, ClusterRoleBinding or Policy, in YAML or JSON. Nothing is saved.",
    )  # fmt: skip
    delete = forms.BooleanField(required=False, label="It would be deleted")

    def clean(self) -> dict[str, Any]:
        """One change at a time."""
        data = super().clean() or {}
        given = [bool(data.get("person") or data.get("role")), bool(data.get("binding")), bool(data.get("manifest"))]
        if sum(given) != 1:
            raise ValidationError("Say one change: a role for somebody, a binding that goes, or a manifest.")
        if given[0] and not (data.get("person") and data.get("role")):
            self.add_error("role" if data.get("person") else "person", "Both are needed: who, and which role.")
        return data


class ExplainForm(forms.Form):
    """A request as the server gets it, from whoever it takes the sender for."""

    method = forms.ChoiceField(choices=[(verb, verb) for verb in ("GET", "POST", "PUT", "PATCH", "DELETE")])
    path = forms.CharField(
        max_length=2048,
        widget=forms.TextInput(
            attrs={"class": "mono", "placeholder": "/api/v1/namespaces/default/pods", "spellcheck": "false"}
        ),
    )
    cluster = forms.CharField(
        required=False,
        max_length=512,
        label="Logical cluster",
        help_text="<code>root:acme</code>; the person's own space when empty.",
    )
    user = forms.CharField(max_length=253, label="User name")
    groups = forms.CharField(
        required=False,
        max_length=2048,
        help_text="Separated by commas; those that the person has in the tenant when empty.",
    )
    tenant = forms.CharField(required=False, max_length=63, label="Tenant of the user")
    manifest = _manifest(f"The object of a POST or PUT, or the changes of a PATCH. {_JUDGED}")
    patch = _patch()


class _NoEchoTextarea(forms.Textarea):
    """Never shows again what was typed."""

    def format_value(self, value: Any) -> str:
        """Nothing, whatever was typed."""
        return ""


class IdentityForm(forms.Form):
    """A certificate, a subject, a line of a token file, or a token: perhaps a secret."""

    text = forms.CharField(
        max_length=TEXT_MAX,
        strip=False,
        label="Certificate, subject, file line, token or claims",
        help_text="PEM, <code>/CN=…/O=…</code>, <code>token,user,uid,groups,,tenant</code>, a JWT or its claims as JSON."
        " Not stored, not logged. Private keys have no business here.",
        widget=_NoEchoTextarea(attrs={"class": "mono", "rows": 12, "spellcheck": "false", "autocomplete": "off"}),
    )
