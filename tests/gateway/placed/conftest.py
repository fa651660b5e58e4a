"""The product's API server in front of a real cluster: people of two tenants, their workspaces, and a worker."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from django.utils import timezone

from access.credentials import tenant_kubeconfig_issue
from tenants.models import Cluster, Role, Tenant, Tier, User
from tenants.reconciler.deletion import tenants_end
from tenants.reconciler.loop import operations_run
from tenants.services import cluster_register, tenant_create, tiers_create_defaults
from tests import factories, kubeapiserver, node
from tests.clusters import TestCluster, prepared
from tests.gateway.callers import PATIENCE, Answer, Caller, eventually
from tests.gateway.conftest import Server
from tests.kubeapiserver import KUBECTL
from tests.speaking import Speaker
from tests.tenants.conftest import OPERATOR, actor_of, join

SERVER = "server-of-nodes"
"""The folder of what a node has to believe of the cluster that may have one."""

GROUPS = {role: f"tenantry:{role.value}" for role in Role}


@dataclass
class Door:
    """A tenant's way in: its API server, the cluster behind, and who belongs to it."""

    server: Server
    real: TestCluster | None
    tenant: Tenant

    @property
    def cluster(self) -> TestCluster:
        """The real cluster behind."""
        assert self.real is not None, "no real cluster is behind this door"
        return self.real

    @property
    def name(self) -> str:
        return self.tenant.name

    def person(self, name: str, role: Role) -> Caller:
        """A member of the tenant, known to the portal by the name in the certificate."""
        email = f"{name}@{self.name}.test"
        user, made = User.objects.get_or_create(email=email, defaults={"password": "!"})
        if made:
            join(self.tenant, user, role)
        return self.server.user(self.name, email, GROUPS[role])

    def member(self, name: str) -> User:
        """Whom the portal knows by this name."""
        return User.objects.get(email=f"{name}@{self.name}.test")

    def work(self) -> None:
        """Let a worker take its turns."""
        Cluster.objects.update(away_until=None)
        operations_run()
        tenants_end()

    def until(self, condition: Callable[[], Any]) -> Any:
        """What the condition comes to say, with a worker at work."""
        deadline = time.monotonic() + PATIENCE
        while not (said := condition()):
            assert time.monotonic() < deadline, said
            self.work()
            time.sleep(0.05)
        return said

    def place(self, caller: Caller, name: str = "", on: str = "kube-apiserver", **annotations: str) -> str:
        """A namespace on the cluster, ordered by the caller and ready."""
        name = name or f"{self.name}-web"
        answer = caller.post("/api/v1/namespaces", namespace(name, on, **annotations))
        assert answer.status == 201, answer.body
        self.until(lambda: phase_of(caller, name) == "Active")
        return name


