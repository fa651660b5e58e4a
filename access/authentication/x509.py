"""Client certificates: verified by the TLS layer, believed and read here (AN1, AN2, AN3)."""

from __future__ import annotations

import hashlib
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from access.authentication.base import Credentials, Refused
from access.reloading import ReloadedFile
from kube.authentication.identity import AUTHENTICATED, Principal
from kube.authentication.pki import is_issued_by
from kube.authentication.subjects import InvalidSubject, identity_of_certificate

_REMEMBERED: Final = 4096


class X509Authenticator:
    """Reads the peer's certificate, where the TLS layer has verified it.

    ``own_authorities`` are the product's generated client CAs, followed while they are rotated: only they name users of
    the system tenant, for whoever issues certificates of a configured CA must not be able to make an operator's (X509-11).
    """

    name = "x509"

    def __init__(self, own_authorities: ReloadedFile[tuple[x509.Certificate, ...]]) -> None:
        self._authorities = own_authorities
        self._own = own_authorities.value
        self._known: dict[bytes, tuple[Principal, float]] = {}

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:
        """The identity in the certificate; raises ``Refused`` for one that does not verify, names no tenant or is out of its time."""
        der = credentials.certificate
        if der is None:
            return None
        if credentials.certificate_refusal:
            raise Refused(credentials.certificate_refusal)
        own = await self._authorities.current(now)
        if own is not self._own:
            # Whom a certificate names depends on who has issued it.
            self._own = own
            self._known.clear()
        known = self._known.get(der)
        if known is None:
            known = self._read(der)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[der] = known
        principal, not_before = known
        if principal.not_after is None or not not_before <= now < principal.not_after:
            raise Refused("the certificate is not valid at this time")
        return principal

    def _read(self, der: bytes) -> tuple[Principal, float]:
        try:
            certificate = x509.load_der_x509_certificate(der)
            if not _for_clients(certificate):
                raise Refused("the certificate is not for client authentication")
            identity = identity_of_certificate(certificate, system=self._is_own(certificate))
        except (ValueError, InvalidSubject) as error:
            raise Refused(str(error)) from None
        principal = Principal(
            name=identity.user,
            groups=(*identity.groups, AUTHENTICATED),
            tenant=identity.tenant,
            authenticator=self.name,
            credential_id="X509SHA256=" + hashlib.sha256(der).hexdigest(),
            issued_at=certificate.not_valid_before_utc.timestamp(),
            not_after=certificate.not_valid_after_utc.timestamp(),
        )
        return principal, certificate.not_valid_before_utc.timestamp()

    def _is_own(self, certificate: x509.Certificate) -> bool:
        return any(is_issued_by(certificate, authority) for authority in self._own)


def _for_clients(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usage
