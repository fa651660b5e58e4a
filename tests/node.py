"""A real node for a kube-apiserver of ``tests.kubeapiserver``: kubelet and containerd, with an image made of busybox.

It takes root, ``containerd``, ``runc`` and ``busybox`` (Debian: containerd, runc, busybox-static), and a kubelet in
``KUBEBUILDER_ASSETS``. Pods share the machine's network: there is nothing of it to set up or to take away. With a scheduler
(kube-scheduler beside the kubelet, Debian: containernetworking-plugins) they are anybody's, and have a network of their own.
The addresses of Services lead somewhere where somebody leads them (``tests/deploy/services.py``).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import trustme
import yaml

from tests.images import write_image
from tests.kubeapiserver import ASSETS, SERVICES, KubeApiserver, _wait
from tests.ports import free_port

IMAGE = "example.org/busybox:1"
PAUSE = "example.org/pause:1"
NODE = "node-1"
_PLUGINS = Path("/usr/lib/cni")
_RESULTS = Path("/var/lib/cni/results")
"""Where the network's plugins keep what they did for each container, wherever the node's folder is."""

_NEEDED = ("containerd", "ctr", "runc", "busybox")
_TOOLS = (
    "sh",
    "sleep",
    "cat",
    "echo",
    "tar",
    "ls",
    "date",
    "head",
    "httpd",
    "wc",
    "seq",
    "test",
    "mkdir",
    "stty",
    "nc",
)


def lacking(*, scheduler: bool = False) -> str:
    """What there must be and is not, empty where a node can run."""
    if os.geteuid() != 0:
        return "a node takes root"
    for program in ("kubelet", *(("kube-scheduler",) if scheduler else ())):
        if not (ASSETS / program).is_file():
            return f"KUBEBUILDER_ASSETS names no folder with {program}"
    if scheduler and not (_PLUGINS / "ptp").is_file():
        return f"a network of pods takes {_PLUGINS / 'ptp'}"
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    return f"a node takes {', '.join(missing)}" if missing else ""


def server_flags(folder: Path) -> Sequence[str]:
    """What kube-apiserver has to be told to reach the kubelet of this folder, and to be believed there."""
    ca = trustme.CA()
    (folder / "server-ca.pem").write_bytes(ca.cert_pem.bytes())
    certificate = ca.issue_cert("kube-apiserver.example.org", common_name="kube-apiserver")
    (folder / "server.pem").write_bytes(certificate.cert_chain_pems[0].bytes())
    (folder / "server.key").write_bytes(certificate.private_key_pem.bytes())
    return (
        f"--kubelet-client-certificate={folder / 'server.pem'}",
        f"--kubelet-client-key={folder / 'server.key'}",
        "--kubelet-preferred-address-types=InternalIP",
    )


@contextmanager
def running_node(
    server: KubeApiserver,
    folder: Path,
    *,
    scheduler: bool = False,
    images: Sequence[Path] = (),
    address: str = "",
    resolver: str = "",
) -> Iterator[None]:
    """A node of ``server``, which was started with ``server_flags``; gone with all its processes afterwards.

    It has the ``images`` of these archives beside its own. ``address`` is the node's where the machine has no way out,
    ``resolver`` the name server of its Pods.
    """
    processes: list[subprocess.Popen[bytes]] = []
    socket = folder / "containerd.sock"
    snapshotter = _snapshotter(folder)
    try:
        config = _containerd_config(folder, socket, snapshotter, network=scheduler)
        processes.append(_spawn(folder, "containerd", "--config", str(config)))
        _wait(folder, processes, lambda: _ctr(socket, "version").returncode == 0)
        for archive in (_images(folder), *images):
            importing = ("images", "import", "--snapshotter", snapshotter, str(archive))
            done = _ctr(socket, "--namespace", "k8s.io", *importing)
            assert done.returncode == 0, done.stderr
        processes.append(
            _spawn(
                folder,
                str(ASSETS / "kubelet"),
                f"--config={_kubelet_config(folder, socket, resolver)}",
                f"--kubeconfig={server.folder / 'admin.kubeconfig'}",
                f"--hostname-override={NODE}",
                *((f"--node-ip={address}",) if address else ()),
                f"--root-dir={folder / 'kubelet'}",
                f"--cert-dir={folder / 'kubelet-pki'}",
            )
        )
        _wait(folder, processes, lambda: server.admin.send("GET", f"/api/v1/nodes/{NODE}").status == 200)
        if scheduler:
            processes.append(_scheduler(server, folder))
            ready = server.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=240s")
            assert ready.returncode == 0, ready.stderr
            # As the controller of nodes would, which would also evict from a machine that stands still.
            server.kubectl("taint", "node", NODE, "node.kubernetes.io/not-ready-")
        yield
    finally:
        _stop(folder, socket, processes)


def pod(name: str, *command: str) -> dict[str, object]:
    """A pod on this node, whoever schedules."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": NODE,
            "hostNetwork": True,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "c", "image": IMAGE, "imagePullPolicy": "Never", "command": list(command)}],
        },
    }


