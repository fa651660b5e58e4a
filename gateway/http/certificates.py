"""The server's certificates and keys: the given ones, or ones generated once into the data folder.

Generated: a CA with a server certificate, a client CA with the operators' ``admin.kubeconfig`` (O=tenant:system,
OU=system:masters, CN=admin), the key that signs service accounts' tokens, and the one
with which the portal signs people's. Keys are readable by their owner alone. Where ``Options.keys_folder`` is given, all
of it has been made before (``manage.py keys``) and nothing is written.
"""

from __future__ import annotations

import base64
import fcntl
import ipaddress
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from access.reloading import ReloadedFile, UnusableFile
from gateway.options import Options
from kube.authentication import pki

logger = logging.getLogger(__name__)

_ADMIN_USER: Final = "admin"
_SERVERS: Final = ".servers"
"""Locked by every server of the folder while it runs."""
_CLIENT_LIFETIME: Final = timedelta(days=365)
_RENEW_BEFORE: Final = timedelta(days=30)


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
    portal_token_key: Path
    admin_kubeconfig: Path

    def authorities(self) -> ReloadedFile[tuple[x509.Certificate, ...]]:
        """The generated client CAs. Raises ``UnusableFile``."""
        return ReloadedFile(self.own_client_ca, pki.load_certificates)

    def bundle(self) -> ReloadedFile[str]:
        """What clients verify the server with, in PEM; nothing else that the file may hold. Raises ``UnusableFile``."""
        return ReloadedFile(self.server_ca, _bundle)


def _bundle(pem: bytes) -> str:
    found = pki.load_certificates(pem)
    return "".join(each.public_bytes(serialization.Encoding.PEM).decode() for each in found)


@contextmanager
def serving(options: Options) -> Iterator[Certificates]:
    """As ``prepare``, for a server: until the end of the block the data folder has an address that clients know.

    Several servers of one folder have one address: ``admin.kubeconfig`` stays at that of the first while any of them runs,
    unless ``Options.external_url`` says another.
    """
    with ExitStack() as held:
        yield prepare(options, held)


def prepare(options: Options, held: ExitStack | None = None) -> Certificates:
    """Everything that is needed, generating what is not given and not there yet. Safe to call at the same time.

    From ``Options.keys_folder`` it is only read: raises ``UnusableFile`` naming what is missing there. ``held`` gets the
    mark of a server, before anybody else may look for one.
    """
    folder = options.pki_folder
    if options.keys_folder is None:
        with one_at_a_time(folder):
            _make_missing(options, folder)
            if held is not None:
                held.enter_context(_locked(folder / _SERVERS, fcntl.LOCK_SH))
    certificate, key = options.tls_cert_file, options.tls_private_key_file
    if not certificate or not key:
        certificate, key = folder / "server.crt", folder / "server.key"
    signing_key = options.service_account_signing_key_file or folder / "service-account.key"
    made = Certificates(
        certificate,
        key,
        _trusted(options),
        (folder / "client-ca.crt", *((options.client_ca_file,) if options.client_ca_file else ())),
        folder / "client-ca.crt",
        signing_key,
        options.service_account_key_files or (signing_key,),
        options.portal_token_key_file or folder / "portal-tokens.key",
        options.data_folder / "admin.kubeconfig",
    )
    if options.keys_folder is not None:
        needed = (made.server_certificate, made.server_key, made.server_ca, *made.client_cas, *made.verifying_keys)
        missing = [str(path) for path in (*needed, made.signing_key, made.portal_token_key) if not path.is_file()]
        if missing:
            raise UnusableFile(f"{', '.join(missing)}: missing, and nothing is generated beside TENANTRY_KEYS_DIR")
    return made


def _make_missing(options: Options, folder: Path) -> None:
    server_ca = _authority(folder, "ca", "tenantry-ca")
    _authority(folder, "client-ca", "tenantry-client-ca")
    if not options.tls_cert_file or not options.tls_private_key_file:
        _server(folder, server_ca, options)
    if not options.service_account_signing_key_file:
        _signing_key(folder, "service-account")
    if not options.portal_token_key_file:
        _signing_key(folder, "portal-tokens")
    _admin(options)


def _trusted(options: Options) -> Path:
    """What clients verify the server's certificate with."""
    given = options.external_ca_file or (options.tls_cert_file if options.tls_private_key_file else None)
    return given or options.pki_folder / "ca.crt"


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Whoever makes or rotates what is in the folder does it alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(folder / ".lock", fcntl.LOCK_EX):
        yield


@contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    """The kernel lets go when the process ends, however it ends. Raises ``BlockingIOError`` where it must not wait."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, how)
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


def _pair(folder: Path, name: str, make: Callable[[], pki.KeyPair], *, hosts: Sequence[str] = ()) -> pki.KeyPair:
    """The pair of this name; made when it is missing, lacks a host, or ends within a month."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    if certificate.is_file() and key.is_file() and _still_good(certificate.read_bytes(), hosts):
        return pki.KeyPair(certificate.read_bytes(), key.read_bytes())
    made = make()
    _write(key, made.key)
    _write(certificate, made.certificate)
    return made


