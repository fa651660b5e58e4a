"""Kubernetes' ``format`` library for CEL: named formats, and what a text has against one.

Both ``format.named(name)`` and ``validate(text)`` answer with optionals; here they answer with lists of none or one,
and ``kube.cel.macros`` asks for the first item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kube.cel.uris import is_request_uri
from kube.kinds.formats import is_of_format
from kube.requests.names import dns1035_label, dns_label, dns_subdomain, label_value, mask_trailing_dash, qualified_name

Own = dict[str, str]


def _of(name: str, words: str) -> Callable[[str], list[str]]:
    return lambda text: [] if is_of_format(text, name) else [words]


def _uri(text: str) -> list[str]:
    return [] if is_request_uri(text) else [f'parse "{text}": invalid URI for request']


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    return lambda text: check(mask_trailing_dash(text))


FORMATS: Final[Mapping[str, Callable[[str], list[str]]]] = {
    "dns1123Label": dns_label,
    "dns1123Subdomain": dns_subdomain,
    "dns1035Label": dns1035_label,
    "qualifiedName": qualified_name,
    "dns1123LabelPrefix": _prefix(dns_label),
    "dns1123SubdomainPrefix": _prefix(dns_subdomain),
    "dns1035LabelPrefix": _prefix(dns1035_label),
    "labelValue": label_value,
    "uri": _uri,
    "uuid": _of("uuid", "does not match the UUID format"),
    "byte": _of("byte", "invalid base64"),
    "date": _of("date", "invalid date"),
    "datetime": _of("date-time", "invalid datetime"),
}
"""Name → why a text is not of the format."""


def named(name: str) -> list[Own]:
    """The format of that name, if there is one."""
    return [{"format": name}] if name in FORMATS else []


def validated(chosen: Own, text: str) -> list[list[str]]:
    """What is wrong with the text, if anything is. Raises ``ValueError`` for what is no format."""
    check = FORMATS.get(chosen.get("format", ""))
    if check is None:
        raise ValueError("no such overload")
    reasons = check(text)
    return [reasons] if reasons else []
