"""What can be rotated by one command, and what has a command of its own (``docs/operators/operations.md`` has the table)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.fernet import Fernet
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.conf import settings

from audit import checkpoints
from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from portal.quickstart.ownapiserver import GATEWAY_USER
from portal.rotation import authorities, files
from portal.rotation.files import CannotRotate
from tenants.clusters import sealed

_SPREAD: Final = 5.0
_ACTOR = Actor(name="system:command", operator=True)


@dataclass(frozen=True, slots=True)
class Rotation:
    """One kind of key. ``announce`` makes a new one known, ``promote`` uses it, ``finish`` lets the older ones go."""

    name: str
    path: Callable[[], Path | None]
    announce: Callable[[Path], None]
    promote: Callable[[Path, bool], None]
    finish: Callable[[Path], None] | None = None
    announced: Callable[[Path], bool] | None = None
    """Whether something announced waits to be used; ``None`` where nothing is."""
    outlives: float = 0
    """Seconds for which what the key before has signed is still out."""
    known_after: float = 0
    """Seconds until everybody has heard of what is announced, where that is longer than a command waits."""

    let_go: Callable[[Path, Sequence[Path]], None] | None = None
    """Looks whether the older ones may go yet, at what parts elsewhere have written too. Raises ``CannotRotate``."""
    given: Callable[[], None] | None = None
    """``finish`` where the environment gives the keys: afterwards the older ones can be taken out there."""

    def file(self) -> Path:
        """Where it is. Raises ``CannotRotate`` where no file holds it."""
        path = self.path()
        if path is None:
            then = "" if self.given is None else " Then run this with --finish, before the old one is taken out."
            raise CannotRotate(
                f"{self.name}: given by the environment; change it there, the new one before the old.{then}"
            )
        if not path.is_file():
            raise CannotRotate(
                f"{path} is not there: set TENANTRY_KEYS_DIR or TENANTRY_DATA_DIR to where the keys are."
            )
        return path


def _checkpoint_key_announce(path: Path) -> None:
    files.marked_block_announce(path, checkpoints.private_pem(Ed25519PrivateKey.generate()))


def _checkpoint_key_promote(path: Path, _revoke: bool) -> None:
    """What the worker writes next hands its file over to the new key, with the one before, which therefore stays."""
    public = path.with_name(path.name + checkpoints.PUBLIC_SUFFIX)
    # First: what was interrupted is done again, for as long as the key is announced.
    public.write_bytes(checkpoints.public_pem(checkpoints.private_keys(path, make=False)[-1]))
    files.block_promote(path)


def _checkpoint_key_let_go(path: Path, ends: Sequence[Path]) -> None:
    """Each worker's file has a last line by the new key: one that had none could never be written to again."""
    own = settings.AUDIT_CHECKPOINTS_FILE
    if not ends and settings.KEYS_DIR is not None and not own.is_file():
        raise CannotRotate(
            f"Each worker writes a file of its own, and {own} is not here: bring the last line of each (tail -n 1), "
            "and name all of them by --checkpoints."
        )
    if missing := [str(file) for file in ends if not file.is_file()]:
        raise CannotRotate(f"{', '.join(missing)}: not there.")
    first = checkpoints.private_keys(path, make=False)[0]
    if behind := [str(file) for file in ends or [own] if not checkpoints.goes_by(file, first)]:
        raise CannotRotate(
            f"{', '.join(behind)}: was not handed over to the new key yet. That is done with the next checkpoint that its "
            "worker writes; workers take turns, once a minute while there are audit entries. Finish then."
        )


def _seal_anew(path: Path, _revoke: bool) -> None:
    files.line_promote(path)
    sealed.reseal()


def _sealing_finish(path: Path | None) -> None:
    """Only where nothing is left that the first key does not open, and an older one does."""
    while sealed.reseal():
        pass  # until nobody was in between
    if left := sealed.recordings_behind():
        raise CannotRotate(
            f"{len(left)} recordings are sealed with older keys, and go within RECORDINGS_KEEP_DAYS "
            f"({settings.RECORDINGS_KEEP_DAYS} days): finish then. Backups of that time need the older keys as well: keep a copy."
        )
    if path is not None:
        files.line_keep_first(path)


def _signing(name: str, path: Callable[[], Path | None], outlives: float) -> Rotation:
    return Rotation(
        name,
        path,
        files.signing_key_announce,
        lambda file, revoke: files.signing_key_promote(file, revoke=revoke),
        announced=files.signing_key_announced,
        outlives=outlives,
    )


