"""Certificates that TLS libraries accept."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID

from kube.authentication import pki

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
AUTHORITY = pki.make_authority("tenantry", now=NOW)


def only(pem: bytes) -> x509.Certificate:
    (certificate,) = pki.load_certificates(pem)
    return certificate


def test_a_server_certificate_verifies_for_its_hosts() -> None:
    pair = pki.make_server_certificate(AUTHORITY, ["api.example", "127.0.0.1", "::1"], now=NOW)
    store = verification.Store([only(AUTHORITY.certificate)])
    for host in (
        x509.DNSName("api.example"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("::1")),
    ):
        verifier = verification.PolicyBuilder().store(store).time(NOW).build_server_verifier(host)
        assert verifier.verify(only(pair.certificate), [])
    other = verification.PolicyBuilder().store(store).time(NOW).build_server_verifier(x509.DNSName("evil.example"))
    with pytest.raises(verification.VerificationError):
        other.verify(only(pair.certificate), [])


def test_a_client_certificate_carries_tenant_and_groups_in_order() -> None:
    """AN1."""
    pair = pki.make_client_certificate(
        AUTHORITY, "bob", organizations=["tenant:t1"], units=["b", "a"], now=NOW, lifetime=timedelta(hours=1)
    )
    certificate = only(pair.certificate)
    assert [attribute.value for attribute in certificate.subject] == ["tenant:t1", "b", "a", "bob"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert certificate.verify_directly_issued_by(only(AUTHORITY.certificate)) is None


def test_dates_are_those_that_were_asked_for() -> None:
    """X509-07."""
    pair = pki.make_client_certificate(AUTHORITY, "bob", now=NOW, lifetime=timedelta(hours=1))
    certificate = only(pair.certificate)
    assert pki.is_valid_at(certificate, NOW)
    assert pki.is_valid_at(certificate, NOW + timedelta(hours=1))
    assert not pki.is_valid_at(certificate, NOW + timedelta(hours=1, seconds=1))
    assert not pki.is_valid_at(certificate, NOW - timedelta(minutes=5, seconds=1))
    with pytest.raises(ValueError, match="time zone"):
        pki.make_authority("x", now=NOW.replace(tzinfo=None))


def test_a_key_does_not_show_itself_and_serves_tls(tmp_path: Path) -> None:
    """GW9."""
    pair = pki.make_server_certificate(AUTHORITY, ["localhost"], now=NOW)
    assert "PRIVATE" not in repr(pair)
    (tmp_path / "both.pem").write_bytes(pair.certificate + pair.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "both.pem")


def test_what_is_no_bundle_is_refused() -> None:
    for bad in (b"", b"x", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"x" * 2**21):
        with pytest.raises(ValueError):
            pki.load_certificates(bad)
    with pytest.raises(ValueError, match="host"):
        pki.make_server_certificate(AUTHORITY, [], now=NOW)
