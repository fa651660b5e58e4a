"""Containers of manifests as a kubelet would run them: root read-only, nobody in particular, volumes where they are mounted.

The image's file system is this machine's, with the repository as working directory: an overlay, so that mount points can be made.
All Pods share one network of their own, with nothing in it but themselves.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.rendering import ROOT, Manifest

DOCKERFILE = (ROOT / "Dockerfile").read_text()
TOOLS = ("unshare", "nsenter", "setpriv", "mount", "ip")
UID = 10001


def possible() -> bool:
    """Whether this machine lets us make namespaces."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in TOOLS):
        return False
    tried = subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True, check=False)
    return tried.returncode == 0


def image_environment() -> dict[str, str]:
    """What the image's last stage sets."""
    text = DOCKERFILE.rpartition("\nFROM ")[2].replace("\\\n", " ")
    return dict(re.findall(r"([A-Z_]+)=(\S+)", " ".join(re.findall(r"^ENV (.*)$", text, re.MULTILINE))))


@dataclass(frozen=True)
class Tls:
    """By what whoever asks verifies a server, what the server must be called, and who asks."""

    ca: Path
    server_name: str
    certificate: Path
    key: Path


def _named(tls: Tls) -> str:
    return (
        f"context.load_cert_chain({str(tls.certificate)!r}, {str(tls.key)!r})\n"
        "wrap = context.wrap_socket\n"
        f"context.wrap_socket = lambda sock, **_: wrap(sock, server_hostname={tls.server_name!r})\n"
    )


