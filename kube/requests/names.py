"""Which names Kubernetes accepts, and in which words it refuses the others.

Every check returns the list of reasons, empty when the value is good, so that a caller can put them all into one
answer. The sentences are those of ``k8s.io/apimachinery/pkg/util/validation``. Letters are ASCII throughout: no
case folding, no Unicode normalisation, no ``$`` that lets a line feed through.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

SYSTEM_TENANT: Final = "system"
"""The operators' tenant. Its objects are those of the system space."""

LABEL_MAX: Final = 63
SUBDOMAIN_MAX: Final = 253
ANNOTATIONS_MAX: Final = 256 * 1024
"""Bytes that all annotations of an object may take together, keys included."""

_LABEL_FORMAT: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN_FORMAT: Final = rf"{_LABEL_FORMAT}(\.{_LABEL_FORMAT})*"
_DNS1035_FORMAT: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED_FORMAT: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE_FORMAT: Final = f"({_QUALIFIED_FORMAT})?"

PATH_FORMAT: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"
"""What comes after the domain in a path that one stands before."""

# What the words show, said so that nothing is tried twice: a text may have megabytes.
_LABEL: Final = re.compile("(?!-)[-a-z0-9]++(?<!-)")
_SUBDOMAIN: Final = re.compile(_SUBDOMAIN_FORMAT)
_DNS1035: Final = re.compile("(?=[a-z])[-a-z0-9]++(?<!-)")
_QUALIFIED: Final = re.compile("(?![-_.])[-A-Za-z0-9_.]++(?<![-_.])")
_VALUE: Final = re.compile(f"(?:{_QUALIFIED.pattern})?+")
_SHORT_VALUE: Final = re.compile(rf"(?![-_.])[-A-Za-z0-9_.]{{0,{LABEL_MAX}}}(?<![-_.])")
_SHORT_VALUES: Final = re.compile(f"{_SHORT_VALUE.pattern}(?:,{_SHORT_VALUE.pattern})*+")

_LABEL_WORDS: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_SUBDOMAIN_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_DNS1035_WORDS: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', "
    "start with an alphabetic character, and end with an alphanumeric character"
)
_QUALIFIED_WORDS: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_VALUE_WORDS: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)

RESERVED_TENANTS: Final = frozenset(
    {SYSTEM_TENANT, "all", "root", "status", "finalize", "namespaces", "tenants", "watch", "proxy"}
)
"""Names that no tenant may have: magic words of Arktos, and segments that a path gives another meaning (URL-16)."""

_GENERATED_MAX: Final = 63
_SUFFIX_LENGTH: Final = 5


def _no_longer_than(limit: int, unit: str = "bytes") -> str:
    return f"must be no more than {limit} {unit}"


