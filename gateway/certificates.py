"""The server's certificates and keys: the given ones, or ones generated once into the data folder.

Generated: a CA with a server certificate, a client CA with the operators' ``admin.kubeconfig`` (O=tenant:system,
OU=system:masters, CN=admin), and the key that signs service accounts' tokens. Keys are readable by their owner alone.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson

from gateway.options import Options
from kube import pki

_ADMIN_USER = "admin"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Where everything is. ``own_client_ca`` is the generated CA, the only one whose masters are believed."""

    server_certificate: Path
    server_key: Path
    server_ca: Path
    client_cas: tuple[Path, ...]
    own_client_ca: Path
    signing_key: Path
    verifying_keys: tuple[Path, ...]
    admin_kubeconfig: Path


def prepare(options: Options) -> Certificates:
    """Everything that is needed, generating what is not given and not there yet. Safe to call at the same time."""
    folder = options.data_folder / "pki"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _one_at_a_time(folder):
        server_ca = _authority(folder, "ca", "tenantry-ca")
        client_ca = _authority(folder, "client-ca", "tenantry-client-ca")
        if options.tls_cert_file and options.tls_private_key_file:
            certificate, key = options.tls_cert_file, options.tls_private_key_file
            trusted = certificate
        else:
            certificate, key = _server(folder, server_ca, options.bind_address)
            trusted = folder / "ca.crt"
        signing_key = options.service_account_signing_key_file or _signing_key(folder)
        admin = _admin(options, folder, client_ca, trusted)
    client_cas = (folder / "client-ca.crt", *((options.client_ca_file,) if options.client_ca_file else ()))
    return Certificates(
        certificate,
        key,
        trusted,
        client_cas,
        folder / "client-ca.crt",
        signing_key,
        options.service_account_key_files or (signing_key,),
        admin,
    )


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, readable by its owner alone."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _authority(folder: Path, name: str, common_name: str) -> pki.Authority:
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    if not (certificate.is_file() and key.is_file()):
        made = pki.new_authority(common_name, now=datetime.now(UTC))
        _write(key, made.key_pem)
        _write(certificate, made.certificate_pem)
    return pki.Authority.from_pem(certificate.read_bytes(), key.read_bytes())


def _server(folder: Path, authority: pki.Authority, bind_address: str) -> tuple[Path, Path]:
    certificate, key = folder / "server.crt", folder / "server.key"
    addresses = {"127.0.0.1", "::1"}
    if not ipaddress.ip_address(bind_address).is_unspecified:
        addresses.add(bind_address)
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", *sorted(addresses)]
    if certificate.is_file() and key.is_file() and pki.covers(certificate.read_bytes(), names, now=datetime.now(UTC)):
        return certificate, key
    made = pki.new_server_certificate(authority, names, now=datetime.now(UTC))
    _write(key, made.key_pem)
    _write(certificate, made.certificate_pem)
    return certificate, key


def _signing_key(folder: Path) -> Path:
    path = folder / "service-account.key"
    if not path.is_file():
        _write(path, pki.new_signing_key())
    return path


def _admin(options: Options, folder: Path, authority: pki.Authority, trusted: Path) -> Path:
    """The operators' kubeconfig; rewritten when the address, the CA or the certificate's time asks for it."""
    certificate, key = folder / "admin.crt", folder / "admin.key"
    now = datetime.now(UTC)
    if not (certificate.is_file() and key.is_file() and pki.covers(certificate.read_bytes(), [], now=now)):
        made = pki.new_client_certificate(
            authority, _ADMIN_USER, organizations=["tenant:system"], units=["system:masters"], now=now
        )
        _write(key, made.key_pem)
        _write(certificate, made.certificate_pem)
    path = options.data_folder / "admin.kubeconfig"
    host = "127.0.0.1" if ipaddress.ip_address(options.bind_address).is_unspecified else options.bind_address
    server = f"https://[{host}]:{options.secure_port}" if ":" in host else f"https://{host}:{options.secure_port}"
    wanted = pki.kubeconfig(
        server=server,
        ca_pem=trusted.read_bytes(),
        user=_ADMIN_USER,
        certificate_pem=certificate.read_bytes(),
        key_pem=key.read_bytes(),
    )
    data = orjson.dumps(wanted, option=orjson.OPT_INDENT_2)
    if not path.is_file() or path.read_bytes() != data:
        _write(path, data)
    return path
