"""The REST API's document, and what a generator makes of it (GW14)."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType
from openapi_python_client.parser.errors import ErrorLevel
from openapi_spec_validator import validate

from portal.api.openapi.docs import document
from tests.portal.conftest import House
from tests.portal.test_api import bearer

PACKAGE = "generated_client"


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_the_document_keeps_to_the_standard() -> None:
    """Schemas, parameters, and every default against what it is the default of."""
    validate(document())


def test_every_operation_says_how_it_fails() -> None:
    for name, operation in operations():
        failures = {code for code in operation["responses"] if code[0] == "4"}
        assert {"400", "401", "403", "404", "429"} <= failures, name


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A package made of the document by a generator that nobody here wrote."""
    folder = tmp_path_factory.mktemp("generated")
    source = folder / "openapi.json"
    source.write_text(json.dumps(document()))
    config = Config.from_sources(
        ConfigFile(post_hooks=[]), MetaType.NONE, source, "utf-8", overwrite=True, output_path=folder / PACKAGE
    )
    complaints = [error for error in generate(config=config) if error.level is ErrorLevel.ERROR]
    assert not complaints
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module(PACKAGE)
    finally:
        sys.path.remove(str(folder))


def test_a_generated_client_does_a_days_work(client: Any, acme: House, live_server: Any) -> None:
    """It has every operation, and those that it calls are understood in both directions."""
    folder = Path(client.__file__).parent
    made = {path.stem for path in folder.glob("api/*/*.py")}
    ids = [operation["operationId"] for _, operation in operations()]
    assert len(set(ids)) == len(ids)
    assert {"".join(f"_{c.lower()}" if c.isupper() else c for c in name) for name in ids} <= made

    def call(tag: str, name: str, *path: Any, **more: Any) -> Any:
        module = importlib.import_module(f"{PACKAGE}.api.{tag}.{name}")
        return module.sync_detailed(*path, client=signed_in, **more)

    def model(name: str, **members: Any) -> Any:
        return getattr(importlib.import_module(f"{PACKAGE}.models"), name)(**members)

    token = bearer(acme.owner).defaults["HTTP_AUTHORIZATION"].removeprefix("Bearer ")
    signed_in = client.AuthenticatedClient(base_url=live_server.url, token=token)
    listed = call("workspaces", "list_workspaces")
    assert [workspace.name for workspace in listed.parsed.results] == ["acme-web"]
    made_one = call("workspaces", "create_workspace", body=model("WorkspaceCreateRequest", tier="basic"))
    assert made_one.status_code == 202
    assert made_one.parsed.tenant == "acme"
    refused = call("workspaces", "issue_kubeconfig", str(made_one.parsed.id), body=model("CredentialCreateRequest"))
    assert refused.status_code == 409
    assert "not ready" in refused.parsed.detail
    unknown = call("tenants", "get_tenant", "globex")
    assert (unknown.status_code, unknown.parsed.status) == (404, 404)