def _shape(words: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{words} (e.g. {shown}regex used for validation is '{pattern}')"


def dns_label(value: str) -> list[str]:
    """Why this is no RFC 1123 label (namespaces, tenants, container names)."""
    reasons = []
    if len(value) > LABEL_MAX:
        reasons.append(_no_longer_than(LABEL_MAX, "characters"))
    if not _LABEL.fullmatch(value):
        if _SUBDOMAIN.fullmatch(value[: SUBDOMAIN_MAX + 1]):
            reasons.append("must not contain dots")
        else:
            reasons.append(_shape(_LABEL_WORDS, _LABEL_FORMAT, "my-name", "123-abc"))
    return reasons


def dns_subdomain(value: str) -> list[str]:
    """Why this is no RFC 1123 subdomain (the names of most objects)."""
    reasons = []
    if len(value) > SUBDOMAIN_MAX:
        reasons.append(_no_longer_than(SUBDOMAIN_MAX, "characters"))
    if not _SUBDOMAIN.fullmatch(value[: 4 * SUBDOMAIN_MAX]):
        reasons.append(_shape(_SUBDOMAIN_WORDS, _SUBDOMAIN_FORMAT, "example.com"))
    return reasons


def dns1035_label(value: str) -> list[str]:
    """Why this is no RFC 1035 label (Services, names of CRDs)."""
    reasons = []
    if len(value) > LABEL_MAX:
        reasons.append(_no_longer_than(LABEL_MAX, "characters"))
    if not _DNS1035.fullmatch(value):
        reasons.append(_shape(_DNS1035_WORDS, _DNS1035_FORMAT, "my-name", "abc-123"))
    return reasons


def path_segment(value: str) -> list[str]:
    """Why this cannot be one segment of a path (RBAC objects, certificate signing requests)."""
    if value in {".", ".."}:
        return [f"may not be '{value}'"]
    return [f"may not contain '{illegal}'" for illegal in "/%" if illegal in value]


def path_segment_prefix(value: str) -> list[str]:
    """Why this cannot begin a path segment, as ``generateName`` must."""
    return [f"may not contain '{illegal}'" for illegal in "/%" if illegal in value]


def qualified_name(value: str) -> list[str]:
    """Why this is no qualified name: a label key, an annotation key, a finalizer, a resource of a quota."""
    prefix, slash, name = value.rpartition("/")
    if slash and "/" in prefix:
        shape = _shape(_QUALIFIED_WORDS, _QUALIFIED_FORMAT, "MyName", "my.name", "123-abc")
        return [f"a valid label key {shape} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    reasons = []
    if slash and not prefix:
        reasons.append("prefix part must be non-empty")
    elif slash:
        reasons += [f"prefix part {reason}" for reason in dns_subdomain(prefix)]
    if not name:
        reasons.append("name part must be non-empty")
    elif len(name) > LABEL_MAX:
        reasons.append(f"name part {_no_longer_than(LABEL_MAX)}")
    if not _QUALIFIED.fullmatch(name):
        shape = _shape(_QUALIFIED_WORDS, _QUALIFIED_FORMAT, "MyName", "my.name", "123-abc")
        reasons.append(f"name part {shape}")
    return reasons


def label_value(value: str) -> list[str]:
    """Why this is no value of a label."""
    reasons = []
    if len(value) > LABEL_MAX:
        reasons.append(_no_longer_than(LABEL_MAX))
    if not _VALUE.fullmatch(value):
        reasons.append(_shape(_VALUE_WORDS, _VALUE_FORMAT, "MyValue", "my_value", "12345"))
    return reasons


def wrong_label_values(values: Collection[str]) -> list[int]:
    """Which of these, counted from 0, are no values of labels, without the words: of many, no step is taken for each."""
    joined = ",".join(values)
    if joined.count(",") < max(len(values), 1) and _SHORT_VALUES.fullmatch(joined):
        return []
    return [index for index, found in enumerate(map(_SHORT_VALUE.fullmatch, values)) if found is None]


def is_dns_label(value: str) -> bool:
    """Whether this is an RFC 1123 label, without the words."""
    return len(value) <= LABEL_MAX and _LABEL.fullmatch(value) is not None


def is_dns_subdomain(value: str) -> bool:
    """Whether this is an RFC 1123 subdomain, without the words."""
    return len(value) <= SUBDOMAIN_MAX and _SUBDOMAIN.fullmatch(value) is not None


def is_domain_prefixed_path(value: str) -> bool:
    """Whether this is a path that a domain stands before, such as ``acme.io/foo``."""
    domain, _, rest = value.partition("/")
    return is_dns_subdomain(domain) and re.fullmatch(PATH_FORMAT, rest) is not None


def tenant_name(value: str) -> list[str]:
    """Why no tenant may be created by this name (TS1; ``RESERVED_TENANTS``)."""
    reasons = dns_label(value)
    if value in RESERVED_TENANTS:
        reasons.append(f"'{value}' is reserved")
    return reasons


def is_tenant_name(value: str) -> bool:
    """Whether a tenant other than ``system`` can have this name."""
    return is_dns_label(value) and value not in RESERVED_TENANTS


def mask_trailing_dash(prefix: str) -> str:
    """What to check instead of a ``generateName``, whose last dash the suffix follows."""
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def generated_name(prefix: str, suffix: str) -> str:
    """The name made from ``generateName`` and a random suffix of five characters; at most 63 characters.

    Kubernetes cuts the prefix, never the suffix; draw the suffix from ``bcdfghjklmnpqrstvwxz2456789``.
    """
    if len(suffix) != _SUFFIX_LENGTH:
        msg = f"a generated name ends in {_SUFFIX_LENGTH} random characters"
        raise ValueError(msg)
    return prefix[: _GENERATED_MAX - _SUFFIX_LENGTH] + suffix


SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' letters for random suffixes: no vowels, nothing that looks like another."""
