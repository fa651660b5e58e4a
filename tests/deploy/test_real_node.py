"""The chart on a real node, as docs/operators/installation.md says: every part from an image, in Pods (GW12, GW4, GW14).

A kube-apiserver with its controllers, a scheduler, a kubelet and containerd. The manifests are what Helm renders with the values
for trying, unchanged. It takes root, what a node takes (``tests/node.py``), nft, kubectl and Chromium.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import kubeapiserver, node
from tests.browser.conftest import ARGUMENTS, CHROMIUM
from tests.browser.window import Visit
from tests.deploy import images
from tests.deploy.rendering import ROOT, Manifest, flat, rendered, values_of
from tests.deploy.services import API_SERVER, NODE, RESOLVER, Services, namespaces_possible, own_network
from tests.kubeapiserver import KUBECTL, KubeApiserver

pytestmark = pytest.mark.timeout(1800)

PATIENCE = 600.0
"""Where the test gives up on Pods, whatever the machine."""

CONTROLLERS = (
    *("deployment", "replicaset", "statefulset", "job", "cronjob"),
    *("endpointslice", "persistentvolume-binder", "csrsigning"),
)
VALUES = values_of("values-kind.yaml")

OF_A_BUILD = "openshift-service-ca.crt"
"""A ConfigMap that a build of kube-apiserver mounts beside each token, and that its own controllers would make."""

PARTS = ("portal", "apiserver", "worker", "beat", "postgresql", "redis")
DOCUMENT = (ROOT / "docs" / "operators" / "installation.md").read_text()


def lacking() -> str:
    """What there must be and is not."""
    if not kubeapiserver.PRESENT:
        return kubeapiserver.REASON
    if why := node.lacking(scheduler=True):
        return why
    if CHROMIUM is None:
        return "no Chromium on this machine"
    return "" if namespaces_possible() else "this user cannot make networks with rules of nft in them"


def documented() -> list[str]:
    """The commands for trying it, without those that take Docker, kind and helm."""
    block = DOCUMENT.partition("\n## Trying it on kind\n")[2].partition("```console\n")[2].partition("```")[0]
    commands = re.findall(r"^\$ (.*)$", block, re.MULTILINE)
    return [each for each in commands if not each.startswith(("make ", "helm "))]


class Installation:
    """What its owner has: a kubeconfig of the cluster, and a shell in the repository."""

    def __init__(self, server: KubeApiserver) -> None:
        self.server = server
        self._commands = documented()
        self._beside: list[subprocess.Popen[bytes]] = []
        self.operator = ("", "")
        """The address and the password of the first one."""

    def do(self, beginning: str) -> str:
        """The next documented command, which begins so; what it said, or first said if it goes on beside."""
        command = self._commands.pop(0)
        assert command.startswith(beginning), command
        script, beside, _ = command.partition(" &")
        if not beside:
            return self.shell(script)
        process = subprocess.Popen(shlex.split(script), stdout=subprocess.PIPE, cwd=ROOT, env=self._environment())
        self._beside.append(process)
        assert process.stdout is not None
        return process.stdout.readline().decode()

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """As the cluster's owner."""
        done = self.server.kubectl(*arguments, stdin=stdin)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}\n{self.told()}"
        return done.stdout

    def until(self, *condition: str) -> None:
        """Until ``kubectl wait`` with this says so."""
        self.eventually(
            lambda: not self.server.kubectl("-n", "tenantry", "wait", "--timeout=50s", *condition).returncode,
            *condition,
        )

    def eventually(self, condition: Callable[[], bool], *what: str) -> None:
        """Until it is so."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"{what}\n{self.told()}"
            time.sleep(1)

    def shell(self, command: str) -> str:
        """What a command of the document said, in the repository."""
        done = subprocess.run(
            ["sh", "-c", command], cwd=ROOT, env=self._environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}\n{self.told()}"
        return done.stdout

    def pods(self, part: str) -> list[Manifest]:
        """The Pods of a part as they are."""
        chosen = ("-l", f"app.kubernetes.io/component={part}", "-o", "json")
        return list(json.loads(self.kubectl("-n", "tenantry", "get", "pods", *chosen))["items"])

    def told(self) -> str:
        """What is going on, for whoever looks for the fault."""
        said = [self.server.kubectl("-n", "tenantry", *each).stdout for each in (("get", "all,pvc"), ("get", "events"))]
        for part in (*PARTS, "bootstrap", "joincluster", "backup", "restore"):
            chosen = ("-l", f"app.kubernetes.io/component={part}", "--tail=30", "--prefix")
            said.append(self.server.kubectl("-n", "tenantry", "logs", *chosen).stdout)
        return "\n".join(said)

    def end(self) -> None:
        for process in self._beside:
            process.kill()
            process.wait()

    def _environment(self) -> dict[str, str]:
        assert KUBECTL is not None
        path = f"{Path(sys.executable).parent}:{Path(KUBECTL).parent}:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "KUBECONFIG": str(self.server.folder / "admin.kubeconfig")}


@contextmanager
def cluster(folder: Path) -> Iterator[KubeApiserver]:
    """A cluster of one node with the images, three disks, and Services that lead somewhere."""
    archives = [
        images.product(folder, f"{VALUES['image']['repository']}:{VALUES['image']['tag']}"),
        images.postgresql_image(folder, "postgres:18"),
        images.redis_image(folder, "redis:8"),
    ]
    for name in ("product", "postgresql", "redis"):
        shutil.rmtree(folder / name)
    flags = (*node.server_flags(folder), "--bind-address=0.0.0.0", f"--advertise-address={NODE}")
    with (
        own_network(),
        kubeapiserver.running(
            controllers=True, more_controllers=CONTROLLERS, flags=flags, names=(API_SERVER,)
        ) as server,
        Services(server),
        node.running_node(server, folder, scheduler=True, images=archives, address=NODE, resolver=RESOLVER),
    ):
        done = server.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(disks(folder)))
        assert done.returncode == 0, done.stderr
        # This kubelet measures no local storage, and a workspace's defaults ask for some.
        size = {"ephemeral-storage": "20Gi"}
        status = json.dumps({"status": {"capacity": size, "allocatable": size}})
        done = server.kubectl("patch", "node", node.NODE, "--subresource=status", "-p", status)
        assert done.returncode == 0, done.stderr
        yield server


def disks(folder: Path) -> Iterator[Manifest]:
    """Of the node: kind has a class that makes them, here they are there before."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.NODE]}
    for number in (1, 2, 3):
        place = folder / f"disk-{number}"
        place.mkdir()
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "local": {"path": str(place)},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        }
        yield {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": place.name}, "spec": spec}


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """What is installed, and has joined the cluster that it runs in."""
    if why := lacking():
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="node-", ignore_cleanup_errors=True) as folder:
        with cluster(Path(folder)) as server:
            made = Installation(server)
            made.operator = installed(made)
            joined(made)
            yield made
            made.end()