def namespace(name: str, cluster: str = "kube-apiserver", **annotations: str) -> dict[str, Any]:
    """A Namespace that asks to be on a cluster."""
    metadata = {"name": name, "labels": {"tenantry.io/cluster": cluster}, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def phase_of(caller: Caller, name: str) -> str:
    answer = caller.get("/api/v1/namespaces")
    phases = {item["metadata"]["name"]: item["status"]["phase"] for item in answer.body.get("items", ())}
    return phases.get(name, "")


@pytest.fixture
def door_kubeconfig(cluster_kube_apiserver: TestCluster) -> str:
    """How the API server reaches the cluster: straight."""
    return cluster_kube_apiserver.real.kubeconfig("tenantry-gateway")


@pytest.fixture
def new_door(
    transactional_db: None,
    settings: Any,
    door_server: tuple[Server, str],
    cluster_kube_apiserver: TestCluster,
    undisturbed: None,
    door_kubeconfig: str,
) -> Callable[[], Door]:
    """Tenants with a registered cluster; each call makes another one."""
    server, key = door_server
    settings.SEALING_KEYS = [key]
    tiers_create_defaults()
    cluster_register(actor=OPERATOR, name="kube-apiserver", kubeconfig=door_kubeconfig)
    return lambda: new_tenant(server, cluster_kube_apiserver)


def new_tenant(server: Server, cluster: TestCluster | None, name: str = "") -> Door:
    """A tenant that the server lets in."""
    door = Door(server, cluster, tenant_create(actor=OPERATOR, name=name or f"t{uuid4().hex[:8]}"))
    # The server takes in that the tests emptied its database.
    owner = door.person("olga", Role.OWNER)
    deadline = time.monotonic() + PATIENCE
    while owner.get("/api/v1/namespaces").status != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return door


STANDING_IN = "standing-in"
"""The name of the cluster that is an API server of the product."""


@pytest.fixture
def new_standing_door(
    transactional_db: None, settings: Any, door_server: tuple[Server, str], standing_in: str
) -> Callable[..., Door]:
    """Tenants, by their names, with a cluster that stands in for a real one: what is asked of it shows everywhere."""
    server, key = door_server
    settings.SEALING_KEYS = [key]
    tiers_create_defaults()
    cluster_register(actor=OPERATOR, name=STANDING_IN, kubeconfig=standing_in)
    return lambda name="": new_tenant(server, None, name)


@pytest.fixture
def door(new_door: Callable[[], Door]) -> Door:
    """One tenant's."""
    return new_door()


@pytest.fixture
def tenant(transactional_db: None, door_server: tuple[Server, str]) -> Tenant:
    """One whose namespaces are all stored."""
    made = tenant_create(actor=OPERATOR, name=f"t{uuid4().hex[:8]}")
    server, _ = door_server
    assert eventually(lambda: owner_of(server, made).get("/api/v1/namespaces").status == 200)
    return made


def owner_of(server: Server, tenant: Tenant) -> Caller:
    return server.user(tenant.name, "olga", GROUPS[Role.OWNER])


@pytest.fixture
def kubectl(tmp_path: Path) -> Callable[..., str]:
    """The real kubectl as somebody with a certificate."""

    def run(caller: Caller, *arguments: str, stdin: str = "", check: bool = True) -> str:
        config = tmp_path / f"{uuid4().hex}.kubeconfig"
        config.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "x",
                    "clusters": [
                        {
                            "name": "c",
                            "cluster": {"server": f"https://{caller.host}", "certificate-authority": str(caller.ca)},
                        }
                    ],
                    "users": [
                        {
                            "name": "u",
                            "user": {"client-certificate": str(caller.certificate), "client-key": str(caller.key)},
                        }
                    ],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(config), "--cache-dir", str(tmp_path / "cache"), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=tmp_path,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    return run


@dataclass
class House:
    """A tenant, its owner, their namespaces (stored, twice without a node, twice with one) and their only file."""

    door: Door
    owner: Caller
    names: list[str]
    file: Path
    program: str = str(KUBECTL)

    @property
    def stored(self) -> str:
        return self.names[0]

    @property
    def running(self) -> str:
        """A namespace where containers run."""
        return self.names[3]

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        folder = self.file.parent
        command = [self.program, "--kubeconfig", str(self.file), "--cache-dir", str(folder / "cache"), *arguments]
        return subprocess.Popen(command, text=True, cwd=folder, **{**pipes, **streams})

    def kubectl(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        process = self.start(*arguments)
        said, complained = process.communicate(stdin, timeout=300)
        assert (process.returncode != 0) is fails, said + complained
        return said + complained


def kubeconfig(caller: Caller, path: Path) -> Path:
    cluster = {"server": f"https://{caller.host}", "certificate-authority": str(caller.ca)}
    user = {"client-certificate": str(caller.certificate), "client-key": str(caller.key)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return path


def tenant_file(door: Door, person: User, path: Path, url: str, settings: Any) -> Path:
    """The one file of the product for everything that a tenant has, through the API server that is at ``url`` (D9)."""
    pki = door.server.folder / "pki"
    settings.PORTAL_TOKEN_KEY_FILE = pki / "portal-tokens.key"
    Cluster.objects.update(credential_kinds=["gateway"])
    offered = {"credential_kinds": ["gateway"], "is_default": False}
    factories.cluster("own", kind=Cluster.Kind.EMBEDDED, server=url, ca_data=(pki / "ca.crt").read_text(), **offered)
    issued = tenant_kubeconfig_issue(actor=actor_of(person), tenant=door.name, now=timezone.now())
    assert not issued.missing, issued.missing
    path.write_text(issued.yaml)
    return path


def bearer(file: Path, ca: Path) -> Caller:
    """Whoever has such a file."""
    config = yaml.safe_load(file.read_text())
    return Caller(config["clusters"][0]["cluster"]["server"], ca, token=config["users"][0]["user"]["token"])


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """Another cluster than the one of all tests: this one may be restarted, and a node knows it."""
    if not kubeapiserver.PRESENT:
        pytest.skip(kubeapiserver.REASON)
    flags = node.server_flags(tmp_path_factory.mktemp(SERVER, numbered=False))
    controllers = ("deployment", "replicaset")
    with (
        kubeapiserver.running(controllers=True, more_controllers=controllers, flags=flags) as server,
        prepared(server) as cluster,
    ):
        yield cluster


@pytest.fixture(scope="module")
def with_node(second: TestCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Its node, with a scheduler."""
    if node.lacking(scheduler=True):
        pytest.skip(node.lacking(scheduler=True))
    with tempfile.TemporaryDirectory(prefix="node-", ignore_cleanup_errors=True) as folder:
        # What the kubelet believes lies where the server's flags were made out.
        shutil.copy(tmp_path_factory.getbasetemp() / SERVER / "server-ca.pem", folder)
        with node.running_node(second.real, Path(folder), scheduler=True):
            yield


@pytest.fixture
def new_house(new_door: Callable[[], Door], second: TestCluster, tmp_path: Path) -> Callable[[], House]:
    """Tenants; each call makes another one."""
    Tier.objects.update(workspaces_per_user=9, limit_range=[], quota={"services": "9"})
    cluster_register(actor=OPERATOR, name="second", kubeconfig=second.real.kubeconfig("tenantry-gateway"))

    def made() -> House:
        door = new_door()
        owner = door.person("olga", Role.OWNER)
        stored = f"{door.name}-stored"
        assert owner.post("/api/v1/namespaces", {"metadata": {"name": stored}}).status == 201
        on = {"a": "kube-apiserver", "b": "kube-apiserver", "c": "second", "d": "second"}
        placed = [door.place(owner, f"{door.name}-{letter}", on=cluster) for letter, cluster in on.items()]
        folder = tmp_path / door.name
        folder.mkdir()
        return House(door, owner, [stored, *placed], kubeconfig(owner, folder / "config"))

    return made


def speaking(caller: Caller, prefix: str = "") -> Speaker:
    """The same caller over one connection that is kept."""
    headers = {"Authorization": f"Bearer {caller.token}"} if caller.token else {}
    return Speaker(f"https://{caller.host}", caller.context, headers, prefix)


def said(answer: Answer) -> str:
    """The message of a Status."""
    return str(answer.body.get("message", ""))
