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
from cryptography import x509
from django.core.management import call_command

from tests.apiserver import KUBECTL, OwnApiserver
from tests.databases import OWNER, migrated
from tests.deploy.pods import Node, Tls, possible
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

FILED = {
    name: {"secret": f"tenantry-{name.lower().replace('_', '-')}", "key": "it"}
    for name in json.loads((CHART / "values.schema.json").read_text())["properties"]["files"]["properties"]
}
"""Every setting that may be a file of a Secret, as one."""

SHAPES: dict[str, dict[str, Any]] = {
    "default": {},
    "kind": values_of("values-kind.yaml"),
    "production": values_of("values-production.yaml"),
    "given certificate": {"apiserver": {"tls": {"from": "secret", "hasAuthority": False}}},
    "files": {"files": FILED},
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


def mounted(template: Manifest) -> Iterator[tuple[str, str]]:
    """Which entries of which Secrets a Pod mounts."""
    for volume in template["spec"]["volumes"]:
        sources = [("secretName", volume.get("secret"))]
        sources += [("name", each["secret"]) for each in volume.get("projected", {}).get("sources", ())]
        for name, source in sources:
            yield from ((source[name], item["key"]) for item in source["items"]) if source else ()


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
    "EMAIL_URL": "of files: the installation's own",
    "EMAIL_FROM": "of no use without EMAIL_URL",
    "WORKSPACE_LINKS": "none is the default; a list is the installation's own",
    "ADMISSION_CONTROL_CONFIG_FILE": "of files: the installation's own",
    "REQUEST_APPROVERS": "none is the default; a policy is the installation's own",
    "WEBHOOK_ALLOWED_NETWORKS": "none is what is secure",
    "WEBHOOK_CA_FILE": "of files: the installation's own",
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
        {"settings": {"WEBHOOK_CA_FILE": "/nowhere"}},
        {"files": {"LOG_LEVEL": {"secret": "it", "key": "it"}}},
        {"files": {"EMAIL_URL": {"secret": "it"}}},
        {"files": {"EMAIL_URL": "smtp://me:secret@host"}},
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
    given = {each["secret"]: {each["key"]} for each in SHAPES[name].get("files", {}).values()}
    given["tenantry-apiserver-tls"] = {"tls.crt", "tls.key", "ca.crt"}  # cert-manager's, or one's own
    (configuration,) = (
        each["data"] for each in objects if each["kind"] == "ConfigMap" and "dashboard" not in each["metadata"]["name"]
    )
    for part, template in pods(objects):
        for container in template["spec"]["containers"]:
            if container["image"].startswith("tenantry") or "/tenantry" in container["image"]:
                for variable in {*configuration, *(each["name"] for each in container.get("env", ()))} - {
                    "POD_IP",
                    "BACKUP",
                }:
                    assert {variable, variable.removesuffix("_FILE")} & read, variable
        for secret, key in mounted(template):
            assert key in {**given, **made}[secret], part


def test_only_who_needs_a_key_has_it() -> None:
    """No Pod has the authorities' keys, only bootstrap the owner of the tables, only workers the audit's signing key."""
    holders: dict[str, set[str]] = {}
    for part, template in pods(shape("production")):
        for secret, key in mounted(template):
            holders.setdefault(f"{secret}/{key}", set()).add(part.split("-")[1])
    assert not {"tenantry-keys/ca.key", "tenantry-keys/client-ca.key"} & set(holders)
    assert not any(key.startswith(("tenantry-authority", "tenantry-monitoring")) for key in holders)
    assert holders["tenantry-database/migration-url"] == {"bootstrap", "restore"}
    assert holders["tenantry-keys/audit-checkpoints.key"] == {"worker"}
    assert holders["tenantry-keys/portal-tokens.key"] == {"portal", "apiserver", "bootstrap"}
    assert holders["tenantry-apiserver-tls/tls.key"] == {"apiserver"}
    assert holders["tenantry-email/url"] == {"portal", "worker"}
    assert holders["tenantry-oidc/client-secret"] == {"portal"}


def secret_settings() -> list[str]:
    """Every setting that the product takes for a secret, and the URLs that hold passwords."""
    found = set(re.findall(r'_secret\(\s*"([A-Z_]+)"', (ROOT / "portal" / "settings.py").read_text()))
    headers = {"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"}
    return sorted(found | headers | {"TENANTRY_SEALING_KEYS", "DATABASE_URL", "MIGRATION_DATABASE_URL", "REDIS_URL"})


@pytest.mark.parametrize("name", secret_settings())
def test_every_secret_setting_is_a_file_of_a_secret_and_stands_nowhere_else(name: str) -> None:
    """The chart refuses it among the settings that everybody may read."""
    with pytest.raises(helm_python.HelmError):
        rendered({"settings": {name: "in the open"}})
    objects = shape("files")
    given = {
        entry["name"]: entry["value"]
        for _, template in pods(objects)
        for entry in template["spec"]["containers"][0].get("env", ())
        if "value" in entry
    }
    (settings,) = (each["data"] for each in objects if each["metadata"]["name"] == "tenantry-settings")
    assert name not in {**given, **settings}
    entries = {"SECRET_KEY": "secret-key", "TENANTRY_SEALING_KEY": "sealing-key", "METRICS_TOKEN": "metrics-token"}
    key = entries.get(name.replace("SEALING_KEYS", "SEALING_KEY"))
    held = {each for _, template in pods(objects) for each in mounted(template)}
    assert f"{name}_FILE" in {**given, **settings} or ("tenantry-keys", key) in held


@pytest.mark.parametrize("name", FILED)
def test_a_file_is_mounted_where_its_setting_points(name: str) -> None:
    readers = 0
    for part, template in pods(shape("files")):
        (container,) = template["spec"]["containers"]
        variable = name if name.endswith("_FILE") else f"{name}_FILE"
        given = {each["name"]: each.get("value") for each in container.get("env", ())}
        held = (FILED[name]["secret"], "it") in set(mounted(template))
        assert held == (variable in given), part
        if held:
            readers += 1
            assert given[variable] == f"/etc/tenantry/files/{name}"
            (at,) = (each for each in container["volumeMounts"] if each["name"] == "files")
            assert (at["mountPath"], at["readOnly"]) == ("/etc/tenantry/files", True)
    assert readers


@pytest.mark.parametrize("name", [*SHAPES, "another's issuer"])
def test_prometheus_asks_for_a_name_that_the_api_servers_certificate_has(name: str) -> None:
    """And verifies it by the authority that has signed it."""
    issued = {"apiserver": {"tls": {"from": "certManager", "issuer": {"name": "letsencrypt"}}}}
    values = {**SHAPES.get(name, issued), "serviceMonitors": {"enabled": True}}
    objects = flat(rendered(values))
    (tls,) = (
        each["spec"]["endpoints"][0]["tlsConfig"]
        for each in objects
        if (each["kind"], each["metadata"]["name"]) == ("ServiceMonitor", "tenantry-apiserver")
    )
    served = values.get("apiserver", {}).get("tls", {"from": "keys"})
    if served["from"] == "keys":
        (certificate,) = (each["data"]["server.crt"] for each in keys() if "server.crt" in each["data"])
        read = x509.load_pem_x509_certificate(base64.b64decode(certificate))
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
            x509.DNSName
        )
    else:
        named = [each["spec"]["dnsNames"] for each in objects if each["kind"] == "Certificate"]
        names = named[0] if named else ["api.tenantry.example.org"]
    assert tls["serverName"] in names
    own = served["from"] == "keys" or (served["from"] == "certManager" and "issuer" not in served)
    entry = "ca.crt" if served.get("hasAuthority", True) else "tls.crt"
    wanted = ("tenantry-monitoring", "ca.crt") if own else ("tenantry-apiserver-tls", entry)
    assert tls["ca"] == {"secret": {"name": wanted[0], "key": wanted[1]}}