@pytest.fixture
def chromium(installation: Installation) -> Iterator[Any]:
    """A browser in the node's network, where kubectl forwards the ports."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


def test_installed_opened_joined_and_used_through_the_door(
    installation: Installation, chromium: Any, tmp_path: Path
) -> None:
    email, password = installation.operator
    window = Visit(chromium, "http://127.0.0.1:8000")
    window.page.goto(window.site)
    window.page.fill("input[name=username]", email)
    window.page.fill("input[name=password]", password)
    window.page.click("button[type=submit]")
    window.page.get_by_text("What to do next").wait_for()
    window.page.goto(f"{window.site}/clusters/kind/")
    window.page.get_by_text(f"https://{API_SERVER}").first.wait_for()

    window.page.goto(f"{window.site}/tenants/new/")
    window.page.fill("input[name=name]", "acme")
    window.page.fill("input[name=owner]", email)
    window.page.get_by_role("button", name="Create tenant").click()
    window.page.get_by_text("The tenant is there, with its space.").wait_for()
    space = Door(kubeconfig(window, "/tenants/acme/kubeconfig/", tmp_path / "acme"))
    metadata = {"name": "acme-web", "labels": {"tenantry.io/cluster": "kind"}}
    space.kubectl(
        "create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    )
    space.kubectl("wait", "--for=jsonpath={.status.phase}=Active", "ns/acme-web", "--timeout=280s")

    workspace = page_of_workspace(window, "acme-web")
    own = Door(kubeconfig(window, f"{workspace}kubeconfig/", tmp_path / "web"))
    own.kubectl("create", "-f", "-", stdin=json.dumps(greeting("hello from the node")))
    own.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/hello", "--timeout=280s")
    assert own.kubectl("logs", "hello") == "hello from the node\n"
    real = json.loads(installation.kubectl("get", "pod", "hello", "-n", "acme-web", "-o", "json"))
    assert real["spec"]["nodeName"] == node.NODE
    window.page.goto(f"{window.site}{workspace}contents/pods/hello/logs/")
    window.page.get_by_text("hello from the node").first.wait_for()
    assert window.complaints == []


@pytest.mark.parametrize("where", ["tenantry-worker-0", "deployment/tenantry-apiserver", "deployment/tenantry-portal"])
def test_the_doctor_finds_nothing_wrong_in_any_pod(installation: Installation, where: str) -> None:
    """What a part has no keys for is elsewhere, and no failure."""
    asked = ("-n", "tenantry", "exec", where, "--", "python", "manage.py", "doctor")
    done = installation.server.kubectl(*asked)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout


def test_probes_spare_who_waits_for_others_and_end_who_stands_still(installation: Installation) -> None:
    """As the kubelet asks them: without PostgreSQL nobody is ready and nobody is ended; a frozen process begins anew."""
    ours = ("portal", "apiserver", "worker", "beat")
    before = {part: restarts(installation, part) for part in ours}
    scale = ("-n", "tenantry", "scale", "statefulset/tenantry-postgresql")
    installation.kubectl(*scale, "--replicas=0")
    for part in ("portal", "apiserver"):
        installation.until("--for=condition=Ready=false", "pod", "-l", f"app.kubernetes.io/component={part}")
    asked = lived(installation)
    for part in ours:
        installation.eventually(lambda part=part: lived(installation)[part] >= asked[part] + 4, part)
    installation.kubectl(*scale, "--replicas=1")
    for part in PARTS:
        installation.until("--for=condition=Ready", "pod", "-l", f"app.kubernetes.io/component={part}")
    assert {part: restarts(installation, part) for part in ours} == before
    frozen = [freeze(each["metadata"]["name"]) for part in ours for each in installation.pods(part)]
    assert all(frozen)
    for part in ours:
        installation.eventually(lambda part=part: restarts(installation, part) == before[part] + 1, part)
        installation.until("--for=condition=Ready", "pod", "-l", f"app.kubernetes.io/component={part}")


def restarts(installation: Installation, part: str) -> int:
    """How often the kubelet has begun the containers of a part anew."""
    return sum(
        status["restartCount"] for pod in installation.pods(part) for status in pod["status"]["containerStatuses"]
    )


def lived(installation: Installation) -> Counter[str]:
    """How often the kubelet has found each part alive, by its own count."""
    text = installation.kubectl("get", "--raw", f"/api/v1/nodes/{node.NODE}/proxy/metrics/probes")
    found: Counter[str] = Counter()
    for labels, value in re.findall(r"^prober_probe_total\{(.*)\} (\S+)$", text, re.MULTILINE):
        said = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if (said["probe_type"], said["result"], said["namespace"]) == ("Liveness", "successful", "tenantry"):
            found[said["container"]] += int(float(value))
    return found


def freeze(pod: str) -> int:
    """Let every process of a Pod stand still; how many they are."""
    stopped = 0
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            if place.name.isdigit() and f"HOSTNAME={pod}".encode() in (place / "environ").read_bytes().split(b"\0"):
                os.kill(int(place.name), signal.SIGSTOP)
                stopped += 1
    return stopped


def test_a_backup_is_made_and_restored_by_the_documented_commands(installation: Installation) -> None:
    """The chart with backups, over the one without; its CronJobs' Jobs by hand."""
    values = {**VALUES, "backup": {"enabled": True, "keep": 2, "storage": "1Gi"}}
    installation.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(flat(rendered(values))))
    block = DOCUMENT.partition("\n### Backups\n")[2].partition("\n#")[0].replace(" \\\n", " ")
    commands = [re.sub(r"  +#.*", "", command) for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE)]
    make, _, stop, restore, _, told, start, opened = commands
    installation.shell(make)
    installation.until("--for=condition=Complete", "job/backup")
    (file,) = re.findall(r"/backups/(\S+): \d+ rows", installation.shell("kubectl -n tenantry logs job/backup"))
    examined = installation.shell(
        "kubectl -n tenantry exec deployment/tenantry-portal -- python manage.py doctor backups"
    )
    assert "the newest is of" in examined
    installation.shell(stop)
    installation.shell(re.sub(r"BACKUP=\S+", f"BACKUP={file}", restore))
    installation.until("--for=condition=Complete", "job/restore")
    assert "Restored as of" in installation.shell(told)
    installation.shell(start.replace("--replicas=2", "--replicas=1"))
    for part in PARTS:
        installation.until("--for=condition=Ready", "pod", "-l", f"app.kubernetes.io/component={part}")
    asked = shlex.split(opened.removeprefix("kubectl "))
    installation.eventually(lambda: "Open:" in installation.server.kubectl(*asked).stdout, opened)
    examined = installation.shell(
        "kubectl -n tenantry exec deployment/tenantry-portal -- python manage.py doctor backups"
    )
    assert "this database was restored from it" in examined


