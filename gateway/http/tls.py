"""The server's TLS: its certificate and its client CAs, read again when their files change (AN1)."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

import uvicorn
from cryptography import x509

from access.reloading import CHECK_SECONDS, UnusableFile, report_exposed
from gateway.http.certificates import Certificates
from gateway.http.handshakes import Context, Trust
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
    """TLS of one worker process, as uvicorn's ``ssl_context_factory``: TLS 1.2 or newer, client certificates optional.

    Picklable until the context is made. Files that are wrong after a change are logged, and what was read last
    stays in force.
    """

    def __init__(self, certificates: Certificates) -> None:
        self._files = certificates
        self._paths = (certificates.server_certificate, certificates.server_key, *certificates.client_cas)
        self._context: Context | None = None
        self._stamps: object = None

    def __call__(self, _config: uvicorn.Config, _default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        """The context to listen with; handshakes after a change go by the files' new content.

        Raises ``UnusableFile``.
        """
        self._stamps = self._look()
        self._context = Context(ssl.PROTOCOL_TLS_SERVER)
        self._context.trust = self.check()
        return self._context

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
        authorities = self._context.trust.authorities if self._context is not None else frozenset()
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
                trust = read_trust(self._files)
            except _UNUSABLE as error:
                logger.error("%s; what was read before stays in force", self._words(error))  # noqa: TRY400
            else:
                if self._context is not None:
                    self._context.trust = trust
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
