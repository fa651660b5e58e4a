"""The command ``tenantry`` as a person runs it, against the running portal."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from tenantry_cli.main import main
from tenants.models import Tenant, User
from tests.portal.test_api import bearer


@dataclass(frozen=True)
class Answer:
    status: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        return json.loads(self.output)


class Shell:
    """A terminal whose environment holds a person's token."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys, self.url = monkeypatch, capsys, url
        self.token = ""

    def sign_in(self, who: User, scope: str = "write", tenant: Tenant | None = None) -> Shell:
        self.token = bearer(who, scope, tenant).defaults["HTTP_AUTHORIZATION"].removeprefix("Bearer ")
        self._monkeypatch.setenv("TENANTRY_URL", self.url)
        self._monkeypatch.setenv("TENANTRY_TOKEN", self.token)
        return self

    def run(self, *arguments: str, typed: str | io.StringIO = "") -> Answer:
        self._monkeypatch.setattr(sys, "argv", ["tenantry", *arguments])
        self._monkeypatch.setattr(sys, "stdin", io.StringIO(typed) if isinstance(typed, str) else typed)
        self._capsys.readouterr()
        try:
            main()
            status = 0
        except SystemExit as end:
            status = int(end.code or 0)
        printed = self._capsys.readouterr()
        if self.token:
            assert self.token not in printed.out + printed.err
        return Answer(status, printed.out, printed.err)

    def done(self, *arguments: str, typed: str = "") -> Answer:
        answer = self.run(*arguments, typed=typed)
        assert answer.status == 0, answer.errors
        return answer
