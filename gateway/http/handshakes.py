"""TLS whose handshake succeeds whatever client certificate is shown, and says what is wrong with it.

Python's own ``ssl`` ends the handshake over a certificate that does not verify: its sender sees a cut connection, and
nobody looks at the token beside it. kube-apiserver answers 401, or by the token. pyOpenSSL lets the server go on. Its
methods for bytes make a buffer and several copies for each call, which takes as long as OpenSSL itself: reading and
writing go to the functions behind them. Here are bytes alone; sockets are in ``gateway.http.tlsconnection``.
"""

# ruff: noqa: SLF001 - what is behind pyOpenSSL's methods has no public name

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.bindings.openssl.binding import Binding
from OpenSSL import SSL, crypto

_CIPHERS: Final = b"@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"
"""Python's own choice for TLS 1.2."""
_SUITES: Final = b"TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
"""For TLS 1.3, in the order of Go's servers, which is the server's to choose."""

_lib: Final[Any] = Binding.lib
_ffi: Final[Any] = Binding.ffi

_RECORD: Final = 16 * 1024
"""Bytes that a record brings at most, and that are encrypted at once."""
_PIECE: Final = 2 * _RECORD
"""Bytes that are taken at once: more than a record becomes by encryption (RFC 8446, 5.2)."""
_UNASKED: Final = 16 * 1024
"""Bytes that may wait for whatever is sent next: OpenSSL answers changes of a client's keys there, as often as they come."""
_INVALID_PURPOSE: Final = 26
"""OpenSSL wants key usages of a leaf that Go does not ask for; extended key usages are the authenticator's to judge."""


class _Scratch(threading.local):
    """Where OpenSSL puts bytes, once in each thread that serves: while it works, other threads go on."""

    def __init__(self) -> None:
        self.buffer: Any = _ffi.new("char[]", _PIECE)


_scratch: Final = _Scratch()


class Trust:
    """A server's certificate and the client CAs by which it verifies, ready for handshakes."""

    def __init__(self, certificate: Path, key: Path, authorities: Iterable[x509.Certificate]) -> None:
        """Raise ``ValueError`` for files that do not fit."""
        self.authorities = frozenset(authorities)
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        context.set_cipher_list(_CIPHERS)
        context.set_tls13_ciphersuites(_SUITES)
        # No session is resumed: it would bring back a certificate that nobody verifies again.
        context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION)
        context.set_options(SSL.OP_CIPHER_SERVER_PREFERENCE)
        context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
        context.set_session_id(b"tenantry")
        context.set_mode(SSL.MODE_RELEASE_BUFFERS)
        # There is always room in memory: one call writes all records, not the first alone.
        context.clear_mode(_lib.SSL_MODE_ENABLE_PARTIAL_WRITE)
        context.set_alpn_select_callback(_application_protocol)
        try:
            context.use_certificate_chain_file(str(certificate))
            context.use_privatekey_file(str(key))
            context.check_privatekey()
        except SSL.Error as error:
            raise ValueError(_words(error)) from None
        store: Any = context.get_cert_store()
        for authority in self.authorities:
            store.add_cert(crypto.X509.from_cryptography(authority))
            # Clients with several certificates choose by these names, as with kube-apiserver.
            context.add_client_ca(authority)
        # Any certificate of the client CAs is an anchor, an intermediate one too, as for kube-apiserver.
        store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
        context.set_verify(SSL.VERIFY_PEER, _look_at)
        self.context = context


class TlsError(Exception):
    """What came is no TLS, or none that is spoken here; the alert that says so is among what is to be sent."""