MIGRATES = {"bootstrap", "restore"}


def test_whoever_reads_the_database_waits_for_its_migrations() -> None:
    """Parts, and Jobs that begin by the clock, perhaps in the midst of an upgrade; not who migrates."""
    values = {"backup": {"enabled": True}, "joinCluster": {"enabled": True}}
    first = {
        part.split("-")[1]: [each["command"] for each in template["spec"].get("initContainers", ())]
        for part, template in pods(flat(rendered(values)))
    }
    assert first.keys() >= {*PARTS, "backup", "joincluster", *MIGRATES}
    waiting = {part for part, commands in first.items() if commands == [["python", "manage.py", "migrated"]]}
    assert waiting == first.keys() - MIGRATES


def test_in_production_two_are_there_of_everything() -> None:
    """So one of them works on while the other one waits for an upgrade's migrations, or is gone with its node."""
    for file in ("values.yaml", "values-production.yaml"):
        counts = {
            each["metadata"]["name"].removeprefix("tenantry-"): each["spec"]["replicas"]
            for each in flat(rendered(values_of(file)))
            if each["kind"] in {"Deployment", "StatefulSet"}
        }
        assert counts.keys() == set(PARTS)
        assert min(counts.values()) >= 2, file


def test_mail_has_a_way_out_where_it_is_sent() -> None:
    def policies(name: str) -> list[Manifest]:
        return [each for each in shape(name) if each["metadata"]["name"] == "tenantry-mail"]

    assert policies("default") == []
    for name, ports in (("files", [25, 465, 587]), ("production", [587])):
        (policy,) = policies(name)
        (chosen,) = policy["spec"]["podSelector"]["matchExpressions"]
        assert chosen["values"] == ["portal", "worker"]
        assert [each["port"] for each in policy["spec"]["egress"][0]["ports"]] == ports


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


