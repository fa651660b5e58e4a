#!/usr/bin/env python3
"""kubectl's credential plugin for Tenantry: signs in by the browser, or by a code where there is none.

Kubernetes' client.authentication.k8s.io/v1 on standard output, everything for people on standard error. The standard
library alone is needed, on Linux and macOS. What is kept is a session, in a file that its owner alone can read, until the
portal's session ends; tokens for the API server live ten minutes, in memory.

    tenantry-login --portal URL --resource URL [--role ROLE] [--device]
    tenantry-login logout --portal URL
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import fcntl
import hashlib
import hmac
import http.server
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT = "tenantry-login"
PATIENCE_SECONDS = 300
EARLY_SECONDS = 30
"""So much before its end a token is used no more: clocks differ, and a request that has begun takes its time."""

DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
LOOPBACK = {"127.0.0.1", "localhost", "::1"}


class Refused(Exception):
    """The portal said no; ``code`` is OAuth's word for it, the text is for people."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text or code)
        self.code = code


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """What is sent to the portal goes nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


class Portal:
    """The portal's endpoints."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
            raise SystemExit(f"{CLIENT}: the portal must be an https URL, not {url!r}.")
        self._opener = urllib.request.build_opener(_NoRedirects)

    def post(self, path: str, **fields: str) -> dict[str, Any]:
        """The portal's answer; raises ``Refused``."""
        data = urllib.parse.urlencode({"client_id": CLIENT, **fields}).encode()
        request = urllib.request.Request(self.url + path, data=data, headers={"User-Agent": f"{CLIENT}/0.1"})
        try:
            with self._opener.open(request, timeout=30) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                said = _json(error.read(65536))
            code = str(said.get("error", error.code))
            text = said.get("error_description") or said.get("detail") or f"the portal answers {code}"
            raise Refused(code, _printable(text)) from None
        except (OSError, ValueError) as error:
            raise SystemExit(f"{CLIENT}: {self.url} does not answer: {getattr(error, 'reason', error)}") from None


def _json(text: bytes) -> dict[str, Any]:
    try:
        said = json.loads(text)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _printable(text: object) -> str:
    """What others wrote, without what a terminal would obey."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text)[:500])


class Session:
    """The session with one portal, in a file of its owner's cache folder."""

    def __init__(self, portal: str) -> None:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / CLIENT
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"{hashlib.sha256(portal.encode()).hexdigest()[:16]}.json"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """One at a time: each use of a session gives it another secret."""
        descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    @property
    def secret(self) -> str:
        """What opens the session; empty without one."""
        try:
            return str(_json(self._path.read_bytes()).get("refresh_token", ""))
        except OSError:
            return ""

    def keep(self, secret: str) -> None:
        """Replace the file whole, readable by its owner alone."""
        temporary = self._path.with_suffix(f".{secrets.token_hex(4)}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"refresh_token": secret}, file)
        temporary.replace(self._path)

    def forget(self) -> None:
        """Delete the file."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()


class _Callback(http.server.ThreadingHTTPServer):
    """Waits at a loopback port for what the browser brings back (RFC 8252).

    Browsers open connections ahead and send nothing on them: each is served by a thread of its own.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Visit)
        self.state = secrets.token_urlsafe(24)
        self.said: dict[str, str] = {}
        self.came = threading.Event()

    @property
    def address(self) -> str:
        """The redirect URI."""
        return f"http://127.0.0.1:{self.server_port}/callback"