class Session:
    """The server's side of one connection: bytes in, bytes out."""

    __slots__ = ("__weakref__", "_handle", "_incoming", "_outgoing", "_tls", "ended", "refusal", "trust")

    def __init__(self, trust: Trust) -> None:
        self.trust = trust
        self.refusal = ""
        """Why the client's certificate is not to be believed; empty for one that is, and for none."""
        self.ended = False
        """Whether the client has said that nothing more will come."""
        self._tls = SSL.Connection(trust.context, None)
        # A cycle would keep each connection, with its buffers, until the collector of cycles comes by.
        self._tls.set_app_data(weakref.ref(self))
        self._tls.set_accept_state()
        self._handle, self._incoming, self._outgoing = self._tls._ssl, self._tls._into_ssl, self._tls._from_ssl

    def shake(self, data: bytes) -> bool:
        """Go on with the handshake; whether it is over. Raises ``TlsError``.

        There may be something to be ``taken`` in any case, and to be ``received`` when it is over.
        """
        _lib.BIO_write(self._incoming, data, len(data))
        try:
            self._tls.do_handshake()
        except SSL.WantReadError:
            return False
        except SSL.Error as error:
            raise TlsError(_words(error)) from None
        return True

    def receive(self, data: bytes) -> bytes:
        """What the client has said up to the end of ``data``; nothing while a record is not complete. Raises ``TlsError``."""
        if len(data) > _RECORD:
            # Only as much as is decrypted at once: what OpenSSL has had to keep, it keeps room for until the end.
            pieces = (data[start : start + _RECORD] for start in range(0, len(data), _RECORD))
            return b"".join([self.receive(piece) for piece in pieces])
        handle, incoming, scratch = self._handle, self._incoming, _scratch.buffer
        if data:
            _lib.BIO_write(incoming, data, len(data))
        parts: list[bytes] = []
        # Asking OpenSSL for what is not there is dear. It takes one record at a time, and each is read whole.
        while _lib.BIO_get_mem_data(incoming, _ffi.NULL):
            got = _lib.SSL_read(handle, scratch, _RECORD)
            if got <= 0:
                self._require_patience(got)
                break
            parts.append(_ffi.buffer(scratch, got)[:])
        if _lib.BIO_get_mem_data(self._outgoing, _ffi.NULL) > _UNASKED:
            raise TlsError("too many changes of keys")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def send(self, data: bytes | memoryview) -> bytes:
        """What brings ``data`` to the client, behind whatever else is to be sent. Raises ``TlsError``."""
        size = len(data)
        if size > _RECORD:
            return b"".join([self.send(data[start : start + _RECORD]) for start in range(0, size, _RECORD)])
        if size:
            done = _lib.SSL_write(self._handle, data if type(data) is bytes else _ffi.from_buffer(data), size)
            if done <= 0:
                self._require_patience(done)
        scratch = _scratch.buffer
        size = _lib.BIO_read(self._outgoing, scratch, _PIECE)
        if size < _PIECE:
            return _ffi.buffer(scratch, size)[:] if size > 0 else b""
        return b"".join((_ffi.buffer(scratch, size)[:], self.taken()))

    def taken(self) -> bytes:
        """What is to be sent to the client without its asking: steps of the handshake, alerts."""
        return self.send(b"")

    def end(self) -> bytes:
        """What tells the client that nothing more will come (RFC 8446, 6.1)."""
        with contextlib.suppress(SSL.Error):
            self._tls.shutdown()
        return self.taken()

    @property
    def certificate(self) -> bytes | None:
        """The certificate that was shown (DER), believed or not."""
        shown = self._tls.get_peer_certificate()
        return crypto.dump_certificate(crypto.FILETYPE_ASN1, shown) if shown is not None else None

    def _require_patience(self, result: int) -> None:
        """Do nothing where only more bytes are lacking, or none will come. Raises ``TlsError`` for all other failures."""
        try:
            self._tls._raise_ssl_error(self._handle, result)
        except (SSL.WantReadError, SSL.WantWriteError):
            return
        except SSL.ZeroReturnError:
            self.ended = True
            return
        except SSL.Error as error:
            raise TlsError(_words(error)) from None
        raise TlsError("OpenSSL names no error")


def _look_at(tls: SSL.Connection, _certificate: crypto.X509, number: int, depth: int, good: int) -> bool:
    """Remember what is wrong, and go on."""
    if not good and not (number == _INVALID_PURPOSE and depth == 0):
        session: Session | None = tls.get_app_data()()
        if session is not None:
            refusal = f"the certificate does not verify (X.509 error {number})"
            session.refusal = session.refusal or refusal
    return True


def _application_protocol(_tls: SSL.Connection, offered: list[bytes]) -> Any:
    return b"http/1.1" if b"http/1.1" in offered else SSL.NO_OVERLAPPING_PROTOCOLS


def _words(error: SSL.Error) -> str:
    reasons = error.args[0] if error.args and isinstance(error.args[0], list) else []
    return "; ".join(str(reason[-1]) for reason in reasons) or "the connection ended"
