"""API servers as operators start them, on one database of their own, and whoever speaks to them."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import yaml

from tests.apiserver import ANY_PACE
from tests.databases import ROOT
from tests.ports import free_port

TENANT = "multi-tenancy.k8s.io/tenant"


def url_of(conninfo: str) -> str:
    """The same as a URL, which is what settings take."""
    parts = {key: str(value) for key, value in psycopg.conninfo.conninfo_to_dict(conninfo).items() if value}
    name = parts.pop("dbname")
    user, password = parts.pop("user", ""), parts.pop("password", "")
    return f"postgresql://{user}{':' if password else ''}{password}@/{name}?{urlencode(parts)}"


class Server:
    """One ``manage.py apiserver``."""

    def __init__(self, database: str, folder: Path, *flags: str) -> None:
        self.port = free_port()
        self.folder = folder
        self.log = folder / f"{self.port}.log"
        environment = {**os.environ, "DATABASE_URL": url_of(database), "TENANTRY_DATA_DIR": str(folder)}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "apiserver", "--secure-port", str(self.port), *ANY_PACE, *flags],
                cwd=ROOT,
                env=environment,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        """Until it is ready; fails with what it said."""
        deadline = time.monotonic() + 300
        context = ssl._create_unverified_context()
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                connection = HTTPSConnection("127.0.0.1", self.port, context=context, timeout=300)
                connection.request("GET", "/readyz")
                if connection.getresponse().status == 200:
                    return
            time.sleep(0.1)
        raise AssertionError(self.log.read_text()[-3000:])

    def stop(self) -> None:
        """At once: its database goes with it."""
        self.process.kill()
        self.process.wait()

    @property
    def kubeconfig(self) -> Path:
        """The operators' own."""
        return self.folder / "admin.kubeconfig"

    def client(self) -> Client:
        """Speaks as the operators' master."""
        return Client(self)


class Client:
    """JSON over one kept connection with the operators' certificate; ``who`` makes it somebody else."""

    def __init__(self, server: Server) -> None:
        config = yaml.safe_load(server.kubeconfig.read_text())["users"][0]["user"]
        context = ssl._create_unverified_context()
        import base64

        with tempfile.NamedTemporaryFile() as pair:
            for field in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(config[field]) + b"\n")
            pair.flush()
            context.load_cert_chain(pair.name)
        self._connection = HTTPSConnection("127.0.0.1", server.port, context=context, timeout=300)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        who: Mapping[str, Any] | None = None,
        media: str = "application/json",
    ) -> tuple[int, Any]:
        """(status, body)."""
        self._connection.putrequest(method, path)
        data = json.dumps(body).encode() if body is not None else b""
        self._connection.putheader("Content-Type", media)
        self._connection.putheader("Content-Length", str(len(data)))
        if who is not None:
            self._connection.putheader("Impersonate-User", who["name"])
            for group in who.get("groups", ()):
                self._connection.putheader("Impersonate-Group", group)
            self._connection.putheader(f"Impersonate-Extra-{TENANT.replace('/', '%2F')}", who["tenant"])
        self._connection.endheaders(data)
        answer = self._connection.getresponse()
        text = answer.read()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode(errors="replace")

    def ok(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """The body of a request that must succeed."""
        status, found = self.request(method, path, body, **how)
        assert status < 300, (method, path, status, found)
        return found

    def review(self, who: Mapping[str, Any], cluster: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The status of a SubjectAccessReview about somebody in a logical cluster."""
        field = "nonResourceAttributes" if "path" in attributes else "resourceAttributes"
        spec = {
            "user": who["name"],
            "groups": list(who.get("groups", ())),
            "extra": {TENANT: [who["tenant"]]},
            field: dict(attributes),
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = f"/clusters/{cluster}/apis/authorization.k8s.io/v1/subjectaccessreviews"
        status: dict[str, Any] = self.ok("POST", path, body)["status"]
        return status