def installed(installation: Installation) -> tuple[str, str]:
    """Every part is ready; the first operator's address and password."""
    installation.do("kubectl create namespace")
    installation.do("kubectl label namespace")
    installation.do("python manage.py keys")
    installation.kubectl("-n", "tenantry", "create", "configmap", OF_A_BUILD, "--from-literal=service-ca.crt=")
    manifests = yaml.safe_dump_all(flat(rendered(VALUES)))
    installation.kubectl("apply", "--server-side", "-f", "-", stdin=manifests)
    installation.until("--for=condition=Complete", "job", "-l", "app.kubernetes.io/component=bootstrap")
    installation.do("kubectl -n tenantry wait")
    facts = json.loads(installation.do("kubectl -n tenantry logs").splitlines()[-1])
    for part in PARTS:
        installation.until("--for=condition=Ready", "pod", "-l", f"app.kubernetes.io/component={part}")
    for port in (8000, 6443):
        assert f"127.0.0.1:{port} ->" in installation.do("kubectl -n tenantry port-forward")
    return facts["operator_email"], facts["operator_password"]


def joined(installation: Installation) -> None:
    """The cluster registers itself, and nothing is wrong with what came of it."""
    installation.do("kubectl -n tenantry create job join")
    installation.until("--for=condition=Complete", "job/join")
    assert "the check found nothing wrong" in installation.kubectl("-n", "tenantry", "logs", "job/join")


