"""TLS for asyncio whose handshake succeeds whatever client certificate is shown, and says what is wrong with it.

Python's own ``ssl`` ends the handshake over a certificate that does not verify: its sender sees a cut connection, and
nobody looks at the token beside it. kube-apiserver answers 401, or by the token. pyOpenSSL lets the server go on; here it
stands behind the one method by which event loops use an ``SSLContext``. Its methods for bytes make a buffer and several
copies for each call, which takes as long as OpenSSL itself: reading and writing go to the functions behind them.
"""

# ruff: noqa: SLF001 - what is behind pyOpenSSL's methods has no public name

from __future__ import annotations

import ssl
import threading
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NoReturn

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
"""Bytes that a record brings at most."""
_WRITTEN: Final = 4 * _RECORD
"""Bytes that are encrypted at once."""
_PIECE: Final = _WRITTEN + 4 * 320
"""The same with what encryption adds (RFC 8446, 5.2), so that they are read at once."""
_HEADER: Final = 5
"""Bytes before each record, the last two of which are its length."""
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
        # Any certificate of the client CAs is an anchor, an intermediate one too, as for kube-apiserver.
        store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
        context.set_verify(SSL.VERIFY_PEER, _look_at)
        self.context = context


class Context(ssl.SSLContext):
    """What event loops take for TLS; each handshake goes by the ``trust`` of its moment."""

    trust: Trust

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *_: Any, **__: Any) -> Connection:  # type: ignore[override]
        """The server's side of a connection."""
        return Connection(self.trust, incoming, outgoing)


class Connection:
    """One connection, with the methods of ``ssl.SSLObject`` that event loops call, raising what it raises."""

    def __init__(self, trust: Trust, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        self.trust = trust
        self.refusal = ""
        """Why the client's certificate is not to be believed; empty for one that is, and for none."""
        self._incoming, self._outgoing = incoming, outgoing
        self._records = 0
        """How many records at most may still bring something: asking OpenSSL for what is not there is dear."""
        self._lacking, self._header = 0, b""
        self._tls = SSL.Connection(trust.context, None)
        # A cycle would keep each connection, with its buffers, until the collector of cycles comes by.
        self._tls.set_app_data(weakref.ref(self))
        self._tls.set_accept_state()

    def do_handshake(self) -> None:
        """See ``ssl.SSLObject``."""
        self._feed()
        try:
            self._tls.do_handshake()
        except SSL.Error as error:
            self._raise(error)
        finally:
            self._drain()

    def read(self, size: int = 1024) -> bytes:
        """See ``ssl.SSLObject``: whatever is there, up to ``size`` bytes."""
        self._feed()
        parts: list[bytes] = []
        handle, scratch = self._tls._ssl, _scratch.buffer
        while size > 0 and self._records:
            wanted = min(size, _RECORD)
            got = _lib.SSL_read(handle, scratch, wanted)
            if got <= 0:
                if parts:
                    # Why there is no more is asked by the next reading.
                    break
                if _lib.SSL_get_error(handle, got) == _lib.SSL_ERROR_ZERO_RETURN:
                    return b""
                self._records = 0
                self._fail(got)
            parts.append(_ffi.buffer(scratch, got)[:])
            size -= got
            if got < wanted or not _lib.SSL_pending(handle):
                self._records -= 1
        if not parts:
            raise ssl.SSLWantReadError
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """See ``ssl.SSLObject``: always all of it, there is room in memory."""
        handle, source = self._tls._ssl, _ffi.from_buffer(data)
        sent, size = 0, len(source)
        while sent < size:
            # A little at a time: what lies between stays in the processor's cache.
            done = _lib.SSL_write(handle, source + sent, min(size - sent, _WRITTEN))
            if done <= 0:
                self._fail(done)
            sent += done
            self._drain()
        return sent

    def pending(self) -> int:
        """See ``ssl.SSLObject``: more than nothing where another ``read`` would bring something."""
        return _lib.SSL_pending(self._tls._ssl) or self._records

    def unwrap(self) -> None:
        """See ``ssl.SSLObject``."""
        self._feed()
        try:
            closed = self._tls.shutdown()
        except SSL.Error as error:
            self._raise(error)
        finally:
            self._drain()
        if not closed:
            raise ssl.SSLWantReadError

    def getpeercert(self, binary_form: bool = False) -> Any:
        """The certificate that was shown (DER), believed or not; nothing in any other form."""
        shown = self._tls.get_peer_certificate() if binary_form else None
        return crypto.dump_certificate(crypto.FILETYPE_ASN1, shown) if shown is not None else None

    def cipher(self) -> tuple[str, str, int] | None:
        """See ``ssl.SSLObject``."""
        name, version, bits = self._tls.get_cipher_name(), self._tls.get_cipher_version(), self._tls.get_cipher_bits()
        return (name, version, bits) if name and version and bits else None

    def compression(self) -> None:
        """See ``ssl.SSLObject``: there is none."""

    def _feed(self) -> None:
        while data := self._incoming.read(_PIECE):
            _lib.BIO_write(self._tls._into_ssl, data, len(data))
            self._count(data)

    def _count(self, data: bytes) -> None:
        """Follow the records (RFC 8446, 5.1), each of which ends with a byte of ``data``, or will with one to come."""
        if self._header:
            data, self._header = self._header + data, b""
        end, size = self._lacking, len(data)
        while end <= size:
            if end:
                self._records += 1
            if size - end < _HEADER:
                self._header, self._lacking = data[end:], 0
                return
            end += _HEADER + int.from_bytes(data[end + 3 : end + _HEADER])
        self._lacking = end - size

    def _drain(self) -> None:
        source, scratch = self._tls._from_ssl, _scratch.buffer
        while (size := _lib.BIO_read(source, scratch, _PIECE)) > 0:
            self._outgoing.write(_ffi.buffer(scratch, size))
            if size < _PIECE:
                return

    def _fail(self, result: int) -> NoReturn:
        """Raise what OpenSSL means by a ``result`` that is none, and have the alert sent that goes with it."""
        try:
            self._tls._raise_ssl_error(self._tls._ssl, result)
        except SSL.Error as error:
            self._raise(error)
        finally:
            self._drain()
        raise ssl.SSLError(ssl.SSL_ERROR_SSL, "OpenSSL names no error")

    def _raise(self, error: SSL.Error) -> NoReturn:
        if isinstance(error, SSL.WantReadError | SSL.WantWriteError):
            raise ssl.SSLWantReadError from None
        raise ssl.SSLError(ssl.SSL_ERROR_SSL, _words(error)) from None


def _look_at(tls: SSL.Connection, _certificate: crypto.X509, number: int, depth: int, good: int) -> bool:
    """Remember what is wrong, and go on."""
    if not good and not (number == _INVALID_PURPOSE and depth == 0):
        connection: Connection | None = tls.get_app_data()()
        if connection is not None:
            refusal = f"the certificate does not verify (X.509 error {number})"
            connection.refusal = connection.refusal or refusal
    return True


def _application_protocol(_tls: SSL.Connection, offered: list[bytes]) -> Any:
    return b"http/1.1" if b"http/1.1" in offered else SSL.NO_OVERLAPPING_PROTOCOLS


def _words(error: SSL.Error) -> str:
    reasons = error.args[0] if error.args and isinstance(error.args[0], list) else []
    return "; ".join(str(reason[-1]) for reason in reasons) or "the connection ended"
