"""What can be rotated by one command, and what has a command of its own (``docs/operations.md`` has the table)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.db import transaction

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.authentication import pki
from portal.rotation import files
from portal.rotation.files import CannotRotate
from tenants.clusters import encryption
from tenants.models import Cluster, RecordingChunk

_ACTOR = Actor(name="system:command", operator=True)


@dataclass(frozen=True, slots=True)
class Rotation:
    """One kind of key. ``announce`` makes a new one known, ``promote`` uses it, ``finish`` lets the older ones go."""

    name: str
    path: Callable[[], Path | None]
    announce: Callable[[Path], None]
    promote: Callable[[Path, bool], None]
    finish: Callable[[Path], None] | None = None
    outlives: float = 0
    """Seconds for which what the key before has signed is still out."""

    def file(self) -> Path:
        """Where it is. Raises ``CannotRotate`` where no file holds it."""
        path = self.path()
        if path is None:
            raise CannotRotate(f"{self.name}: given by the environment; change it there, the new one before the old.")
        if not path.is_file():
            raise CannotRotate(
                f"{path} is not there: set TENANTRY_KEYS_DIR or TENANTRY_DATA_DIR to where the keys are."
            )
        return path


def _server_certificate(path: Path, _revoke: bool) -> None:
    """Another key and certificate of the same names, by the generated authority; servers follow within a second."""
    folder = path.parent
    if not (folder / "ca.key").is_file():
        raise CannotRotate(f"{folder / 'ca.key'} is not there: bring the authority's key, or let cert-manager renew.")
    authority = pki.KeyPair((folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes())
    old = pki.load_certificates(path.read_bytes())[0]
    names = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    made = pki.make_server_certificate(authority, [str(each.value) for each in names], now=datetime.now(UTC))
    files.write(folder / "server.key", made.key)
    files.write(path, made.certificate)


def _seal_anew(path: Path, _revoke: bool) -> None:
    files.line_promote(path)
    credentials_reseal()


def credentials_reseal() -> int:
    """Every cluster's credential under the first key; how many. What it says stays as it was."""
    count = 0
    for key in Cluster.objects.exclude(sealed_credential=None).values_list("pk", flat=True):
        with transaction.atomic():
            cluster = Cluster.objects.select_for_update(no_key=True).get(pk=key)
            if cluster.sealed_credential is not None:
                cluster.sealed_credential = encryption.rotate(cluster.sealed_credential)
                cluster.save(update_fields=["sealed_credential"])
                count += 1
    return count


def _sealing_finish(path: Path) -> None:
    """Only where nothing is left that the first key does not open."""
    first = MultiFernet([Fernet(files.lines(path)[0])])
    credentials_reseal()
    left = set()
    for chunk in RecordingChunk.objects.order_by("recording_id", "number").iterator(chunk_size=100):
        try:
            encryption.opened_by(first, chunk.sealed)
        except encryption.DecryptionError:
            left.add(chunk.recording_id)
    if left:
        raise CannotRotate(
            f"{len(left)} recordings are sealed with older keys, and go within RECORDINGS_KEEP_DAYS "
            f"({settings.RECORDINGS_KEEP_DAYS} days): finish then. Backups of that time need the older keys as well: keep a copy."
        )
    files.line_keep_first(path)


def _signing(name: str, path: Callable[[], Path | None], outlives: float) -> Rotation:
    return Rotation(
        name,
        path,
        files.signing_key_announce,
        lambda file, revoke: files.signing_key_promote(file, revoke=revoke),
        None,
        outlives,
    )


ROTATIONS: Final = {
    each.name: each
    for each in (
        _signing("service-account-key", lambda: settings.PKI_DIR / "service-account.key", 86_400),
        _signing("portal-token-key", lambda: settings.PORTAL_TOKEN_KEY_FILE, 7_200),
        Rotation("server-certificate", lambda: settings.PKI_DIR / "server.crt", lambda _: None, _server_certificate),
        Rotation(
            "sealing-keys",
            lambda: settings.SEALING_KEYS_FILE,
            lambda path: files.line_announce(path, Fernet.generate_key().decode()),
            _seal_anew,
            _sealing_finish,
        ),
        Rotation(
            "secret-key",
            lambda: settings.SECRET_KEY_FILE,
            lambda path: files.line_announce(path, secrets.token_urlsafe(50)),
            lambda path, _revoke: files.line_promote(path),
            files.line_keep_first,
        ),
    )
}


def rotate(name: str, *, step: str, spread: float, revoke: bool) -> None:
    """Announce, wait until everybody knows, promote; or one of these, or ``finish``. Audited. Raises ``CannotRotate``."""
    rotation = ROTATIONS[name]
    path = rotation.file()
    young = rotation.outlives - (time.time() - path.stat().st_mtime)
    if step in ("announce", "both") and young > 0 and b"PUBLIC KEY" in path.read_bytes() and not revoke:
        raise CannotRotate(
            f"{name} was rotated lately, and tokens of the key before are out for another {young / 3600:.0f} hours: "
            "wait, or end them with --revoke."
        )
    if step == "finish" and rotation.finish is None:
        raise CannotRotate(f"{name} has nothing to finish: the next rotation lets go of the key before.")
    # Recorded first: nothing changes unseen where the database does not answer.
    _ACTOR.record(
        Action.KEY_ROTATED, chain=SYSTEM_CHAIN, target=f"keys/{name}", detail={"step": step, "revoked": revoke}
    )
    if step == "finish" and rotation.finish is not None:
        rotation.finish(path)
    if step in ("announce", "both"):
        rotation.announce(path)
    if step == "both":
        time.sleep(spread)
    if step in ("promote", "both"):
        rotation.promote(path, revoke)
