"""Keys and certificates: there, whole, of an age, and nobody else's to read.

With ``TENANTRY_KEYS_DIR`` (a Pod) each part has the keys that it needs and no others: what is missing there is said to be so,
and is no fault of the part.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import serialization
from django.conf import settings

from gateway.http.certificates import made_at
from kube.authentication import pki
from portal.doctor.findings import Finding, elsewhere, failed, ok, some, warning
from tenants.clusters import encryption, sealed

_SECRET_LENGTH: Final = 40
_OLD: Final = timedelta(days=400)
_SOON: Final = timedelta(days=30)
_EVERYBODY: Final = 0o007


def secret_key() -> Iterator[Finding]:
    """SECRET_KEY, which signs sessions, is set, and long."""
    if not settings.SECRET_KEY_IS_SET and _is_part():
        yield elsewhere(
            "secret-key", "this part signs no sessions", "Ask where the portal runs: manage.py doctor secret-key."
        )
    elif not settings.SECRET_KEY_IS_SET:
        yield failed("secret-key", "there is none", "Set SECRET_KEY, or put it into the folder of the keys.")
    elif len(settings.SECRET_KEY) < _SECRET_LENGTH:
        yield warning("secret-key", "it is short", f"Set a random SECRET_KEY of at least {_SECRET_LENGTH} characters.")
    else:
        yield ok("secret-key", "set")


def _is_part() -> bool:
    """Whether a folder with keys of this part alone was given, instead of the installation's own."""
    return settings.KEYS_DIR is not None


def sealing_keys() -> Iterator[Finding]:
    """The sealing keys are of the right form, and all that is sealed to stay opens with the first of them."""
    keys = encryption.keys()
    if not keys:
        yield failed(
            "sealing-keys", "there is none", "Set TENANTRY_SEALING_KEYS to what the installation was made with."
        )
        return
    try:
        for key in keys:
            Fernet(key)
    except ValueError:
        yield failed("sealing-keys", "one is no Fernet key", "Put right what TENANTRY_SEALING_KEYS says.")
        return
    behind, lost = [], []
    for each in sealed.lasting():
        try:
            encryption.decrypt(each.content)
        except encryption.DecryptionError:
            lost.append(each.name)
            continue
        if encryption.is_behind(each.content):
            behind.append(each.name)
    if lost:
        yield failed(
            "sealing-keys",
            f"what is kept of these opens with none of them: {some(lost)}",
            "Put the key that sealed it back, behind the newer ones; or register the cluster again, remove the second"
            " factor, make the webhook anew.",
        )
    elif behind:
        yield warning(
            "sealing-keys",
            f"what is kept of these is sealed with an older key: {some(behind)}",
            "Run manage.py rotate sealing-keys --finish, then take the older key out.",
        )
    else:
        yield ok("sealing-keys", f"{len(keys)}, all that stays opens with the first")


def key_files() -> Iterator[Finding]:
    """Files with keys: what is needed here is there, can be read as a key, and is closed to others."""
    found = {path for path in (*settings.PKI_DIR.glob("*.key"), *settings.SECRET_FILES) if path.is_file()}
    found |= {path for path in (settings.PORTAL_TOKEN_KEY_FILE, settings.AUDIT_CHECKPOINTS_KEY_FILE) if path.is_file()}
    if not found and _is_part():
        yield failed(
            "key-files",
            f"{settings.KEYS_DIR} holds no key",
            "Mount this part's entries of the Secret with the keys where TENANTRY_KEYS_DIR says.",
        )
        return
    if not settings.PORTAL_TOKEN_KEY_FILE.is_file() and _is_part():
        yield elsewhere(
            "key-files",
            f"this part issues no kubeconfigs and has no {settings.PORTAL_TOKEN_KEY_FILE.name}",
            "Ask where the portal runs: manage.py doctor key-files.",
        )
    elif not settings.PORTAL_TOKEN_KEY_FILE.is_file():
        yield failed(
            "key-files",
            f"{settings.PORTAL_TOKEN_KEY_FILE} is missing: no kubeconfig can be issued",
            "Run manage.py bootstrap, or name the file by PORTAL_TOKEN_KEY_FILE.",
        )
    wrong = False
    for path in sorted(found):
        state = path.stat()
        if state.st_mode & _EVERYBODY:
            wrong = True
            remedy = f"Run chmod o= {path}"
            if _is_part():
                remedy += ", or give the volume the defaultMode 0440"
            yield failed("key-files", f"{path} is open to everybody on this host", f"{remedy}.")
        if path.suffix == ".key" and not _is_key(path):
            wrong = True
            yield failed("key-files", f"{path} holds no key", "Put the file back from your copy of the keys.")
        if datetime.now(UTC) - made_at(path) > _OLD:
            wrong = True
            yield warning(
                "key-files", f"{path} is older than {_OLD.days} days", "Rotate it: manage.py rotate says how."
            )
    if not wrong:
        yield ok("key-files", f"{len(found)}, none open to others")


def _is_key(path: Path) -> bool:
    try:
        serialization.load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        return False
    return True


def certificates() -> Iterator[Finding]:
    """None of the certificates has ended, nor ends within a month."""
    files = sorted(settings.PKI_DIR.glob("*.crt"))
    given = settings.APISERVER_CA_FILE
    if given is not None and given.is_file():
        files.append(given)
    elif given is not None and not _is_part():
        yield failed("certificates", f"{given} is missing", "Put the file back, or right what APISERVER_CA_FILE says.")
    if not files:
        yield elsewhere(
            "certificates",
            f"this part has none in {settings.PKI_DIR}",
            "Ask where the API server runs: manage.py doctor certificates.",
        )
    now = datetime.now(UTC)
    ends: list[datetime] = []
    wrong = False
    for path in files:
        try:
            every = pki.load_certificates(path.read_bytes())
        except ValueError:
            wrong = True
            yield failed(
                "certificates", f"{path} holds no certificate", "Put the file back from your copy of the keys."
            )
            continue
        end = min(each.not_valid_after_utc for each in every)
        ends.append(end)
        if end < now:
            wrong = True
            yield failed("certificates", f"{path} ended on {end:%Y-%m-%d}", _renewal(every[0]))
        elif end < now + _SOON:
            wrong = True
            yield warning("certificates", f"{path} ends on {end:%Y-%m-%d}", _renewal(every[0]))
    if not wrong and ends:
        yield ok("certificates", f"{len(ends)}, the first ends on {min(ends):%Y-%m-%d}")


def _renewal(certificate: x509.Certificate) -> str:
    if certificate.issuer == certificate.subject:
        return "Rotate the authority: manage.py rotate says how."
    if pki.is_of_client(certificate):
        return "Run manage.py rotate client-certificates."
    return "Run manage.py rotate server-certificate, or start the server that generated it again."
