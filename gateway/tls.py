"""The server's TLS: its certificate and its client CAs, read again when their files change (AN1)."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import uvicorn
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from access.reloading import CHECK_SECONDS, UnusableFile
from gateway.certificates import Certificates
from kube import pki

logger = logging.getLogger(__name__)

_UNUSABLE: Final = (OSError, ValueError)


class Context(ssl.SSLContext):
    """A context that knows the client CAs by which it verifies."""

    authorities: frozenset[x509.Certificate] = frozenset()


def tls_context(certificate: Path, key: Path, client_cas: Iterable[Path]) -> Context:
    """TLS 1.2 or newer; a client certificate is optional, and verified against the client CAs when shown.

    Any certificate of ``client_cas`` is an anchor, an intermediate one too, as for kube-apiserver. No session is
    resumed by a ticket: it would bring back a certificate that nobody verifies again.
    """
    context = Context(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    context.authorities = frozenset(
        found for bundle in client_cas for found in pki.load_certificates(bundle.read_bytes())
    )
    context.load_verify_locations(cadata=b"".join(each.public_bytes(Encoding.DER) for each in context.authorities))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    return context


class ServerTls:
    """TLS of one worker process, as uvicorn's ``ssl_context_factory``.

    Picklable until the first context is made. Files that are wrong after a change are logged, and what was read last
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
        first = self.check()

        def switch(connection: ssl.SSLObject, _name: str | None, _first: ssl.SSLContext) -> None:
            if self._context is not None and self._context is not first:
                connection.context = self._context

        first.sni_callback = switch
        return first

    def check(self) -> ssl.SSLContext:
        """A context of what the files hold. Raises ``UnusableFile``."""
        try:
            return self._read()
        except _UNUSABLE as error:
            raise UnusableFile(self._words(error)) from None

    def trusts(self, certificate: bytes, verified_by: ssl.SSLContext | None) -> bool:
        """Whether a client certificate (DER) that ``verified_by`` has accepted would be accepted now.

        It is where no client CA is gone since, so that the chain that was shown then still holds; and where one of
        today's has issued the certificate itself. ``None`` for a certificate that no handshake has verified.
        """
        authorities = self._context.authorities if self._context is not None else frozenset()
        if isinstance(verified_by, Context) and verified_by.authorities <= authorities:
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
                self._read()
            except _UNUSABLE as error:
                logger.error("%s; what was read before stays in force", self._words(error))  # noqa: TRY400
            else:
                logger.info("read the server's certificates again")
                on_change()

    def _read(self) -> ssl.SSLContext:
        files = self._files
        self._context = tls_context(files.server_certificate, files.server_key, files.client_cas)
        return self._context

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