@dataclass
class Node:
    """Where Pods run. ``ports`` of its network lead to Unix sockets of this machine: the databases."""

    folder: Path
    objects: list[Manifest]
    ports: dict[int, Path]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    holder: subprocess.Popen[bytes] | None = None
    relay: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Node:
        command = ["unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep infinity"]
        self.holder = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.holder.stdout is not None
        assert self.holder.stdout.readline() == b"up\n"
        leading = [f"{port}={path}" for port, path in self.ports.items()]
        command = [*self._inside(), sys.executable, "-m", "tests.deploy.relay", *leading]
        self.relay = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
        assert self.relay.stdout is not None
        assert {int(self.relay.stdout.readline()) for _ in self.ports} == set(self.ports)
        return self

    def __exit__(self, *_: object) -> None:
        assert self.holder is not None
        assert self.relay is not None
        for process in (*self.processes, self.relay, self.holder):
            process.kill()
            process.wait()

    def _inside(self) -> list[str]:
        assert self.holder is not None
        return ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net"]

    def start(self, name: str, template: Manifest, claims: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        """The first container of a Pod; its log is ``<name>.log``."""
        (container,) = template["spec"]["containers"]
        pod = self.folder / name
        script = pod / "start.sh"
        script.parent.mkdir(parents=True)
        script.write_text(self._script(pod, template, container, claims))
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*self._inside(), "unshare", "--mount", "--propagation", "private", "sh", "-eu", str(script)],
                stdout=log,
                stderr=log,
                env=self.environment(container),
                cwd=ROOT,
            )
        self.processes.append(process)
        self.names.append(name)
        return process

    def environment(self, container: Manifest) -> dict[str, str]:
        """What the kubelet gives the container, over what the image has."""
        given = {**image_environment(), "HOME": "/tmp", "PYTHONPYCACHEPREFIX": "/tmp/bytecode"}
        for source in container["envFrom"]:
            given |= self.object("ConfigMap", source["configMapRef"]["name"])["data"]
        for entry in container.get("env", ()):
            value = "127.0.0.1" if "valueFrom" in entry else entry["value"]
            given[entry["name"]] = re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], value)
        # The image has an interpreter of its own, this machine the tests'.
        return {**given, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def object(self, kind: str, name: str) -> Manifest:
        """The object of this kind and name."""
        (found,) = (each for each in self.objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
        return found

    def get(self, url: str, *, headers: dict[str, str] | None = None, tls: Tls | None = None) -> tuple[int, str]:
        """What a probe, or with ``tls`` whoever verifies, is told: the status, 0 when nobody answers, and the text."""
        context = "ssl._create_unverified_context()"
        if tls:
            context = f"ssl.create_default_context(cafile={str(tls.ca)!r})"
        code = (
            "import ssl, sys, urllib.request, urllib.error\n"
            f"context = {context}\n"
            f"{_named(tls) if tls else ''}"
            f"request = urllib.request.Request({url!r}, headers={headers or {}!r})\n"
            f"try:\n    answer = urllib.request.urlopen(request, timeout=10, context=context)\n"
            "except urllib.error.HTTPError as error:\n    answer = error\n"
            "except OSError as error:\n    print(0, error)\n    sys.exit()\n"
            "print(answer.status, answer.read().decode())"
        )
        done = subprocess.run([*self._inside(), sys.executable, "-c", code], capture_output=True, text=True, check=True)
        status, _, text = done.stdout.partition(" ")
        return int(status), text

    def probe(self, name: str, command: list[str]) -> bool:
        """Whether an exec probe passes in a Pod."""
        process = next(each for each, log in zip(self.processes, self.names, strict=True) if log == name)
        inside = ["nsenter", f"--mount=/proc/{process.pid}/ns/mnt", f"--root=/proc/{process.pid}/root", "env"]
        path = f"PATH={Path(sys.executable).parent}:{os.environ['PATH']}"
        return subprocess.run([*inside, path, *command], capture_output=True, check=False).returncode == 0

    def log(self, name: str) -> str:
        """What a Pod has said."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _script(self, pod: Path, template: Manifest, container: Manifest, claims: tuple[str, ...]) -> str:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert template["spec"]["securityContext"]["runAsUser"] == UID
        root = pod / "root"
        lines = [
            f"mkdir -p {pod}/over {root}",
            f"mount -t tmpfs tmpfs {pod}/over",
            f"mkdir {pod}/over/upper {pod}/over/work",
            f"mount -t overlay overlay -o lowerdir=/,upperdir={pod}/over/upper,workdir={pod}/over/work {root}",
            f"mount --rbind /dev {root}/dev",
            f"mount --rbind /proc {root}/proc",
            f"mkdir -p {root}{image_environment()['TENANTRY_STATIC_DIR']}",
            # The interpreter and the sources are nobody's secret, but may be in somebody's home.
            *(f"chmod o+x {root}{each}" for place in (sys.executable, ROOT) for each in Path(place).resolve().parents),
            f"echo '127.0.0.1 localhost {self._services()}' > {root}/etc/hosts",
        ]
        volumes = {each["name"]: each for each in template["spec"]["volumes"]}
        for mount in sorted(container["volumeMounts"], key=lambda each: each["mountPath"]):
            at = f"{root}{mount['mountPath']}"
            volume = volumes.get(mount["name"], {"emptyDir": {}} if mount["name"] in claims else None)
            assert volume is not None, f"no volume {mount['name']}"
            lines.append(f"mkdir -p {at}")
            if "emptyDir" in volume:
                lines += [f"mount -t tmpfs -o mode=0770,gid={UID} tmpfs {at}"]
            elif "persistentVolumeClaim" in volume:
                lines.append(f"mount --bind {self.claim(volume['persistentVolumeClaim']['claimName'])} {at}")
            else:
                lines.append(f"mount --bind {self._secrets(pod / mount['name'], volume)} {at}")
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {at}")
        lines += [
            f"mount -o remount,bind,ro {root}",
            f"exec chroot {root} setpriv --reuid {UID} --regid {UID} --clear-groups --no-new-privs --bounding-set=-all "
            f"sh -c 'cd {ROOT} && exec \"$@\"' - {shlex.join(self._command(container))}",
        ]
        return "\n".join(lines) + "\n"

    def _command(self, container: Manifest) -> list[str]:
        given = self.environment(container)
        return [re.sub(r"\$\((\w+)\)", lambda found: given[found[1]], word) for word in container["command"]]

    def _services(self) -> str:
        names = [each["metadata"] for each in self.objects if each["kind"] == "Service"]
        return " ".join(f"{each['name']} {each['name']}.{each['namespace']}.svc" for each in names)

    def claim(self, name: str) -> Path:
        """The folder of a claim that Pods share, as ``fsGroup`` gives it to them."""
        folder = self.folder / "claims" / name
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, 0, UID)
        folder.chmod(0o2770)
        return folder

    def _secrets(self, folder: Path, volume: Manifest) -> Path:
        """The files of a Secret, or of several, for the group alone to read; a missing entry keeps a Pod from starting."""
        source = volume.get("secret") or volume["projected"]
        several = [each["secret"] for each in source.get("sources", ())] or [{**source, "name": source["secretName"]}]
        folder.mkdir(parents=True)
        for each in several:
            data = self.object("Secret", each["name"])["data"]
            for item in each["items"]:
                path = folder / item["path"]
                path.write_bytes(base64.b64decode(data[item["key"]]))
                os.chown(path, 0, UID)
                path.chmod(source["defaultMode"])
        return folder