@pytest.mark.parametrize("file", ["values.yaml", "values-kind.yaml", "values-production.yaml"])
def test_what_a_volume_holds_keeps_its_modes_when_a_pod_begins_anew(file: str) -> None:
    """The kubelet opens every file to the group otherwise: PostgreSQL refuses its folder then, and backups are their owner's."""
    for part, template in pods(flat(rendered(values_of(file)))):
        given = template["spec"]["securityContext"]
        assert "fsGroup" not in given or given["fsGroupChangePolicy"] == "OnRootMismatch", part


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
        values = {"files": {"EMAIL_URL": FILED["EMAIL_URL"]}, "portal": {"trustedProxies": ["127.0.0.1"]}}
        values |= {"serviceMonitors": {"enabled": True}}
        objects = [*flat(rendered(values)), *keys()]
        objects.append(encoded(FILED["EMAIL_URL"]["secret"], {"it": "smtp+tls://me:secret@mail.example.org:587\n"}))
        name = urlsplit(database).path
        at = f"127.0.0.1:5432{name}"
        owner = urlsplit(os.environ[OWNER]).username
        objects += [
            encoded(
                "tenantry-database",
                {"url": f"postgresql://tenantry_product@{at}", "migration-url": f"postgresql://{owner}@{at}"},
            ),
            encoded("tenantry-redis", {"url": "redis://127.0.0.1:6379/0"}),
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
                claims = ("data",) if part == "worker" else ()
                spec = templates[part]["spec"]
                first = {**templates[part], "spec": {**spec, "containers": spec["initContainers"]}}
                assert node.start(f"{part}-first", first, claims).wait(300) == 0, node.log(f"{part}-first")
                node.start(part, templates[part], claims)
            eventually(lambda: HELD in node.log("beat"))
            node.start("beat-2", templates["beat"])
            eventually(lambda: node.get("https://127.0.0.1:6443/readyz")[0] == 200, every=1)
            eventually(lambda: node.get("http://127.0.0.1:8000/readyz")[0] == 200, every=1)
            https = {"X-Forwarded-Proto": "https"}
            assert "Forgot your password?" in node.get("http://127.0.0.1:8000/login/", headers=https)[1]
            for monitor in (each for each in objects if each["kind"] == "ServiceMonitor"):
                _scraped(node, monitor, tmp_path)
            for part in ("worker", "beat"):
                look = templates[part]["spec"]["containers"][0]["livenessProbe"]["exec"]["command"]
                eventually(lambda part=part, look=look: node.probe(part, look), every=1)
            eventually(lambda: node.probe("beat-2", look), every=1)
            assert HELD not in node.log("beat-2")
            node.processes[node.names.index("beat")].kill()
            eventually(lambda: HELD in node.log("beat-2"))
            _drains(node)


def _scraped(node: Node, monitor: Manifest, folder: Path) -> None:
    """Prometheus is told by what the monitor gives it, and nobody by less."""
    (endpoint,) = monitor["spec"]["endpoints"]
    tls, headers = None, {}

    def entry(source: dict[str, str]) -> str:
        return base64.b64decode(node.object("Secret", source["name"])["data"][source["key"]]).decode()

    if endpoint.get("scheme") == "https":
        given = endpoint["tlsConfig"]
        sources = {"ca": given["ca"]["secret"], "certificate": given["cert"]["secret"], "key": given["keySecret"]}
        for name, source in sources.items():
            (folder / name).write_text(entry(source))
        tls = Tls(server_name=given["serverName"], **{name: folder / name for name in sources})
        url, counted = f"https://127.0.0.1:6443{endpoint['path']}", "apiserver_request_total"
    else:
        headers = {"Authorization": f"Bearer {entry(endpoint['authorization']['credentials'])}"}
        url, counted = f"http://127.0.0.1:8000{endpoint['path']}", "tenantry_portal_requests_total"
    status, text = node.get(url, headers=headers, tls=tls)
    assert (status, counted in text) == (200, True), text[:1000]
    status, text = node.get(url)
    assert (status >= 400, counted in text) == (True, False), text[:1000]


def _drains(node: Node) -> None:
    """Every part ends by itself when it is told to, and says nothing that it should not."""
    for name, process in zip(node.names, node.processes, strict=True):
        process.terminate()
        process.wait(300)
        assert "Read-only file system" not in node.log(name), node.log(name)
        assert "Traceback" not in node.log(name), node.log(name)


def encoded(name: str, data: dict[str, str]) -> Manifest:
    """A Secret as it stands in a manifest."""
    return {
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {key: base64.b64encode(value.encode()).decode() for key, value in data.items()},
    }