class Door:
    """kubectl with a downloaded file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        command = [str(KUBECTL), "--kubeconfig", str(self._file), "--cache-dir", f"{self._file}.cache", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout


def kubeconfig(window: Visit, at: str, path: Path) -> Path:
    """One is issued by the page, with tokens, and downloaded."""
    window.page.goto(window.site + at)
    window.page.get_by_label("Way", exact=True).select_option("gateway")
    window.page.get_by_role("button", name="Issue kubeconfig").click()
    with window.page.expect_download() as download:
        window.page.get_by_role("button", name="Download", exact=True).click()
    download.value.save_as(path)
    return path


def page_of_workspace(window: Visit, name: str) -> str:
    """The path of its page, where people find it."""
    window.page.goto(f"{window.site}/workspaces/")
    window.page.get_by_role("link", name=name, exact=True).first.click()
    window.page.get_by_role("link", name="Get kubeconfig").wait_for()
    return str(window.page.url.removeprefix(window.site))


def greeting(words: str) -> Manifest:
    """A Pod that says so and ends."""
    container = {"name": "c", "image": node.IMAGE, "imagePullPolicy": "Never", "command": ["echo", words]}
    spec = {"automountServiceAccountToken": False, "restartPolicy": "Never", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hello"}, "spec": spec}
