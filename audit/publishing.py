"""Writes checkpoints of the chains' heads to a file, and sends them on to whoever keeps them elsewhere (GW13)."""

from __future__ import annotations

import logging
from datetime import datetime
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
    mark = file.with_name(f"{file.name}.sent")
    sent, digest = (*(mark.read_text() if mark.is_file() else "0").split(), "")[:2]
    headers = {"Content-Type": "application/json"}
    if settings.AUDIT_CHECKPOINTS_TOKEN:
        headers["Authorization"] = f"Bearer {settings.AUDIT_CHECKPOINTS_TOKEN}"
    with urllib3.PoolManager(timeout=_TIMEOUT) as pool:
        for number, line in lines_after(file, int(sent), key, digest=digest)[:_AT_ONCE]:
            try:
                answer = pool.request("POST", url, body=line, headers=headers, redirect=False, retries=False)
            except urllib3.exceptions.HTTPError as error:
                logger.warning("checkpoint %d of the audit was not sent: %s", number, type(error).__name__)
                return
            if not 200 <= answer.status < 300:  # taken, in HTTP's words
                logger.warning("checkpoint %d of the audit was not taken: %d", number, answer.status)
                return
            mark.write_text(f"{number} {digest_of(line)}")
