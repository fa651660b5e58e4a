"""An installation in a cluster: what the chart renders, what real API servers say of it, and whether it runs (GW12)."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import helm_python
import pytest
import yaml
from django.core.management import call_command

from tests.apiserver import KUBECTL, OwnApiserver
from tests.databases import OWNER, migrated
from tests.deploy.pods import Node, possible
from tests.deploy.rendering import (
    BASE,
    CHART,
    FILES,
    ROOT,
    WATCHED,
    Manifest,
    base,
    flat,
    rendered,
    shipped,
    values_of,
    watched,
)
from tests.kubeapiserver import KubeApiserver
from tests.story.product import eventually

SHAPES: dict[str, dict[str, Any]] = {
    "default": {},
    "kind": values_of("values-kind.yaml"),
    "production": values_of("values-production.yaml"),
    "given certificate": {"apiserver": {"tls": {"from": "secret", "hasAuthority": False}}},
    "traced": {"settings": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.monitoring:4318"}},
}
OTHERS_KINDS = {"ServiceMonitor", "PrometheusRule", "Certificate", "Issuer"}
"""Of the Prometheus operator and of cert-manager, whose CRDs no test server has."""


def shape(name: str) -> list[Manifest]:
    return flat(rendered(SHAPES[name]))


def pods(objects: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Every Pod template, by the name of what makes Pods of it."""
    for each in objects:
        spec = each.get("spec", {})
        template = spec.get("jobTemplate", {}).get("spec", spec).get("template")
        if template:
            yield each["metadata"]["name"], template


@pytest.fixture(scope="module")
def secrets() -> list[Manifest]:
    """What ``manage.py keys`` prints for the shape for trying."""
    return keys("--bundled")


def keys(*arguments: str) -> list[Manifest]:
    from io import StringIO

    said = StringIO()
    call_command("keys", "--url", "https://api.tenantry.example.org:6443", *arguments, stdout=said)
    return list(yaml.safe_load_all(said.getvalue()))


def test_kustomize_base_is_the_chart() -> None:
    assert {path.name: path.read_text() for path in BASE.iterdir()} == base(), "make manifests"
    assert {path.name: path.read_text() for path in FILES.iterdir()} == shipped(), "make manifests"
    assert {path.name: path.read_text() for path in WATCHED.iterdir()} == watched(), "make manifests"


WITHOUT_VALUE = {
    "SECRET_KEY": "a key of the Secret secrets.keys",
    "TENANTRY_SEALING_KEYS": "a key of the Secret secrets.keys",
    "METRICS_TOKEN": "a key of the Secret secrets.monitoring",
    "TENANTRY_DATA_DIR": "the image's",
    "TENANTRY_STATIC_DIR": "the image's",
    "PORTAL_PORT": "the image's",
    "APISERVER_PORT": "the image's",
    "APISERVER_CA_FILE": "given by apiserver.tls.from",
    "ALLOWED_HOSTS": "given by portal.host and the Pod's address",
    "ALIVE_FILE": "given to workers and beat alone",
    "MIGRATION_DATABASE_URL": "given to bootstrap alone",
    "CORS_ALLOWED_ORIGINS": "none is what is secure; a list is the installation's own",
    "EMAIL_URL": "none: nothing is sent; the installation's own, and it may hold a password",
    "EMAIL_FROM": "of no use without EMAIL_URL",
    "WORKSPACE_LINKS": "none is the default; a list is the installation's own",
    "ADMISSION_CONTROL_CONFIG_FILE": "a file that the installation has to mount",
    "REQUEST_APPROVERS": "none is the default; a policy is the installation's own",
    "WEBHOOK_ALLOWED_NETWORKS": "none is what is secure",
    "WEBHOOK_CA_FILE": "a file that the installation has to mount",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "none is the default: nothing is traced; the address of the installation's own collector",
    "API_REQUESTS_READS_IN_FULL": "by the number of cores where it is not given",
}
"""Documented settings that neither the chart's values nor its templates give to every part, and why."""


def test_every_documented_setting_has_a_value_in_the_chart_or_a_reason() -> None:
    """What has a value has the product's own default, so that the two do not drift apart."""
    text = (ROOT / "docs" / "operators" / "operations.md").read_text()
    table = text.partition("\n### Settings\n")[2].partition("\n\n| variable |")[2].partition("\n\n")[0]
    rows = (line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))
    documented = {name for row in rows for name in re.findall(r"`([A-Z_]+)`", row)}
    (given,) = (
        each["data"] for each in shape("default") if each["kind"] == "ConfigMap" and "LOG_LEVEL" in each["data"]
    )
    assert documented - {name.removesuffix("_FILE") for name in given} - given.keys() == WITHOUT_VALUE.keys()
    code = (ROOT / "portal" / "settings.py").read_text()
    for name, value in yaml.safe_load((CHART / "values.yaml").read_text())["settings"].items():
        (default,) = re.findall(rf'env\.\w+\("{name}", ([^)]+)\)', code)
        assert value.casefold() == str(eval(default)).casefold(), name  # the product's own text


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is missing")
def test_kustomize_builds_what_helm_renders() -> None:
    built = subprocess.run([str(KUBECTL), "kustomize", str(BASE)], capture_output=True, text=True, check=True).stdout

    def named(objects: list[Manifest]) -> dict[tuple[str, str], Manifest]:
        return {(each["kind"], each["metadata"]["name"]): each for each in objects}

    assert named(list(yaml.safe_load_all(built))) == named(shape("default"))


