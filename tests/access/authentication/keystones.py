"""A real Keystone, where it is installed: in a virtual environment of its own below the user's cache folder.

``python -m tests.access.authentication.keystones`` installs it (about half a minute, once).
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import venv
from functools import cache
from pathlib import Path
from typing import Any

VERSION = "30.0.0"
CACHE = Path.home() / ".cache" / "tenantry-tests"
ENVIRONMENT = CACHE / f"keystone-{VERSION}"
COMPLETE = ENVIRONMENT / "complete"
INSTALL_SECONDS = 300
NOT_INSTALLED = "Keystone is not installed: python -m tests.access.authentication.keystones installs it"
PREPARED = CACHE / f"keystone-{VERSION}-data"


def install() -> bool:
    """Install Keystone unless it is there; false, with the reason on the standard error, where that cannot be done."""
    if COMPLETE.exists():
        return True
    try:
        venv.create(ENVIRONMENT, with_pip=True, clear=True)
        command = [
            ENVIRONMENT / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            f"keystone=={VERSION}",
            "waitress",
        ]
        subprocess.run(command, check=True, timeout=INSTALL_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"Keystone cannot be installed, so its tests are skipped: {error}", file=sys.stderr)
        return False
    COMPLETE.touch()
    return True


class KeystoneServer:
    """A running Keystone and its administrator."""

    def __init__(self, python: Path, folder: Path) -> None:
        if PREPARED.exists():
            shutil.copytree(PREPARED, folder)
        else:
            folder.mkdir()
        script = Path(__file__).with_name("keystone_process.py")
        self._process = subprocess.Popen(
            [str(python), str(script), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().split()
        if line[:1] != ["ready"]:
            self.stop()
            raise RuntimeError(f"Keystone did not start: see {folder}/keystone.log")
        self.url = f"http://127.0.0.1:{line[1]}"
        if not PREPARED.exists():
            new = PREPARED.with_name(f"{PREPARED.name}.{os.getpid()}")
            shutil.copytree(folder, new)
            try:
                new.rename(PREPARED)
            except OSError:
                shutil.rmtree(new)
        self.admin = self.token("admin", "default", {"system": {"all": True}}, password="secret")
        listed = self.call("GET", "/roles")["roles"]
        self.role_ids = {role["name"]: role["id"] for role in listed}

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(300)

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """What the administrator gets."""
        return self._send(method, path, body, {"X-Auth-Token": self.admin, **headers})[1]

    def make(self, kind: str, **fields: Any) -> str:
        """The id of a new domain, project or user."""
        made: str = self.call("POST", f"/{kind}s", {kind: fields})[kind]["id"]
        return made

    def assign(self, user: str, role: str, target: str, *, method: str = "PUT") -> None:
        """Give ``role`` to the user in ``target``: ``projects/<id>``, ``domains/<id>`` or ``system``."""
        self.call(method, f"/{target}/users/{user}/roles/{self.role_ids[role]}")

    def token(self, user: str, domain_id: str, scope: Any = None, *, password: str = "pw") -> str:
        """A token of the user, unscoped unless ``scope`` is given."""
        who = {"name": user, "password": password, "domain": {"id": domain_id}}
        identity = {"identity": {"methods": ["password"], "password": {"user": who}}}
        return self.issue({**identity, **({"scope": scope} if scope else {})})

    def issue(self, auth: Any) -> str:
        """The token for an authentication request."""
        return self._send("POST", "/auth/tokens?nocatalog", {"auth": auth}, {})[0]["X-Subject-Token"]

    def revoke(self, token: str) -> None:
        self.call("DELETE", "/auth/tokens", **{"X-Subject-Token": token})

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[Any, Any]:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self.url}/v3{path}", data, method=method)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                content = answer.read()
                return answer.headers, json.loads(content) if content else None
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from None


@cache
def running() -> KeystoneServer | None:
    """The one Keystone of this run, or ``None`` where it is not installed."""
    if not COMPLETE.exists():
        return None
    folder = Path(tempfile.mkdtemp(prefix="keystone-"))
    server = KeystoneServer(ENVIRONMENT / "bin" / "python", folder / "data")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    atexit.register(server.stop)
    return server


if __name__ == "__main__":
    sys.exit(not install())
