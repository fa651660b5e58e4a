"""Certificates: authorities, and what they issue to servers and clients. Pure but for the keys' randomness."""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_CA_LIFETIME: Final = timedelta(days=3650)
_LIFETIME: Final = timedelta(days=365)
_SKEW: Final = timedelta(minutes=5)
_RENEW_BEFORE: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, PEM."""

    certificate_pem: bytes
    key_pem: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that can sign."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    certificate_pem: bytes
    key_pem: bytes

    @classmethod
    def from_pem(cls, certificate_pem: bytes, key_pem: bytes) -> Self:
        """Read one. Raises ``ValueError``."""
        key = serialization.load_pem_private_key(key_pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key is not an elliptic curve key")
        return cls(x509.load_pem_x509_certificate(certificate_pem), key, certificate_pem, key_pem)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def new_signing_key() -> bytes:
    """A P-256 key for service accounts' tokens (ES256), PEM."""
    return _pem(ec.generate_private_key(ec.SECP256R1()))


def new_authority(common_name: str, *, now: datetime) -> Authority:
    """A self-signed CA for ten years."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        _builder(name, name, key, now, _CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key, certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def new_server_certificate(authority: Authority, names: Sequence[str], *, now: datetime) -> Pair:
    """A server certificate for DNS names and addresses."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    return _issue(authority, subject, ExtendedKeyUsageOID.SERVER_AUTH, now, [_general(name) for name in names])


def new_client_certificate(
    authority: Authority,
    common_name: str,
    *,
    organizations: Sequence[str] = (),
    units: Sequence[str] = (),
    now: datetime,
    lifetime: timedelta = _LIFETIME,
) -> Pair:
    """A client certificate (AN1: the tenant in O, groups in OU)."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, value) for value in organizations]
    attributes += [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, value) for value in units]
    attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, common_name))
    return _issue(authority, x509.Name(attributes), ExtendedKeyUsageOID.CLIENT_AUTH, now, [], lifetime)


def covers(certificate_pem: bytes, names: Sequence[str], *, now: datetime) -> bool:
    """Whether a certificate is good for all ``names`` and for a month more."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    if certificate.not_valid_after_utc - _RENEW_BEFORE < now:
        return False
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return not names
    return all(_general(name) in alternatives for name in names)


def kubeconfig(
    *, server: str, ca_pem: bytes, user: str, certificate_pem: bytes, key_pem: bytes, name: str = "tenantry"
) -> dict[str, Any]:
    """A kubeconfig with a client certificate."""

    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server, "certificate-authority-data": text(ca_pem)}}],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": text(certificate_pem), "client-key-data": text(key_pem)},
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        "current-context": name,
    }


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + lifetime)
    )


def _issue(
    authority: Authority,
    subject: x509.Name,
    usage: x509.ObjectIdentifier,
    now: datetime,
    names: Sequence[x509.GeneralName],
    lifetime: timedelta = _LIFETIME,
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = authority.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(subject, authority.certificate.subject, key, now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False
        )
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(authority.key, hashes.SHA256())
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


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
