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
    module = importlib.import_module(command[2])
    assert module is not None
    if command[2] == "uvicorn":
        target, attribute = command[3].split(":")
        assert hasattr(importlib.import_module(target), attribute)
    else:
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


@pytest.mark.parametrize("file", ["docker-compose.yml", "Dockerfile", "docs/operations.md", "portal/management"])
def test_no_start_of_the_portal_lets_the_server_believe_anybody(file: str) -> None:
    """HDR-11: uvicorn believes ``X-Forwarded-For`` from this host unless it is told not to; ``TRUSTED_PROXIES`` decides.

    DOS-01, HDR-02: its own protocol bounds nothing and takes trailers for headers.
    """
    place = ROOT / file
    texts = [path.read_text() for path in place.rglob("*.py")] if place.is_dir() else [place.read_text()]
    name = re.compile(r"\"portal[.]asgi:app|uvicorn portal")
    starts = [text[at.start() :][:250] for text in texts for at in name.finditer(text)]
    assert starts
    assert all("--no-proxy-headers" in start for start in starts)
    assert all("--http" in start and "portal.protocol:PortalProtocol" in start for start in starts)


def test_portal_that_is_told_to_end_is_given_the_time_to_finish_what_runs() -> None:
    """The end is bounded by the server, and nobody kills it before: Compose would after ten seconds."""
    (image,) = re.findall(r"^CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    for command in (OURS["portal"]["command"], yaml.safe_load(image)):
        bound = int(command[command.index("--timeout-graceful-shutdown") + 1])
        assert bound < int(OURS["portal"]["stop_grace_period"].removesuffix("s"))


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
