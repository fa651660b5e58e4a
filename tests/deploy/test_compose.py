"""The production shape names only what exists: services, commands, flags, environment variables (GW12)."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.exceptions import ImproperlyConfigured
from django.core.management import get_commands, load_command_class

from portal.protocol import PortalProtocol
from portal.serving import GRACE_SECONDS, PortalServer
from tests.deploy.rendering import flat, rendered

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
    read |= set(re.findall(r'_path\("([A-Z_]+)"', settings))
    for service in OURS.values():
        named = {name if name in read else name.removesuffix("_FILE") for name in service["environment"]}
        assert named <= read, named - read


def secrets_made(folder: Path) -> Path:
    """What the commands at the head of the file make."""
    head = (ROOT / "docker-compose.yml").read_text().partition("x-tenantry")[0]
    commands = re.findall(r"^#   (.*)$", head, re.MULTILINE)
    subprocess.run(["sh", "-euc", "\n".join(commands)], cwd=folder, check=True)
    return folder / "secrets"


def test_no_secret_stands_in_anybodys_environment() -> None:
    for name, service in COMPOSE["services"].items():
        for variable, value in service.get("environment", {}).items():
            told = re.search(r"SECRET|PASSWORD|TOKEN|KEY|DATABASE_URL|EMAIL_URL", variable)
            assert not told or variable.endswith("_FILE"), (name, variable)
            assert "PASSWORD" not in str(value), (name, variable)
            if str(value).startswith("/run/secrets/"):
                assert value.removeprefix("/run/secrets/") in service["secrets"], (name, variable)
        mounted = {f"/run/secrets/{each}" for each in service.get("secrets", ())}
        assert mounted <= set(service.get("environment", {}).values()), name


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is missing")
def test_the_head_of_the_file_makes_secrets_that_the_parts_read(tmp_path: Path) -> None:
    """And nothing but those: as files for every user, in a folder for one."""
    folder = secrets_made(tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.name for path in folder.iterdir()} == set(COMPOSE["secrets"])
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o444}
    assert {each["file"] for each in COMPOSE["secrets"].values()} == {
        f"./secrets/{name}" for name in COMPOSE["secrets"]
    }
    (folder / "email-url").unlink()
    (folder / "email-url").write_text("smtp+tls://me:secret@mail.example.org:587\n")
    asked = (
        "from django.conf import settings as s; from cryptography.fernet import Fernet\n"
        "assert s.SECRET_KEY_IS_SET and [Fernet(key) for key in s.SEALING_KEYS]\n"
        "print(s.DATABASES['default']['USER'], s.DATABASE_OWNER['USER'], s.EMAIL_IS_SET, bool(s.METRICS_TOKEN))"
    )
    said = {}
    for name, service in OURS.items():
        given = {
            variable: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", str(value)).replace("/run/secrets", str(folder))
            for variable, value in service["environment"].items()
        }
        environment = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "portal.settings", **given}
        done = subprocess.run(
            [sys.executable, "-c", asked], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (name, done.stderr)
        said[name] = done.stdout.split()
    product = ["tenantry_product", "tenantry_product"]
    assert said == {
        "bootstrap": ["tenantry_product", "tenantry", "False", "False"],
        "portal": [*product, "True", "True"],
        "apiserver": [*product, "False", "False"],
        "worker": [*product, "True", "False"],
        "beat": [*product, "False", "False"],
    }


def test_every_part_that_stays_has_a_probe() -> None:
    """Workers' and beat's is the chart's."""
    chart = flat(rendered())
    looks = {
        each["metadata"]["name"].removeprefix("tenantry-"): each["spec"]["template"]["spec"]["containers"][0][
            "livenessProbe"
        ]
        for each in chart
        if each["kind"] in {"Deployment", "StatefulSet"}
    }
    for name, service in COMPOSE["services"].items():
        if name == "bootstrap":
            continue
        word, *command = service["healthcheck"]["test"]
        assert word == "CMD"
        if "exec" in looks.get(name, {}):
            assert command == looks[name]["exec"]["command"]
            assert service["environment"]["ALIVE_FILE"] in command[-1]
        elif name in looks:
            look = looks[name]["httpGet"]
            assert re.search(rf"://127\.0\.0\.1:\d+{look['path']}'", command[-1])
            compile(command[-1], name, "exec")


@pytest.mark.parametrize("file", [".gitignore", ".dockerignore"])
def test_secrets_go_neither_into_git_nor_into_the_image(file: str) -> None:
    assert "secrets" in {line.strip("/") for line in (ROOT / file).read_text().splitlines()}


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
    urls = {service["environment"]["DATABASE_URL_FILE"] for service in OURS.values()}
    assert len(urls) == 1
    holders = {
        name for name, each in COMPOSE["services"].items() if "migration-database-url" in each.get("secrets", ())
    }
    assert holders == {"bootstrap"}
    assert {name for name, each in COMPOSE["services"].items() if "postgres-password" in each.get("secrets", ())} == {
        "postgres"
    }
