"""The keys of service accounts' tokens: several that verify, so that one can take over from another, one that signs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from access.reloading import CHECK_SECONDS, ReloadedFile
from kube.authentication.serviceaccounttokens import SigningKey, VerifyingKey, load_signing_key, load_verifying_keys

logger = logging.getLogger(__name__)


class KeyFiles:
    """The keys in some PEM files, read again within a second of a change (AN6, JWT-22).

    Making it reads the files, or raises ``UnusableFile``. A file that is wrong later changes nothing and is logged.
    """

    def __init__(self, verifying: Sequence[Path], signing: Path) -> None:
        self._verifying = tuple(ReloadedFile(path, load_verifying_keys) for path in verifying)
        self._signing = ReloadedFile(signing, load_signing_key, secret=True)
        self._signer = self._signing.value
        if not self._lists(self._signer):
            logger.error("%s: no verifying key belongs to it, so nobody will accept the tokens that it signs", signing)

    @property
    def keys(self) -> tuple[VerifyingKey, ...]:
        """Every key that verifies, in the order of the files, each once."""
        return tuple({key.kid: key for file in self._verifying for key in file.value}.values())

    @property
    def signer(self) -> SigningKey:
        """The key that signs: the file's, from the moment at which its public key is among ``keys``."""
        return self._signer

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Read the files again when they change, until cancelled; ``on_change`` is called when other keys verify."""
        known = self.keys
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for file in self._verifying:
                await file.current(time.time())
            newest = await self._signing.current(time.time())
            if newest is not self._signer and self._lists(newest):
                self._signer = newest
            if (keys := self.keys) != known:
                known = keys
                on_change()

    def _lists(self, signer: SigningKey) -> bool:
        return any(key.kid == signer.public.kid for key in self.keys)
