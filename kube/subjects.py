"""Who a client certificate names: the two forms of the certificate's subject (AN1, AN2, AN3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kube.identity import SYSTEM_TENANT

_PREFIX: Final = "tenant:"
_RESERVED: Final = frozenset({"all", "*", ""})


class NoTenant(ValueError):
    """The subject names no valid tenant (AN3)."""


@dataclass(frozen=True, slots=True)
class CertificateSubject:
    """What a certificate says of its holder."""

    tenant: str
    user: str
    groups: tuple[str, ...]


def read_subject(organizations: Sequence[str], units: Sequence[str], common_name: str) -> CertificateSubject:
    """Read the new form (``O=tenant:<t>``, groups in OU), else the old one (``CN=<t>:<user>``, groups in O).

    Raises ``NoTenant``.
    """
    values = (*organizations, *units, common_name)
    if any(not value.isprintable() or not value for value in values):
        raise NoTenant("the subject holds unprintable or empty values")
    named = [value for value in organizations if value == "tenant" or value.startswith(_PREFIX)]
    if named:
        if len(organizations) != 1:
            raise NoTenant("more than one organization beside a tenant")
        return CertificateSubject(_tenant(named[0][len(_PREFIX) :]), common_name, tuple(units))
    tenant, colon, user = common_name.partition(":")
    if not colon or not user:
        raise NoTenant("neither O nor CN names a tenant")
    tenant = _tenant(tenant)
    if tenant == SYSTEM_TENANT:
        # CN=system:… is how Kubernetes itself names its own components: it grants nothing here.
        raise NoTenant("the system tenant is named by O=tenant:system alone")
    return CertificateSubject(tenant, user, tuple(organizations))


def _tenant(name: str) -> str:
    if name in _RESERVED or any(character in "/:*" or character.isspace() for character in name) or len(name) > 63:
        raise NoTenant("not a tenant's name")
    return name