class _Visit(http.server.BaseHTTPRequestHandler):
    server: _Callback
    timeout = 30

    def do_GET(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        said = dict(urllib.parse.parse_qsl(parts.query))
        known = parts.path == "/callback" and hmac.compare_digest(
            said.get("state", "").encode(), self.server.state.encode()
        )
        text = "The terminal goes on. You can close this window." if known else "There is nothing here."
        page = f'<!doctype html><title>Tenantry</title><link rel="icon" href="data:,"><p>{text}</p>'
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(page.encode())
        if known and ("code" in said or "error" in said) and not self.server.came.is_set():
            self.server.said = said
            self.server.came.set()

    def log_message(self, *_: Any) -> None:
        """Addresses hold the code."""


def by_browser(portal: Portal, wanted: dict[str, str]) -> dict[str, Any]:
    """Sign in by the browser of this machine: a code at a loopback port, with PKCE (RFC 7636)."""
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    with _Callback() as server:
        query = {
            "response_type": "code",
            "client_id": CLIENT,
            "redirect_uri": server.address,
            "state": server.state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            "machine": socket.gethostname()[:64],
        }
        address = f"{portal.url}/oauth/authorize/?{urllib.parse.urlencode(query)}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _say(f"Sign in to Tenantry in the browser: {address}")
        webbrowser.open(address)
        server.came.wait(PATIENCE_SECONDS)
        server.shutdown()
        said = server.said
    if "code" not in said:
        text = "You have refused it." if "error" in said else "Nobody signed in."
        raise Refused(said.get("error", "timeout"), text)
    return portal.post(
        "/oauth/token/",
        grant_type="authorization_code",
        code=said["code"],
        redirect_uri=server.address,
        code_verifier=verifier,
        **wanted,
    )


def by_device(portal: Portal, wanted: dict[str, str]) -> dict[str, Any]:
    """Sign in by a browser elsewhere (RFC 8628)."""
    asked = portal.post("/oauth/device/", machine=socket.gethostname()[:64])
    where, code = _printable(asked["verification_uri"]), _printable(asked["user_code"])
    _say(f"Open {where} in a browser and enter the code {code}")
    until, pause = time.monotonic() + float(asked["expires_in"]), float(asked.get("interval", 5))
    while time.monotonic() < until:
        time.sleep(pause)
        try:
            return portal.post("/oauth/token/", grant_type=DEVICE, device_code=asked["device_code"], **wanted)
        except Refused as error:
            if error.code == "slow_down":
                pause += 5
            elif error.code != "authorization_pending":
                raise
    raise Refused("expired_token", "Nobody entered the code.")


def has_browser() -> bool:
    """Whether a browser of this machine would be seen by whoever runs this."""
    if "SSH_CONNECTION" in os.environ and "DISPLAY" not in os.environ:
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Between the portal's answer and the file a Ctrl-C would cost the session."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def signed_in(portal: Portal, session: Session, wanted: dict[str, str], device: bool) -> dict[str, Any]:
    """A token, by the session as long as there is one. Raises ``Refused``."""
    if session.secret:
        try:
            with uninterrupted():
                answer = portal.post(
                    "/oauth/token/", grant_type="refresh_token", refresh_token=session.secret, **wanted
                )
                session.keep(str(answer["refresh_token"]))
        except Refused as error:
            if error.code != "invalid_grant":
                raise
            _say(str(error))
            session.forget()
        else:
            return answer
    if not _interactive():
        raise Refused("login_required", f"Sign in first: {CLIENT} {' '.join(sys.argv[1:])}")
    answer = by_device(portal, wanted) if device or not has_browser() else by_browser(portal, wanted)
    session.keep(str(answer["refresh_token"]))
    return answer


def sign_out(portal: Portal, session: Session) -> None:
    """End the session in the portal, and then here: what has not ended there can be ended by trying again. Raises ``Refused``."""
    if session.secret:
        try:
            portal.post("/oauth/revoke/", token=session.secret)
        except Refused as error:
            if error.code != "invalid_grant":
                raise
    session.forget()


def _interactive() -> bool:
    """Whether somebody is there to sign in, as kubectl says."""
    info = _json(os.environ.get("KUBERNETES_EXEC_INFO", "").encode())
    spec = info.get("spec")
    return bool(spec.get("interactive", True)) if isinstance(spec, dict) else True


def _say(text: str) -> None:
    print(f"{CLIENT}: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def quiet_output() -> Iterator[int]:
    """Standard output for the credential alone: what a browser writes there goes to standard error."""
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield output
    finally:
        os.close(output)


def main() -> int:
    """The exit status: 0 with a credential on standard output, 1 with the reason on standard error.

    On a terminal of a person no credential is shown.
    """
    parser = argparse.ArgumentParser(prog=CLIENT, description="Signs kubectl in to Tenantry.")
    parser.add_argument("action", nargs="?", choices=("login", "logout"), default="login")
    parser.add_argument("--portal", required=True, help="URL of the portal")
    parser.add_argument("--resource", default="", help="URL of the workspace or tenant that the token is for")
    parser.add_argument("--role", default="", help="at most this role; by default the membership's")
    parser.add_argument("--device", action="store_true", help="show a code instead of opening a browser")
    said = parser.parse_args()
    portal = Portal(said.portal)
    session = Session(portal.url)
    with quiet_output() as output, session.held():
        try:
            if said.action == "logout":
                sign_out(portal, session)
                return 0
            wanted = {"resource": said.resource, **({"scope": said.role} if said.role else {})}
            device = said.device or bool(os.environ.get("TENANTRY_LOGIN_DEVICE"))
            answer = signed_in(portal, session, wanted, device)
        except Refused as error:
            _say(str(error))
            return 1
        except KeyboardInterrupt:
            return 130
        if os.isatty(output) and "KUBERNETES_EXEC_INFO" not in os.environ:
            # A person has run it: a token on the terminal would stay there.
            _say("Signed in.")
            return 0
        lives = max(float(answer["expires_in"]) - EARLY_SECONDS, 0)
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + lives))
        credential = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": answer["access_token"], "expirationTimestamp": ends},
        }
        os.write(output, json.dumps(credential).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