def _still_good(pem: bytes, hosts: Sequence[str]) -> bool:
    certificate = pki.load_certificates(pem)[0]
    if not pki.is_valid_at(certificate, datetime.now(UTC) + _RENEW_BEFORE):
        return False
    if not hosts:
        return True
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    known = {str(name.value) for name in names}
    return known.issuperset(hosts)


def made_at(path: Path) -> datetime:
    """Since when a file of keys or certificates has what it has: as it says itself, or of a key its certificate.

    Where neither does, by the file's own time, which is that of the copy.
    """
    text, certificate = path.read_bytes(), path.with_suffix(".crt")
    if (said := pki.said_since(text)) is not None:
        return said
    if certificate.is_file() and path.suffix in (".crt", ".key"):
        with suppress(ValueError):
            return pki.load_certificates(certificate.read_bytes())[0].not_valid_before_utc + pki.BACKDATED
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _authority(folder: Path, name: str, common_name: str) -> pki.KeyPair:
    return _pair(folder, name, lambda: pki.make_authority(common_name, now=datetime.now(UTC)))


def _server(folder: Path, authority: pki.KeyPair, options: Options) -> None:
    addresses = {"127.0.0.1", "::1"}
    if not ipaddress.ip_address(options.bind_address).is_unspecified:
        addresses.add(options.bind_address)
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", *options.certificate_names]
    hosts = [*names, *sorted(addresses - set(names))]
    _pair(folder, "server", lambda: pki.make_server_certificate(authority, hosts, now=datetime.now(UTC)), hosts=hosts)


def _signing_key(folder: Path, name: str) -> None:
    path = folder / f"{name}.key"
    if path.is_file():
        return
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write(path, key + pki.since_line(datetime.now(UTC)))


def client_kubeconfig(
    options: Options, user: str, *, server: str = "", organizations: Sequence[str], units: Sequence[str] = ()
) -> str:
    """A kubeconfig for ``user`` with a certificate of the generated client CA, made once and renewed in time.

    ``server`` is ``--external-url``, or the API server's own address, unless given. ``prepare`` has been called before.
    """
    folder = options.pki_folder

    def make() -> pki.KeyPair:
        authority = pki.KeyPair((folder / "client-ca.crt").read_bytes(), (folder / "client-ca.key").read_bytes())
        now = datetime.now(UTC)
        return pki.make_client_certificate(
            authority, user, organizations=organizations, units=units, now=now, lifetime=_CLIENT_LIFETIME
        )

    if options.keys_folder is None:
        client = _pair(folder, user, make)
    else:
        client = pki.KeyPair((folder / f"{user}.crt").read_bytes(), (folder / f"{user}.key").read_bytes())
    host = "127.0.0.1" if ipaddress.ip_address(options.bind_address).is_unspecified else options.bind_address
    server = server or options.external_url.rstrip("/")
    if not server:
        server = f"https://{f'[{host}]' if ':' in host else host}:{options.secure_port}"
    wanted = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "tenantry",
                "cluster": {"server": server, "certificate-authority-data": _base64(_trusted(options).read_bytes())},
            }
        ],
        "users": [
            {
                "name": user,
                "user": {
                    "client-certificate-data": _base64(client.certificate),
                    "client-key-data": _base64(client.key),
                },
            }
        ],
        "contexts": [{"name": "tenantry", "context": {"cluster": "tenantry", "user": user}}],
        "current-context": "tenantry",
    }
    return orjson.dumps(wanted, option=orjson.OPT_INDENT_2).decode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _admin(options: Options) -> None:
    """The operators' kubeconfig; rewritten when the address, the CA or the certificate's time asks for it."""
    path = options.data_folder / "admin.kubeconfig"
    wanted = _admin_kubeconfig(options)
    there = _address(path.read_bytes()) if path.is_file() else ""
    if there and there != _address(wanted) and not options.external_url and _has_servers(options.pki_folder):
        logger.warning(
            "%s stays at %s, for another server of this data folder runs; clients find this one there only where that "
            "address leads to both: --permit-port-sharing, or --external-url of what stands before them",
            path,
            there,
        )
        wanted = _admin_kubeconfig(options, server=there)
    if not path.is_file() or path.read_bytes() != wanted:
        _write(path, wanted)


def _admin_kubeconfig(options: Options, *, server: str = "") -> bytes:
    config = client_kubeconfig(
        options, _ADMIN_USER, server=server, organizations=["tenant:system"], units=["system:masters"]
    )
    return config.encode()


def _address(kubeconfig: bytes) -> str:
    """Where a kubeconfig of ours leads to; empty for one that somebody has made into another."""
    try:
        return str(orjson.loads(kubeconfig)["clusters"][0]["cluster"]["server"])
    except (ValueError, LookupError, TypeError):
        return ""


def _has_servers(folder: Path) -> bool:
    """Whether a server of this folder runs now."""
    try:
        with _locked(folder / _SERVERS, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return False
    except BlockingIOError:
        return True
