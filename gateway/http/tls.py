"""The server's TLS: its certificate and its client CAs, read again when their files change (AN1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cryptography import x509

from access.reloading import CHECK_SECONDS, UnusableFile, report_exposed
from gateway.http.certificates import Certificates
from gateway.http.handshakes import Trust
from kube.authentication import pki

logger = logging.getLogger(__name__)

_UNUSABLE: Final = (OSError, ValueError)


def read_trust(files: Certificates) -> Trust:
    """What the files hold; raises ``OSError`` or ``ValueError``."""
    report_exposed(files.server_key, files.server_key.stat().st_mode)
    bundles = (pki.load_certificates(bundle.read_bytes()) for bundle in files.client_cas)
    return Trust(
        files.server_certificate, files.server_key, (certificate for bundle in bundles for certificate in bundle)
    )


class ServerTls:
    """TLS of one worker process: TLS 1.2 or newer, client certificates optional.

    Picklable until it is started. Files that are wrong after a change are logged, and what was read last stays in
    force.
    """

    def __init__(self, certificates: Certificates) -> None:
        self._files = certificates
        self._paths = (certificates.server_certificate, certificates.server_key, *certificates.client_cas)
        self._trust: Trust | None = None
        self._stamps: object = None

    def start(self) -> None:
        """Read the files. Raises ``UnusableFile``."""
        self._stamps = self._look()
        self._trust = self.check()

    @property
    def trust(self) -> Trust:
        """By what handshakes go, once it is started."""
        if self._trust is None:
            raise RuntimeError("start it first")
        return self._trust

    def check(self) -> Trust:
        """What the files hold. Raises ``UnusableFile``."""
        try:
            return read_trust(self._files)
        except _UNUSABLE as error:
            raise UnusableFile(self._words(error)) from None

    def trusts(self, certificate: bytes, verified_by: Trust) -> bool:
        """Whether a client certificate (DER) that ``verified_by`` has accepted would be accepted now.

        It is where no client CA is gone since, so that the chain that was shown then still holds; and where one of
        today's has issued the certificate itself.
        """
        authorities = self.trust.authorities
        if verified_by.authorities <= authorities:
            return True
        shown = x509.load_der_x509_certificate(certificate)
        return any(pki.is_issued_by(shown, authority) for authority in authorities)

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Look for changes until cancelled; ``on_change`` is called after each."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            stamps = self._look()
            if stamps == self._stamps:
                continue
            self._stamps = stamps
            try:
                self._trust = read_trust(self._files)
            except _UNUSABLE as error:
                logger.error("%s; what was read before stays in force", self._words(error))  # noqa: TRY400
            else:
                logger.info("read the server's certificates again")
                on_change()

    def _look(self) -> object:
        stamps: list[object] = []
        for path in self._paths:
            try:
                status = path.stat()
            except OSError:
                stamps.append(None)
            else:
                stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return stamps

    def _words(self, error: Exception) -> str:
        return f"the server's certificates ({', '.join(map(str, self._paths))}) cannot be used: {error}"
