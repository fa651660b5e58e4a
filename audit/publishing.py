"""Writes checkpoints of the chains' heads to a file, and sends them on to whoever keeps them elsewhere (GW13)."""

from __future__ import annotations

import logging
import os
import re
from datetime import datetime
from pathlib import Path
from typing import Final

import urllib3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from django.conf import settings

from audit.checkpoints import Checkpoint, append, digest_of, lines_after, private_keys
from audit.selectors import chain_heads

logger = logging.getLogger(__name__)

_TIMEOUT: Final = urllib3.Timeout(connect=3, total=10)
_AT_ONCE: Final = 100
"""Checkpoints that one run sends; a sink that was away gets the rest from the next ones."""

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


def checkpoint_write(*, now: datetime) -> Checkpoint | None:
    """Sign the heads that have changed, and send what the sink has not yet; ``None`` when nothing has changed."""
    keys = private_keys(settings.AUDIT_CHECKPOINTS_KEY_FILE)
    written = append(settings.AUDIT_CHECKPOINTS_FILE, keys, chain_heads(), now)
    if settings.AUDIT_CHECKPOINTS_URL:
        _send(settings.AUDIT_CHECKPOINTS_URL, keys[0].public_key())
    return written


def _send(url: str, key: Ed25519PublicKey) -> None:
    """POST each line in order; the first that is not taken (2xx) ends the run, and is the next one's first."""
    file = settings.AUDIT_CHECKPOINTS_FILE
    # The release before reads the number; by the digest a file that was begun anew is known.
    number_mark, digest_mark = (file.with_name(f"{file.name}.{suffix}") for suffix in ("sent", "sent-digest"))
    said = _said(number_mark)
    sent = int(said) if _NUMBER.fullmatch(said) else 0
    headers = {"Content-Type": "application/json"}
    if settings.AUDIT_CHECKPOINTS_TOKEN:
        headers["Authorization"] = f"Bearer {settings.AUDIT_CHECKPOINTS_TOKEN}"
    with urllib3.PoolManager(timeout=_TIMEOUT) as pool:
        for number, line in lines_after(file, sent, key, digest=_said(digest_mark))[:_AT_ONCE]:
            try:
                answer = pool.request("POST", url, body=line, headers=headers, redirect=False, retries=False)
            except urllib3.exceptions.HTTPError as error:
                logger.warning("checkpoint %d of the audit was not sent: %s", number, type(error).__name__)
                return
            if not 200 <= answer.status < 300:  # taken, in HTTP's words
                logger.warning("checkpoint %d of the audit was not taken: %d", number, answer.status)
                return
            # In this order: a digest of the new file beside a number of the old one would skip what lies between.
            _say(number_mark, str(number))
            _say(digest_mark, digest_of(line))


def _said(mark: Path) -> str:
    return mark.read_text(errors="replace").strip() if mark.is_file() else ""


def _say(mark: Path, words: str) -> None:
    """In its place whole: whoever ends in between leaves what was there."""
    temporary = mark.with_name(f"{mark.name}.{os.getpid()}")
    temporary.write_text(words)
    temporary.replace(mark)
