"""Who a certificate's subject is (AN1 to AN3), and which names may come from outside at all.

The subject is read from its attributes in their own order, never from a printed name, which an attribute's value can
imitate. The table ``tests/kube/certificate_subjects.yaml`` shows every case with its reading.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from kube.authentication.identity import ANONYMOUS, SERVICE_ACCOUNT_PREFIX, SERVICE_ACCOUNTS, UNAUTHENTICATED
from kube.requests.names import RESERVED_TENANTS, SYSTEM_TENANT

BINDING_PREFIX: Final = "apis.kcp.io:binding:"
"""What maximal permission policies put before names (KC5): nobody may be called so."""

NAME_MAX: Final = 256
GROUPS_MAX: Final = 200

_SYSTEM_PREFIX: Final = "system:"
_TENANT_PREFIX: Final = "tenant:"
_TENANT: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_INVISIBLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_OIDS: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
}


class InvalidSubject(Exception):
    """An identity that is not accepted: 401. The message is for the audit log and repeats no name."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A user with its groups and tenant, as an authenticator from outside may produce them."""

    user: str
    groups: tuple[str, ...]
    tenant: str


def check_name(kind: str, name: str) -> None:
    """Raise ``InvalidSubject`` for a name that nobody can have: empty, endless, with control characters, reserved."""
    if not name or len(name) > NAME_MAX:
        raise InvalidSubject(f"a {kind} is empty or too long")
    if any(unicodedata.category(character) in _INVISIBLE for character in name):
        raise InvalidSubject(f"a {kind} contains control characters")
    if name.startswith(BINDING_PREFIX):
        raise InvalidSubject(f"a {kind} begins with a reserved prefix")


def check_tenant(tenant: str, *, system: bool = False) -> str:
    """The tenant, when a user from outside may belong to it; else ``InvalidSubject``.

    Letter case is kept and nothing is looked up: a user of a tenant that does not exist can do nothing. Names that no
    tenant may have are refused, ``system`` only unless the operator trusts the source for it.
    """
    if tenant == SYSTEM_TENANT and system:
        return tenant
    if not _TENANT.fullmatch(tenant) or tenant.lower() in RESERVED_TENANTS:
        raise InvalidSubject("the tenant is missing, malformed or reserved")
    return tenant


def check_identity(user: str, groups: Iterable[str], tenant: str, *, system: bool = False) -> Identity:
    """An identity whose names may come from outside, without repeated groups; else ``InvalidSubject``.

    Names that begin with ``system:`` exist in the system tenant alone, and only from a source that is trusted for it
    (``system``). Service accounts and anonymous have authenticators of their own.
    """
    check_tenant(tenant, system=system)
    found = tuple(dict.fromkeys(groups))
    if len(found) > GROUPS_MAX:
        raise InvalidSubject("there are too many groups")
    check_name("user name", user)
    for group in found:
        check_name("group", group)
    if tenant != SYSTEM_TENANT and any(name.startswith(_SYSTEM_PREFIX) for name in (user, *found)):
        raise InvalidSubject("system: names belong to the system tenant")
    if user == ANONYMOUS or user.startswith(SERVICE_ACCOUNT_PREFIX):
        raise InvalidSubject("the user name belongs to another authenticator")
    if any(group == UNAUTHENTICATED or group.split(":")[:2] == SERVICE_ACCOUNTS.split(":") for group in found):
        raise InvalidSubject("a group belongs to another authenticator")
    return Identity(user, found, tenant)


def identity_of_subject(attributes: Sequence[tuple[str, str]], *, system: bool = False) -> Identity:
    """Who a subject is; ``attributes`` are (``CN`` | ``O`` | ``OU``, value) in the certificate's order.

    New form (AN1): the only ``O`` is ``tenant:<tenant>``; each ``OU`` is a group. Old form (AN2): what stands before
    the first ``:`` of ``CN`` is the tenant, each ``O`` a group. ``CN`` is the user name, prefix and all, in both. An
    ``O`` that begins as the new form does but is not of it never falls back to the old one. ``system``: the authority
    that signed is trusted for the system tenant. Raises ``InvalidSubject`` when no identity comes out (AN3).
    """
    names = [value for kind, value in attributes if kind == "CN"]
    organizations = [value for kind, value in attributes if kind == "O"]
    if len(names) != 1:
        raise InvalidSubject("there must be exactly one common name")
    user = names[0]
    if any(value == "tenant" or value.startswith(_TENANT_PREFIX) for value in organizations):
        if len(organizations) > 1:
            raise InvalidSubject("a tenant in O must be the only O")
        tenant = organizations[0].removeprefix(_TENANT_PREFIX)
        if tenant == organizations[0]:
            raise InvalidSubject("the tenant in O is missing")
        groups = [value for kind, value in attributes if kind == "OU"]
        return check_identity(user, groups, tenant, system=system)
    tenant, colon, _ = user.partition(":")
    if not colon:
        raise InvalidSubject("neither O nor CN names a tenant")
    return check_identity(user, organizations, tenant, system=system)


def identity_of_certificate(certificate: x509.Certificate, *, system: bool = False) -> Identity:
    """Who a certificate, already verified, says its holder is; see ``identity_of_subject``."""
    try:
        subject = list(certificate.subject)
    except ValueError as error:
        raise InvalidSubject("the subject cannot be read") from error
    attributes = []
    for attribute in subject:
        kind = _OIDS.get(attribute.oid)
        if kind is not None:
            value = attribute.value
            if not isinstance(value, str):
                raise InvalidSubject("the subject is not text")
            attributes.append((kind, value))
    return identity_of_subject(attributes, system=system)