def test_helm_finds_nothing_to_complain_of() -> None:
    for values in SHAPES.values():
        found = helm_python.lint(str(CHART), values, strict=True)
        assert (found["messages"], found["errors"]) == ([], [])


@pytest.mark.parametrize(
    "values",
    [
        {"portal": {"replicas": 0}},
        {"portal": {"ingress": {"enabled": True}}},  # whoever ends TLS is believed by name alone
        {"portal": {"trustedProxies": ["*"]}},
        {"apiserver": {"url": "http://api.example.org"}},
        {"apiserver": {"tls": {"from": "letsencrypt"}}},
        {"settings": {"SECRET_KEY": "in the open"}},
        {"settings": {"DATABASE_URL": "postgresql://me:secret@host/db"}},
        {"settings": {"OTEL_EXPORTER_OTLP_HEADERS": "key=secret"}},
        {"image": {"digest": "latest"}},
        {"replicas": 2},
    ],
)
def test_values_that_would_not_work_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(helm_python.HelmError):
        rendered(values)


@pytest.mark.parametrize("name", SHAPES)
def test_manifests_name_only_what_there_is(name: str, secrets: list[Manifest]) -> None:
    """Settings that are read, entries of Secrets that ``manage.py keys`` makes, Services and ports that somebody serves."""
    objects = shape(name)
    settings = (ROOT / "portal" / "settings.py").read_text()
    read = set(re.findall(r'(?:env\.\w+|_secret|_path)\(\s*"([A-Z_]+)"', settings))
    made = {each["metadata"]["name"]: set(each["data"]) for each in secrets}
    given = {"tenantry-apiserver-tls": {"tls.crt", "tls.key", "ca.crt"}}  # cert-manager's, or one's own
    (configuration,) = (
        each["data"] for each in objects if each["kind"] == "ConfigMap" and "dashboard" not in each["metadata"]["name"]
    )
    for part, template in pods(objects):
        for container in template["spec"]["containers"]:
            if container["image"].startswith("tenantry") or "/tenantry" in container["image"]:
                for variable in {*configuration, *(each["name"] for each in container.get("env", ()))} - {"POD_IP"}:
                    assert {variable, variable.removesuffix("_FILE")} & read, variable
        for volume in template["spec"]["volumes"]:
            if "secret" in volume:
                wanted = {item["key"] for item in volume["secret"]["items"]}
                assert wanted <= {**made, **given}[volume["secret"]["secretName"]], part


def test_only_who_needs_a_key_has_it() -> None:
    """No Pod has the authorities' keys, only bootstrap the owner of the tables, only workers the audit's signing key."""
    holders: dict[str, set[str]] = {}
    for part, template in pods(shape("production")):
        for volume in template["spec"]["volumes"]:
            source = volume.get("secret", {"secretName": "", "items": ()})
            for item in source["items"]:
                holders.setdefault(f"{source['secretName']}/{item['key']}", set()).add(part.split("-")[1])
    assert not {"tenantry-keys/ca.key", "tenantry-keys/client-ca.key"} & set(holders)
    assert not any(key.startswith(("tenantry-authority", "tenantry-monitoring")) for key in holders)
    assert holders["tenantry-database/migration-url"] == {"bootstrap"}
    assert holders["tenantry-keys/audit-checkpoints.key"] == {"worker"}
    assert holders["tenantry-keys/portal-tokens.key"] == {"portal", "apiserver", "bootstrap"}
    assert holders["tenantry-apiserver-tls/tls.key"] == {"apiserver"}


def test_only_who_is_traced_speaks_to_a_collector() -> None:
    assert not [each for each in shape("production") if each["metadata"]["name"] == "tenantry-collector"]
    (policy,) = [each for each in shape("traced") if each["metadata"]["name"] == "tenantry-collector"]
    (chosen,) = policy["spec"]["podSelector"]["matchExpressions"]
    assert chosen["values"] == ["portal", "apiserver", "worker"]
    assert policy["spec"]["egress"][0]["ports"] == [{"port": 4318, "protocol": "TCP"}]


def test_another_release_in_another_namespace_shares_no_name() -> None:
    first = {(each["kind"], each["metadata"]["name"]) for each in shape("kind")}
    second = flat(rendered(SHAPES["kind"], name="staging", namespace="staging"))
    shared = first & {(each["kind"], each["metadata"]["name"]) for each in second}
    # The gateway's rights are of the cluster: everybody who works on it has the same.
    assert all("tenantry-" in name and kind not in {"Deployment", "Service", "ServiceAccount"} for kind, name in shared)
    assert all(each["metadata"].get("namespace", "staging") == "staging" for each in second)