ROTATIONS: Final = {
    each.name: each
    for each in (
        _signing("service-account-key", lambda: settings.PKI_DIR / "service-account.key", 86_400),
        _signing("portal-token-key", lambda: settings.PORTAL_TOKEN_KEY_FILE, 7_200),
        Rotation(
            "server-certificate",
            lambda: settings.PKI_DIR / "server.crt",
            lambda _: None,
            lambda path, _revoke: authorities.server_certificate_make(path),
        ),
        Rotation(
            "client-certificates",
            lambda: settings.PKI_DIR / f"{GATEWAY_USER}.crt",
            lambda _: None,
            lambda path, _revoke: authorities.client_certificates_make(path.parent),
        ),
        Rotation(
            "server-ca",
            lambda: settings.PKI_DIR / "ca.crt",
            authorities.announce,
            authorities.server_ca_promote,
            authorities.finish,
            authorities.announced,
            known_after=7_200,  # kubeconfigs from before know the old one alone, and last as long
        ),
        Rotation(
            "client-ca",
            lambda: settings.PKI_DIR / "client-ca.crt",
            authorities.announce,
            authorities.client_ca_promote,
            authorities.finish,
            authorities.announced,
        ),
        Rotation(
            "audit-checkpoint-key",
            lambda: settings.AUDIT_CHECKPOINTS_KEY_FILE,
            _checkpoint_key_announce,
            _checkpoint_key_promote,
            files.block_keep_first,
            files.marked_block_announced,
            let_go=_checkpoint_key_let_go,
        ),
        Rotation(
            "sealing-keys",
            lambda: settings.SEALING_KEYS_FILE,
            lambda path: files.line_announce(path, Fernet.generate_key().decode()),
            _seal_anew,
            _sealing_finish,
            files.line_announced,
            given=lambda: _sealing_finish(None),
        ),
        Rotation(
            "secret-key",
            lambda: settings.SECRET_KEY_FILE,
            lambda path: files.line_announce(path, secrets.token_urlsafe(50)),
            lambda path, _revoke: files.line_promote(path),
            files.line_keep_first,
            files.line_announced,
        ),
    )
}


def rotate(name: str, *, step: str, spread: float | None, revoke: bool, ends: Sequence[Path] = ()) -> str:
    """Announce, wait until everybody knows, promote; or one of these, or ``finish``. Audited. Raises ``CannotRotate``.

    ``spread`` are the seconds to wait in between, ``None`` the usual ones. Where that is longer than a command waits,
    "both" announces when it is asked first, and promotes when it is asked again in time. ``ends`` is what parts elsewhere
    have written, where ``finish`` has to see it. Answers what it has done. A step that is not due, as one that was done
    before, is refused and changes nothing.
    """
    rotation = ROTATIONS[name]
    if step == "finish" and rotation.given is not None and rotation.path() is None:
        _record(name, step, revoke)
        rotation.given()
        return step
    path = rotation.file()
    if rotation.known_after and step in ("both", "promote"):
        step = _step_in_time(rotation, path, step, rotation.known_after if spread is None else spread)
    _require_due(rotation, path, step)
    young = rotation.outlives - (time.time() - files.since(path))
    if step in ("announce", "both") and young > 0 and b"PUBLIC KEY" in path.read_bytes() and not revoke:
        raise CannotRotate(
            f"{name} was rotated lately, and tokens of the key before are out for another {young / 3600:.0f} hours: "
            "wait, or end them with --revoke."
        )
    if step == "finish" and rotation.finish is None:
        raise CannotRotate(f"{name} has nothing to finish: the next rotation lets go of the key before.")
    if step == "finish" and rotation.let_go is not None:
        rotation.let_go(path, ends)
    _record(name, step, revoke)
    if step == "finish" and rotation.finish is not None:
        rotation.finish(path)
    if step in ("announce", "both"):
        rotation.announce(path)
    if step == "both":
        time.sleep(_SPREAD if spread is None else spread)
    if step in ("promote", "both"):
        rotation.promote(path, revoke)
    return step


def _record(name: str, step: str, revoke: bool) -> None:
    """Before it is done: nothing changes unseen where the database does not answer."""
    _ACTOR.record(
        Action.KEY_ROTATED, chain=SYSTEM_CHAIN, target=f"keys/{name}", detail={"step": step, "revoked": revoke}
    )


def _require_due(rotation: Rotation, path: Path, step: str) -> None:
    if rotation.announced is None:
        return
    announced = rotation.announced(path)
    if announced and step in ("announce", "both"):
        raise CannotRotate(f"{path} has one announced already: go on with --step promote.")
    if announced and step == "finish":
        raise CannotRotate(f"{path} has one announced, which would be lost: promote it first.")
    if not announced and step == "promote":
        raise CannotRotate(f"{path} has none announced, or it is in use by now: run the step announce first.")


def _step_in_time(rotation: Rotation, path: Path, step: str, wait: float) -> str:
    if not authorities.announced(path):
        return "announce" if step == "both" else step
    left = wait - (time.time() - authorities.announced_at(path))
    if left > 0:
        raise CannotRotate(
            f"{rotation.name} was announced lately, and files from before know the old one alone for another "
            f"{left / 60:.0f} minutes: wait, or say by --spread for how long there are any."
        )
    return "promote"
