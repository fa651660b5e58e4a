"""Names that people choose, checked once for every way in."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from django.utils import timezone

from kube.requests.names import tenant_name
from kube.requests.status import Cause, Invalid

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_UNTIL_DAYS_MAX: Final = 1000
_RESERVED_NAMESPACES: Final = "kube-"


def check_label(value: str, *, field: str, kind: str) -> str:
    """``value`` if it is an RFC 1123 label of at most 63 characters, else ``Invalid`` naming ``field``."""
    if not _LABEL.fullmatch(value):
        message = (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
            "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
        )
        cause = Cause("FieldValueInvalid", f'Invalid value: "{value[:80]}": {message}', field)
        raise Invalid(
            f'{kind} "{value[:80]}" is invalid: {field}: {cause.message}', kind=kind, name=value[:80], causes=[cause]
        )
    return value


def check_manager(value: str, *, kind: str) -> str:
    """The name of a declaration, a label, or nothing; else ``Invalid``."""
    return check_label(value, field="managed_by", kind=kind) if value else ""


def check_tenant_name(value: str) -> str:
    """A tenant's name, by the list that kubectl goes by too (``kube.requests.names``, TS1); else ``Invalid``."""
    problems = tenant_name(value)
    if problems:
        cause = Cause("FieldValueInvalid", f'Invalid value: "{value[:80]}": {"; ".join(problems)}', "metadata.name")
        raise Invalid(
            f'Tenant "{value[:80]}" is invalid: metadata.name: {cause.message}',
            kind="Tenant",
            name=value[:80],
            causes=[cause],
        )
    return value


def check_namespace_of(tenant: str, value: str) -> str:
    """A namespace's name that a tenant may choose on clusters that it shares: it says whose it is; else ``Invalid``."""
    check_label(value, field="metadata.name", kind="Namespace")
    if not value.startswith(f"{tenant}-") or value.startswith(_RESERVED_NAMESPACES):
        message = f'Invalid value: "{value}": on a shared cluster it must begin with "{tenant}-"'
        if value.startswith(_RESERVED_NAMESPACES):
            message = f'Invalid value: "{value}": names that begin with "kube-" are reserved'
        cause = Cause("FieldValueInvalid", message, "metadata.name")
        raise Invalid(
            f'Namespace "{value}" is invalid: metadata.name: {message}', kind="Namespace", name=value, causes=[cause]
        )
    return value


def check_until(value: datetime | None, *, kind: str) -> None:
    """``Invalid`` for an end that is over, or no end of anything that is planned."""
    if value is not None and not timedelta(0) < value - timezone.now() <= timedelta(days=_UNTIL_DAYS_MAX):
        cause = Cause("FieldValueInvalid", f"Between now and {_UNTIL_DAYS_MAX} days ahead.", "until")
        raise Invalid(f"{kind} is invalid: until: {cause.message}", kind=kind, causes=[cause])


def check_text(value: str, *, field: str, kind: str, limit: int, required: bool = False) -> str:
    """``value`` without blanks around it, on one line, at most ``limit`` characters; else ``Invalid``."""
    value = value.strip()
    if required and not value:
        raise Invalid(
            f"{kind} is invalid: {field}: Required value",
            kind=kind,
            causes=[Cause("FieldValueRequired", "Required value", field)],
        )
    if len(value) > limit or any(character < " " for character in value):
        message = f"Invalid value: must be one line of at most {limit} characters"
        raise Invalid(
            f"{kind} is invalid: {field}: {message}", kind=kind, causes=[Cause("FieldValueInvalid", message, field)]
        )
    return value