@pytest.mark.parametrize("name", SHAPES)
def test_a_real_cluster_takes_it_into_a_restricted_namespace_without_a_warning(
    name: str, kube_apiserver: KubeApiserver, secrets: list[Manifest]
) -> None:
    standards = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenantry", "labels": standards}}
    objects = [namespace, *secrets, *(each for each in shape(name) if each["kind"] not in OTHERS_KINDS)]
    done = kube_apiserver.kubectl(
        *("apply", "--server-side", "--force-conflicts", "--validate=strict", "--warnings-as-errors", "-f", "-"),
        stdin=yaml.safe_dump_all(objects),
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(objects)
    # What a template's Pod would be refused for is only said when it is made.
    for part, template in pods(objects):
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        pod["metadata"] = {**template["metadata"], "name": f"try-{part}", "namespace": "tenantry"}
        claims = [{"name": "data", "emptyDir": {}}] if part.endswith(("worker", "postgresql")) else []
        pod["spec"] = {**template["spec"], "volumes": [*template["spec"]["volumes"], *claims]}
        tried = kube_apiserver.kubectl(
            *("create", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-"),
            stdin=yaml.safe_dump(pod),
        )
        assert tried.returncode == 0, (part, tried.stderr)


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is missing")
def test_the_products_own_api_server_takes_it_too(apiserver: OwnApiserver) -> None:
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "tenantry"}},
        *(each for each in shape("kind") if each["kind"] not in OTHERS_KINDS),
    ]
    for arguments in (("apply", "-f", "-"), ("apply", "--server-side", "--force-conflicts", "-f", "-")):
        done = subprocess.run(
            [str(KUBECTL), "--kubeconfig", str(apiserver.kubeconfig), *arguments],
            input=yaml.safe_dump_all(objects),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == len(objects)


PARTS = ("portal", "apiserver", "worker", "beat")
HELD = "this beat holds the lease"


@pytest.mark.skipif(not possible(), reason="this user cannot make namespaces, which a read-only root takes")
def test_its_processes_run_as_the_manifests_say(tmp_path: Path) -> None:
    """From the manifests' own commands, environment, volumes and probes; the root read-only, the user nobody's.

    Of two beats one wakes the workers, and the other one when it is gone.
    """
    if urlsplit(os.environ["DATABASE_URL"]).hostname or not os.environ["REDIS_URL"].startswith("unix://"):
        pytest.skip("the given databases are on a network that Pods of this test have no way to")
    with migrated("chart") as database:
        objects = [*shape("default"), *keys()]
        name = urlsplit(database).path
        at = f"127.0.0.1:5432{name}"
        owner = urlsplit(os.environ[OWNER]).username
        objects += [
            _secret(
                "tenantry-database",
                {"url": f"postgresql://tenantry_product@{at}", "migration-url": f"postgresql://{owner}@{at}"},
            ),
            _secret("tenantry-redis", {"url": "redis://127.0.0.1:6379/0"}),
        ]
        ports = {
            5432: Path(parse_qs(urlsplit(database).query)["host"][0]) / ".s.PGSQL.5432",
            6379: Path(urlsplit(os.environ["REDIS_URL"]).path),
        }
        templates = {name.removeprefix("tenantry-").split("-")[0]: template for name, template in pods(objects)}
        with Node(tmp_path, objects, ports) as node:
            assert node.start("bootstrap", templates["bootstrap"]).wait(300) == 0, node.log("bootstrap")
            assert json.loads(node.log("bootstrap").splitlines()[-1])["operator_password"]
            for part in PARTS:
                node.start(part, templates[part], claims=("data",) if part == "worker" else ())
            eventually(lambda: HELD in node.log("beat"))
            node.start("beat-2", templates["beat"])
            eventually(lambda: node.get("https://127.0.0.1:6443/readyz")[0] == 200, every=1)
            eventually(lambda: node.get("http://127.0.0.1:8000/readyz")[0] == 200, every=1)
            for part in ("worker", "beat"):
                look = templates[part]["spec"]["containers"][0]["livenessProbe"]["exec"]["command"]
                eventually(lambda part=part, look=look: node.probe(part, look), every=1)
            eventually(lambda: node.probe("beat-2", look), every=1)
            assert HELD not in node.log("beat-2")
            node.processes[node.names.index("beat")].kill()
            eventually(lambda: HELD in node.log("beat-2"))
            _drains(node)


def _drains(node: Node) -> None:
    """Every part ends by itself when it is told to, and says nothing that it should not."""
    for name, process in zip(node.names, node.processes, strict=True):
        process.terminate()
        process.wait(300)
        assert "Read-only file system" not in node.log(name), node.log(name)
        assert "Traceback" not in node.log(name), node.log(name)


def _secret(name: str, data: dict[str, str]) -> Manifest:
    return {
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }
