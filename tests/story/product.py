"""The product as a newcomer starts it, and people who use it through its own interfaces."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import requests

from portal.quickstart.embedded.sockets import postgresql_url
from tests.databases import OWNER
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
_T = TypeVar("_T")
KUBECTL = shutil.which("kubectl")


def eventually(look: Callable[[], _T], *, within: float = 300.0, every: float = 0.05) -> _T:
    """What ``look`` returns once it is true; after ``within`` seconds a test gives up: no measure of speed."""
    deadline = time.monotonic() + within
    while True:
        answer = look()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {within} s: {answer!r}"
        time.sleep(every)


@dataclass
class Product:
    """A running quickstart with a data folder and ports of its own."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None
    start_costs: list[float] = field(default_factory=list)
    """The processor seconds of each start, to compare them."""

    def __post_init__(self) -> None:
        inherited = {key: value for key, value in os.environ.items() if key not in {"DATABASE_URL", OWNER, "REDIS_URL"}}
        self.environment = {
            **inherited,
            "TENANTRY_DATA_DIR": str(self.folder),
            "PORTAL_PORT": str(free_port()),
            "APISERVER_PORT": str(free_port()),
            # A workspace is there with the answer, however busy the machine is.
            "WORKSPACE_INIT_WAIT": "240",
            **self.environment,
        }

    def start(self, *, within: float = 300.0) -> float:
        """Start and wait for the facts; returns the seconds that it took."""
        begun = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "quickstart", "--json"],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            _, errors = self.process.communicate(timeout=within)
            raise AssertionError(f"quickstart ended with {self.process.returncode}: {errors}")
        self.facts = {**self.facts, **{key: value for key, value in json.loads(line).items() if value is not None}}
        self.start_costs.append(self.processor_seconds())
        return time.monotonic() - begun

    def stop(self, number: int = signal.SIGTERM) -> float:
        """End it with a signal; returns the seconds that it took."""
        assert self.process is not None
        begun = time.monotonic()
        self.process.send_signal(number)
        self.process.communicate(timeout=300)
        return time.monotonic() - begun

    def processes(self) -> list[int]:
        """Every process that belongs to this data folder, by its command line or environment."""
        needle = str(self.folder).encode()
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if needle in text:
                found.append(int(entry.name))
        return found

    def processor_seconds(self) -> float:
        """What its processes, and those they have waited for, have cost so far."""
        ticks = 0
        for pid in self.processes():
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks += sum(int(field) for field in fields[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    @property
    def portal(self) -> str:
        """The portal's URL."""
        return str(self.facts["portal_url"]).rstrip("/")

    def kubectl(self, *arguments: str, kubeconfig: str | Path | None = None, check: bool = True) -> str:
        """Run the real kubectl; returns its output, both streams, and fails when it does unless ``check`` is off."""
        result = subprocess.run(
            [str(KUBECTL), "--kubeconfig", str(kubeconfig or self.facts["admin_kubeconfig"]), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env={**os.environ, "HOME": str(self.folder)},
        )
        if check:
            assert result.returncode == 0, result.stderr
        return result.stdout + result.stderr

    def manage(self, *arguments: str, code: str | None = None, within: float = 300, check: bool = True) -> str:
        """Run a management command with the product's own databases; its output, or without ``check`` its errors too."""
        environment = {
            **self.environment,
            "DATABASE_URL": self.database,
            OWNER: self.database.replace("tenantry@", "postgres@"),
            "REDIS_URL": f"unix://{self.folder}/redis/redis.sock",
        }
        result = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env=environment,
            input=code,
            capture_output=True,
            text=True,
            check=False,
            timeout=within,
        )
        if not check:
            return result.stdout + result.stderr
        assert result.returncode == 0, result.stderr
        return result.stdout

    @property
    def database(self) -> str:
        """The URL of the embedded PostgreSQL, for the product's own role."""
        return postgresql_url(self.folder / "postgresql")

    def add_person(self, email: str, password: str, tenant: str, role: str = "owner") -> None:
        """An operator makes an account and puts it into a tenant."""
        operator = self.sign_in(self.facts["operator_email"], self.facts["operator_password"])
        operator.create_account(email, password)
        answer = operator.post("/api/v1/tenants/", json={"name": tenant})
        assert answer.status_code in (201, 409), answer.text
        answer = operator.post(f"/api/v1/tenants/{tenant}/members/", json={"email": email, "role": role})
        assert answer.status_code == 201, answer.text

    def sign_in(self, email: str, password: str) -> Person:
        """Sign in on the portal's own page."""
        person = Person(self)
        person.sign_in(email, password)
        return person


class Person:
    """Somebody with a browser: cookies, CSRF token, and the pages' own forms."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self.cookies: dict[str, str] = {}

    def request(self, method: str, path: str, **arguments: Any) -> requests.Response:
        """One request with the cookies a browser on the same machine would send, Secure ones included."""
        headers = {"Cookie": "; ".join(f"{key}={value}" for key, value in self.cookies.items())}
        if method not in {"GET", "HEAD"}:
            headers["X-CSRFToken"] = self.cookies.get("csrf", "")
            headers["Referer"] = self.product.portal + "/"
            headers["Origin"] = self.product.portal
        headers.update(arguments.pop("headers", {}))
        answer = requests.request(
            method, self.product.portal + path, headers=headers, allow_redirects=False, timeout=300, **arguments
        )
        for cookie in answer.cookies:
            self.cookies[cookie.name] = cookie.value or ""
        return answer

    def get(self, path: str, **arguments: Any) -> requests.Response:
        """GET a page or a resource."""
        return self.request("GET", path, **arguments)

    def post(self, path: str, **arguments: Any) -> requests.Response:
        """POST a form or JSON."""
        return self.request("POST", path, **arguments)

    def form(self, path: str, data: dict[str, str], *, post_to: str | None = None) -> requests.Response:
        """Open a page and send the form on it."""
        page = self.get(path)
        assert page.status_code == 200, (path, page.status_code)
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert token is not None, f"{path} has no form"
        return self.post(post_to or path, data={"csrfmiddlewaretoken": token[1], **data})

    def sign_in(self, email: str, password: str) -> None:
        """Fill in the sign-in page."""
        answer = self.form("/login/", {"username": email, "password": password})
        assert answer.status_code == 302, answer.text[:500]

    def create_account(self, email: str, password: str) -> None:
        """Add a user in the operators' console, who chooses this password at once; one that exists already is fine."""
        given = f"{password}, for now"
        answer = self.form(
            "/admin/tenants/user/add/", {"email": email, "name": "", "password1": given, "password2": given}
        )
        if answer.status_code != 302:
            assert "already exists" in answer.text, answer.text[:2000]
            return
        newcomer = Person(self.product)
        newcomer.sign_in(email, given)
        answer = newcomer.form("/login/password/", {"password": password})
        assert answer.status_code == 302, answer.text[:2000]

    def kubeconfig(self, workspace: str) -> Path:
        """Ask for a kubeconfig and keep it in a file, as the dialog's download does."""
        answer = self.post(f"/api/v1/workspaces/{workspace}/credentials")
        assert answer.status_code in (200, 201), answer.text
        path = Path(tempfile.mkdtemp(dir=self.product.folder)) / "kubeconfig"
        path.write_text(answer.json()["kubeconfig"])
        path.chmod(0o600)
        return path