def _spawn(folder: Path, program: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (folder / f"{Path(program).name}.log").open("wb") as log:
        return subprocess.Popen([program, *arguments], stdout=log, stderr=log, cwd=folder)


def _scheduler(server: KubeApiserver, folder: Path) -> subprocess.Popen[bytes]:
    config = server.folder / "admin.kubeconfig"
    return _spawn(
        folder,
        str(ASSETS / "kube-scheduler"),
        *(f"--{purpose}kubeconfig={config}" for purpose in ("", "authentication-", "authorization-")),
        "--leader-elect=false",
        f"--secure-port={free_port()}",
        f"--cert-dir={folder / 'scheduler'}",
    )


def _ctr(socket: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ctr", "--address", str(socket), *arguments], capture_output=True, text=True, timeout=300, check=False
    )


def _snapshotter(folder: Path) -> str:
    """Containers' roots are laid over their image where the folder's file system can be, else each is a copy of it."""
    under, upper, work, over = (folder / "laid" / name for name in ("under", "upper", "work", "over"))
    for each in (under, upper, work, over):
        each.mkdir(parents=True)
    options = f"lowerdir={under},upperdir={upper},workdir={work}"
    laid = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, over], capture_output=True, check=False)
    if laid.returncode:
        return "native"
    subprocess.run(["umount", over], check=True)
    return "overlayfs"


def _stop(folder: Path, socket: Path, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes[1:]:
        process.kill()
        process.wait()
    made, running = (
        _ctr(socket, "--namespace", "k8s.io", each, "list", "--quiet").stdout.split()
        for each in ("containers", "tasks")
    )
    for task in running:
        _ctr(socket, "--namespace", "k8s.io", "tasks", "delete", "--force", task)
    for process in processes[:1]:
        process.terminate()
        process.wait()
    # What containerd leaves behind on purpose, to be found by another: the shims of this folder's containers.
    for directory in Path("/proc").iterdir():
        with suppress(OSError):
            said = (directory / "cmdline").read_bytes()
            if directory.name.isdigit() and b"containerd-shim" in said and str(socket).encode() in said:
                os.kill(int(directory.name), signal.SIGKILL)
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for mount in reversed([each for each in mounts if each.startswith(f"{folder}/")]):
        subprocess.run(["umount", "--lazy", mount], check=False)
    for container in made:
        for result in _RESULTS.glob(f"*-{container}-*"):
            result.unlink()


def _containerd_config(folder: Path, socket: Path, snapshotter: str, *, network: bool) -> Path:
    path = folder / "containerd.toml"
    path.write_text(
        f"""version = 2
root = "{folder / "containerd-root"}"
state = "{folder / "containerd-state"}"
[grpc]
  address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{_PLUGINS}"
    conf_dir = "{folder / "cni"}"
"""
    )
    (folder / "cni").mkdir()
    pair = {
        "type": "ptp",
        "ipam": {
            "type": "host-local",
            "dataDir": str(folder / "addresses"),
            "subnet": "10.231.77.0/24",
            "routes": [{"dst": SERVICES}],
        },
    }
    plugins = [pair if network else {"type": "loopback"}]
    (folder / "cni" / "10-pods.conflist").write_text(
        json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": plugins})
    )
    return path


def _kubelet_config(folder: Path, socket: Path, resolver: str) -> Path:
    path = folder / "kubelet.yaml"
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "port": free_port(),
        "healthzPort": 0,
        "readOnlyPort": 0,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": str(folder / "server-ca.pem")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{socket}",
        "failCgroupV1": False,
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "localStorageCapacityIsolation": False,
        "resolvConf": "",
        # Its rules would stay in the machine's network, and there is no proxy of Services that needs them.
        "makeIPTablesUtilChains": False,
        "podLogsDir": str(folder / "logs"),
        **({"clusterDNS": [resolver], "clusterDomain": "cluster.local"} if resolver else {}),
    }
    path.write_text(yaml.safe_dump(config))
    return path


def _images(folder: Path) -> Path:
    """Both images in one archive: busybox under the names of its tools."""

    def fill(tar: tarfile.TarFile) -> None:
        program = shutil.which("busybox")
        assert program is not None
        for name in ("bin", "tmp"):
            place = tarfile.TarInfo(name)
            place.type, place.mode = tarfile.DIRTYPE, 0o777
            tar.addfile(place)
        tar.add(Path(program).resolve(), "bin/busybox")
        for tool in _TOOLS:
            link = tarfile.TarInfo(f"bin/{tool}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)

    config = {"Env": ["PATH=/bin"], "Cmd": ["sleep", "1000000"]}
    return write_image(folder / "images.tar", [IMAGE, PAUSE], config, fill)
