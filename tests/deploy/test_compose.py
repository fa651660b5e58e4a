"""The production shape names only what exists: services, commands, flags, environment variables (GW12)."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.exceptions import ImproperlyConfigured
from django.core.management import get_commands, load_command_class

from portal.protocol import PortalProtocol
from portal.serving import GRACE_SECONDS, PortalServer

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
OURS = {name: service for name, service in COMPOSE["services"].items() if service.get("image") == "tenantry"}
COMMANDS = [(name, service["command"]) for name, service in OURS.items()]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_every_part_of_the_product_is_a_service() -> None:
    assert set(COMPOSE["services"]) == {"postgres", "redis", "bootstrap", "portal", "apiserver", "worker", "beat"}


def test_portal_does_not_serve_with_a_key_that_everybody_knows(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.SECRET_KEY_IS_SET = False
    monkeypatch.delitem(sys.modules, "portal.asgi", raising=False)
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY"):
        importlib.import_module("portal.asgi")


@pytest.mark.parametrize(("service", "command"), COMMANDS)
def test_command_exists_and_takes_its_flags(service: str, command: list[str], settings: Any) -> None:
    settings.SECRET_KEY_IS_SET = True
    if command[1] == "manage.py":
        loaded = load_command_class(get_commands()[command[2]], command[2])
        loaded.create_parser("manage.py", command[2]).parse_args(command[3:])
        return
    assert command[1] == "-m"
    assert importlib.import_module(command[2]) is not None
    assert command[3:5] == ["--app", "portal"]
    assert importlib.import_module("portal.celery").app.main == "tenantry"


def test_every_environment_variable_is_read_by_the_settings() -> None:
    settings = (ROOT / "portal" / "settings.py").read_text()
    read = set(re.findall(r'(?:env\.\w+|_secret)\(\s*"([A-Z_]+)"', settings))
    for service in OURS.values():
        assert set(service["environment"]) <= read, set(service["environment"]) - read


def test_dependencies_and_volumes_are_declared() -> None:
    for service in COMPOSE["services"].values():
        assert set(service.get("depends_on", {})) <= set(COMPOSE["services"])
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in COMPOSE["volumes"]


def test_image_copies_what_exists_and_runs_as_nobody_in_particular() -> None:
    for source in re.findall(r"^COPY (?!--from)(\S+) ", DOCKERFILE, re.MULTILINE):
        assert (ROOT / source).exists(), source
    assert re.search(r"^USER \d+(:\d+)?$", DOCKERFILE, re.MULTILINE)
    version = re.search(r"uv==(\S+)", DOCKERFILE)
    assert version is not None
    assert f"UV_VERSION := {version[1]}" in (ROOT / "Makefile").read_text()


def test_the_portal_is_served_in_one_way() -> None:
    """HDR-11: uvicorn believes ``X-Forwarded-For`` from this host unless it is told not to; ``TRUSTED_PROXIES`` decides.

    DOS-01, HDR-02: its own protocol bounds nothing and takes trailers for headers.
    """
    (image,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert OURS["portal"]["command"] == yaml.safe_load(image)
    assert yaml.safe_load(image)[:3] == ["python", "manage.py", "portal"]
    told = [ROOT / "docker-compose.yml", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.y*ml")]
    assert not [file for file in told if re.search(r"portal\.asgi|uvicorn portal", file.read_text())]
    config = PortalServer(None).config
    assert config.http is PortalProtocol
    assert (config.proxy_headers, config.ws, config.access_log) == (False, "none", False)


def test_portal_that_is_told_to_end_is_given_the_time_to_finish_what_runs() -> None:
    """The end is bounded by the server, and nobody kills it before: Compose would after ten seconds."""
    assert int(OURS["portal"]["stop_grace_period"].removesuffix("s")) > GRACE_SECONDS


def test_proxy_on_the_host_has_the_address_that_the_file_names() -> None:
    (network,) = COMPOSE["networks"]["default"]["ipam"]["config"]
    assert f"`TRUSTED_PROXIES={network['gateway']}`" in (ROOT / "docker-compose.yml").read_text()
    assert OURS["portal"]["environment"]["TRUSTED_PROXIES"] == "${TRUSTED_PROXIES:-}"


def test_no_part_but_bootstrap_knows_whoever_owns_the_tables() -> None:
    """The parts run as a role that owns nothing; migrations run as another."""
    urls = {name: service["environment"]["DATABASE_URL"] for name, service in OURS.items()}
    assert len(set(urls.values())) == 1
    owners = {name for name, service in OURS.items() if "POSTGRES_PASSWORD" in str(service["environment"])}
    assert owners == {"bootstrap"}
    migrating = OURS["bootstrap"]["environment"]["MIGRATION_DATABASE_URL"]
    user = COMPOSE["services"]["postgres"]["environment"]["POSTGRES_USER"]
    assert migrating.startswith(f"postgresql://{user}:")
    assert not urls["portal"].startswith(f"postgresql://{user}:")
