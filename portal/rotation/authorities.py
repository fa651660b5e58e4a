"""The two generated authorities: whom clients trust (``ca``), and whose client certificates the server trusts (``client-ca``).

Each bundle begins with the authority that signs, and its key with that one's; the others behind it are trusted alone. So
an announced one is known everywhere before it signs, and the one before stays trusted until ``finish``.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from django.conf import settings

from gateway.http.certificates import one_at_a_time
from kube.authentication import pki
from portal.quickstart import ownapiserver
from portal.rotation import files
from portal.rotation.files import CannotRotate

_NAMES: Final = {"ca": "tenantry-ca", "client-ca": "tenantry-client-ca"}


def announce(bundle: Path) -> None:
    """Another authority behind the one that signs. Raises ``CannotRotate`` where one is announced already."""
    key = _key_of(bundle)
    with one_at_a_time(bundle.parent):
        if announced(bundle):
            raise CannotRotate(f"{bundle} has an announced authority: go on with --step promote.")
        made = pki.make_authority(_NAMES[bundle.stem], now=datetime.now(UTC))
        files.block_announce(key, files.since_line() + made.key)
        files.block_announce(bundle, made.certificate)
        _tell(bundle)


def announced(bundle: Path) -> bool:
    """Whether the last authority of the bundle is waiting to sign: the one before has let go of its key."""
    return len(pki.pem_blocks(_key_of(bundle).read_bytes())) > 1


def announced_at(bundle: Path) -> float:
    """When it was, in seconds since 1970."""
    return files.since(_key_of(bundle))


def server_ca_promote(bundle: Path, revoke: bool) -> None:
    """The announced authority signs, first of all the server's certificate anew, for the names that it has."""
    with one_at_a_time(bundle.parent):
        authority = _promote(bundle, revoke)
        server_certificate_make(bundle.parent / "server.crt", authority)
        _tell(bundle)


def client_ca_promote(bundle: Path, revoke: bool) -> None:
    """The announced authority signs, first of all every client certificate in the folder anew, for whom it names."""
    with one_at_a_time(bundle.parent):
        _clients_make(bundle.parent, _promote(bundle, revoke))
        _tell(bundle)


def client_certificates_make(folder: Path) -> None:
    """Every client certificate in the folder anew, by the authority that signs; those before are believed until they end."""
    bundle = folder / "client-ca.crt"
    with one_at_a_time(folder):
        _clients_make(folder, pki.KeyPair(bundle.read_bytes(), _key_of(bundle).read_bytes()))
        _tell(bundle)


def finish(bundle: Path) -> None:
    """Only the authority that signs is trusted from now on. Raises ``CannotRotate`` while another one is announced."""
    if announced(bundle):
        raise CannotRotate(f"{bundle} has an announced authority, which would be lost: promote it first.")
    with one_at_a_time(bundle.parent):
        files.block_keep_first(bundle)
        _tell(bundle)


def server_certificate_make(path: Path, authority: pki.KeyPair | None = None) -> None:
    """Another key and certificate of the same names, by the generated authority; servers follow within a second."""
    if authority is None:
        bundle = path.parent / "ca.crt"
        authority = pki.KeyPair(bundle.read_bytes(), _key_of(bundle).read_bytes())
    old = pki.load_certificates(path.read_bytes())[0]
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    made = pki.make_server_certificate(authority, [str(each.value) for each in names], now=datetime.now(UTC))
    files.write(path.with_suffix(".key"), made.key)
    files.write(path, made.certificate)


def _key_of(bundle: Path) -> Path:
    key = bundle.with_suffix(".key")
    if not key.is_file():
        raise CannotRotate(f"{key} is not there: bring the authority's key, or let cert-manager renew.")
    return key


def _promote(bundle: Path, revoke: bool) -> pki.KeyPair:
    """The last key and its certificate first; a promotion that was interrupted is done again from where it ended."""
    key = _key_of(bundle)
    if not announced(bundle):
        raise CannotRotate(f"{bundle} has no announced authority: run the step announce first.")
    new = pki.pem_blocks(key.read_bytes())[-1]
    public = serialization.load_pem_private_key(new, None).public_key()
    blocks = pki.pem_blocks(bundle.read_bytes())
    first = [block for block in blocks if x509.load_pem_x509_certificate(block).public_key() == public]
    others = [block for block in blocks if block not in first]
    if not first:
        raise CannotRotate(f"{bundle} lacks the certificate of the last key in {key}: bring both of one time.")
    files.write(bundle, b"".join(first if revoke else (*first, *others)))
    files.write(key, new)
    return pki.KeyPair(first[0], new)


def _clients(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*.crt")):
        if pki.is_of_client(pki.load_certificates(path.read_bytes())[0]) and path.with_suffix(".key").is_file():
            yield path


def _clients_make(folder: Path, authority: pki.KeyPair) -> None:
    for certificate in _clients(folder):
        _client_make(certificate, authority)


def _client_make(path: Path, authority: pki.KeyPair) -> None:
    old = pki.load_certificates(path.read_bytes())[0]

    def of(name: x509.ObjectIdentifier) -> list[str]:
        return [str(each.value) for each in old.subject.get_attributes_for_oid(name)]

    made = pki.make_client_certificate(
        authority,
        of(NameOID.COMMON_NAME)[0],
        organizations=of(NameOID.ORGANIZATION_NAME),
        units=of(NameOID.ORGANIZATIONAL_UNIT_NAME),
        now=datetime.now(UTC),
        lifetime=old.not_valid_after_utc - old.not_valid_before_utc - pki.BACKDATED,
    )
    files.write(path.with_suffix(".key"), made.key)
    files.write(path, made.certificate)


def _tell(bundle: Path) -> None:
    """Who holds a copy: the operators' kubeconfig, and the portal's credential of the API server."""
    path = bundle.parent.parent / "admin.kubeconfig"
    if path.is_file() and (bundle.parent / "admin.crt").is_file():
        files.write(path, _with_files_of(bundle.parent, orjson.loads(path.read_bytes())))
    ownapiserver.cluster_renew()


def _with_files_of(folder: Path, config: dict[str, Any]) -> bytes:
    if settings.APISERVER_CA_FILE is None:
        config["clusters"][0]["cluster"]["certificate-authority-data"] = _base64(folder / "ca.crt")
    config["users"][0]["user"] = {
        "client-certificate-data": _base64(folder / "admin.crt"),
        "client-key-data": _base64(folder / "admin.key"),
    }
    return orjson.dumps(config, option=orjson.OPT_INDENT_2)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
