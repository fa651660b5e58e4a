"""Certificate authorities, server and client certificates as PEM, ECDSA P-256 throughout.

Nothing here reads a clock: the caller says from when and for how long. Keys and serial numbers are drawn by the
cryptography library, which is the one randomness that cannot be an argument.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED: Final = timedelta(minutes=5)
"""How far before ``now`` a certificate begins, for clocks that differ."""

_BLOCK: Final = re.compile(rb"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----", re.DOTALL)

_SINCE: Final = re.compile(rb"^since: (\S+)$", re.MULTILINE)
"""A line between blocks, which what reads blocks passes over: copies of a file are younger than what is in it."""

PEM_MAX: Final = 1024 * 1024
"""Bytes of a bundle that ``load_certificates`` reads."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, both PEM; ``repr`` leaves the key out."""

    certificate: bytes
    key: bytes = field(repr=False)


def _name(common_name: str, organizations: Iterable[str] = (), units: Iterable[str] = ()) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    attributes += [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, each) for each in units]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _draft(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    *,
    now: datetime,
    lifetime: timedelta,
) -> x509.CertificateBuilder:
    if now.tzinfo is None:
        msg = "now must know its time zone"
        raise ValueError(msg)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def make_authority(common_name: str, *, now: datetime, lifetime: timedelta = timedelta(days=3650)) -> KeyPair:
    """A self-signed certificate authority that may sign leaves and no further authorities."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    certificate = (
        _draft(name, name, key.public_key(), now=now, lifetime=lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def _signed(
    authority: KeyPair,
    subject: x509.Name,
    usage: x509.ObjectIdentifier,
    alternatives: Sequence[x509.GeneralName],
    *,
    now: datetime,
    lifetime: timedelta,
) -> KeyPair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        msg = "the authority's key must be an elliptic curve key"
        raise TypeError(msg)
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    draft = (
        _draft(subject, issuer.subject, key.public_key(), now=now, lifetime=lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
    )
    if alternatives:
        draft = draft.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return _pair(draft.sign(issuer_key, hashes.SHA256()), key)


def make_server_certificate(
    authority: KeyPair, hosts: Sequence[str], *, now: datetime, lifetime: timedelta = timedelta(days=365)
) -> KeyPair:
    """A certificate for a server; ``hosts`` are DNS names and IP addresses, the first is the common name."""
    if not hosts:
        msg = "a server certificate needs a host"
        raise ValueError(msg)
    alternatives: list[x509.GeneralName] = []
    for host in hosts:
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            alternatives.append(x509.DNSName(host))
    usage = ExtendedKeyUsageOID.SERVER_AUTH
    return _signed(authority, _name(hosts[0][:64]), usage, alternatives, now=now, lifetime=lifetime)


def make_client_certificate(
    authority: KeyPair,
    user: str,
    *,
    organizations: Sequence[str] = (),
    units: Sequence[str] = (),
    now: datetime,
    lifetime: timedelta,
) -> KeyPair:
    """A certificate for a user; AN1 reads ``O=tenant:<tenant>`` and ``OU`` as tenant and groups."""
    subject = _name(user, organizations, units)
    return _signed(authority, subject, ExtendedKeyUsageOID.CLIENT_AUTH, (), now=now, lifetime=lifetime)


def pem_blocks(pem: bytes) -> tuple[bytes, ...]:
    """Each key and certificate of a file by itself, with its line feed."""
    return tuple(block + b"\n" for block in _BLOCK.findall(pem))


def since_line(now: datetime) -> bytes:
    """What ``said_since`` finds, behind any block of a file."""
    return f"since: {now.isoformat()}\n".encode()


def said_since(pem: bytes) -> datetime | None:
    """Since when a file has what it has, where it says so itself."""
    said = _SINCE.findall(pem)
    return datetime.fromisoformat(said[-1].decode()) if said else None


def load_certificates(pem: bytes) -> tuple[x509.Certificate, ...]:
    """All certificates of a bundle. Raises ``ValueError`` when there is none, or when one cannot be read."""
    if len(pem) > PEM_MAX:
        msg = "the bundle is too large"
        raise ValueError(msg)
    return tuple(x509.load_pem_x509_certificates(pem))


def is_issued_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """Whether this authority itself has issued and signed the certificate; its dates do not matter."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def is_of_client(certificate: x509.Certificate) -> bool:
    """Whether it says that somebody is shown by it, as ``make_client_certificate`` makes them."""
    usages = [each.value for each in certificate.extensions if isinstance(each.value, x509.ExtendedKeyUsage)]
    return any(ExtendedKeyUsageOID.CLIENT_AUTH in usage for usage in usages)


def is_valid_at(certificate: x509.Certificate, now: datetime) -> bool:
    """Whether the certificate is within its dates, without leeway (X509-07)."""
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
