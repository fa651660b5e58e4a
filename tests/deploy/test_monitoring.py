"""Rules and dashboards name only what real processes tell, in words that Prometheus understands."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from django.test import Client

from tests.apiserver import OwnApiserver
from tests.deploy.rendering import MONITORING, ROOT, Manifest, flat, rendered

RULES = yaml.safe_load((MONITORING / "prometheus-rules.yaml").read_text())
DASHBOARDS = sorted(MONITORING.glob("dashboard-*.json"))
OF_PROMETHEUS = {"up"}
OF_EITHER = OF_PROMETHEUS | {"tenantry_spans_dropped_total"}
"""What is told of API servers and of portals."""

OF_APISERVERS = (
    *("apiserver_", "tenantry_store_", "tenantry_background_task_", "tenantry_event_loop_"),
    *("tenantry_tenant_requests_", "tenantry_request_records_", "tenantry_cluster_watch_", "tenantry_worker_"),
)
"""How the names of those metrics begin that API servers tell; the portals tell the others."""

UNSEEN = {
    r"python_.*": "of the interpreter: for whoever looks for the cause of something else",
    r"process_(?!resident_memory).*": "of the kernel: whoever runs the containers has them already",
    r".*_created": "when a counter began: Prometheus finds that out by itself",
}
"""Metrics that stand on no dashboard and in no rule, and why."""

BY_PROMETHEUS = {"instance", "job", "namespace"}
"""Labels that it puts to whatever it is told."""

PROMTOOL = shutil.which("promtool")

Rule = dict[str, Any]


def rules() -> Iterator[Rule]:
    for group in RULES["groups"]:
        yield from group["rules"]


def queries() -> Iterator[tuple[str, str]]:
    """Every expression, with where it stands."""
    for rule in rules():
        yield rule.get("record") or rule["alert"], rule["expr"]
    for file in DASHBOARDS:
        yield from asked(file.name, json.loads(file.read_text()))


def asked(name: str, board: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every expression of a dashboard, with where it stands."""
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield f"{name}: {panel['title']}", target["expr"]


def selectors(expression: str) -> list[tuple[str | None, dict[str, tuple[str, str]]]]:
    """What an expression chooses: a metric, and by label how and what."""
    found = []

    def look(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.append((node.name, {each.name: (str(each.op), each.value) for each in node.matchers.matchers}))
        return True

    promql_parser.walk(promql_parser.parse(expression), look)
    return found


def named(expression: str) -> set[tuple[str | None, frozenset[str]]]:
    """The metrics that an expression asks for, each with the labels that it chooses by."""
    return {(name, frozenset(labels)) for name, labels in selectors(expression)}


def strangers(expression: str, **wanted: str) -> list[str | None]:
    """The metrics of an expression that are chosen without being bound to exactly these labels' values."""
    return [
        name
        for name, labels in selectors(expression)
        if {label: labels.get(label) for label in wanted}
        != {label: (str(promql_parser.MatchOp.Equal), value) for label, value in wanted.items()}
    ]


def belongs(metric: str) -> str:
    """The part that tells a metric, or of which one is recorded."""
    return "apiserver" if metric.startswith((*OF_APISERVERS, "tenantry:apiserver_")) else "portal"


def is_bound(expression: str, metric: str, release: str, **wanted: str) -> bool:
    """Whether the metric is chosen from the part that tells it alone, or from either that does."""
    parts = ("apiserver", "portal") if metric in OF_EITHER else (belongs(metric),)
    return any(metric not in strangers(expression, job=f"{release}-{part}", **wanted) for part in parts)


@pytest.fixture(scope="module")
def told(apiserver: OwnApiserver, django_db_setup: None, django_db_blocker: Any) -> dict[str, set[str]]:
    """What the processes tell: each metric's labels."""
    apiserver.admin.send("GET", "/api/v1/namespaces")
    texts = [apiserver.admin.send("GET", "/metrics").body]
    with django_db_blocker.unblock():
        from audit.actions import Action
        from tenants.models import Cluster
        from tests import factories

        factories.event("system", Action.BACKUP_MADE, factories.operator(), bytes=1, revision=1)
        Cluster.objects.create(
            name="told",
            server="https://192.0.2.1",
            ca_data="none",
            kind="external",
            credential_expires_at="2030-01-01T00:00:00Z",
        )
        try:
            Client().get("/healthz")
            texts.append(Client().get("/metrics").content.decode())
        finally:
            Cluster.objects.filter(name="told").delete()
    found: dict[str, set[str]] = {}
    for line in "\n".join(texts).splitlines():
        if typed := re.match(r"# TYPE (\S+) ", line):
            found.setdefault(typed[1], set())
        elif sample := re.match(r"([a-z_:]+)(?:\{(.*)\})? ", line):
            found.setdefault(sample[1], set()).update(re.findall(r'(\w+)="', sample[2] or ""))
    return found


def test_every_metric_that_is_asked_for_is_told(told: dict[str, set[str]]) -> None:
    """With every label that it is chosen by, where it has been counted at all."""
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    missing = {
        (place, metric)
        for place, expression in queries()
        for metric, labels in named(expression)
        if metric not in recorded | OF_PROMETHEUS
        and (metric not in told or (told[metric] and not labels <= told[metric] | BY_PROMETHEUS))
    }
    assert missing == set()


def test_every_metric_that_is_told_is_seen(told: dict[str, set[str]]) -> None:
    """On a dashboard, or by whom a rule wakes; a reason why not is of something that is told."""

    def whole(metric: str) -> str:
        """Of a histogram's buckets, sum and count the histogram."""
        family = re.sub(r"_(bucket|sum|count)$", "", metric)
        return family if family in told else metric

    families = {whole(metric) for metric in told}
    seen = {whole(str(name)) for _, expression in queries() for name, _ in selectors(expression)}
    unseen = families - seen
    assert {metric for metric in unseen if not any(re.fullmatch(kind, metric) for kind in UNSEEN)} == set()
    assert [kind for kind in UNSEEN if not any(re.fullmatch(kind, metric) for metric in unseen)] == []


def test_rules_are_what_prometheus_reads() -> None:
    names = [rule.get("record") or rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    for rule in rules():
        assert rule.keys() <= {"record", "alert", "expr", "for", "labels", "annotations"}
        if "alert" in rule:
            assert rule["labels"]["severity"] in {"critical", "warning"}
            assert rule["annotations"].keys() == {"summary", "runbook"}
            promql_parser.parse_duration(rule.get("for", "1m"))


def test_every_alert_says_what_to_do() -> None:
    """In a chapter of its own, which the alert names; and there is none about an alert that is none."""
    text = (ROOT / "docs" / "operators" / "monitoring.md").read_text()
    chapters = re.findall(r"^### (\w+)$", text, re.MULTILINE)
    alerts = [rule for rule in rules() if "alert" in rule]
    assert chapters == [rule["alert"] for rule in alerts]
    assert [rule["annotations"]["runbook"] for rule in alerts] == [
        f"docs/operators/monitoring.md#{name.lower()}" for name in chapters
    ]


def test_an_expression_that_prometheus_does_not_understand_would_be_found() -> None:
    with pytest.raises(Exception, match="unclosed left parenthesis"):
        named("sum(rate(apiserver_request_total[5m])")
    assert named('max(a{x="1"}) / sum(rate(b[5m]))') == {("a", frozenset({"x"})), ("b", frozenset())}


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_dashboards_are_what_grafana_reads(file: Any) -> None:
    board = json.loads(file.read_text())
    assert {"uid", "title", "schemaVersion", "panels", "templating"} <= board.keys()
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(places) == len(set(places))
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {"${datasource}"}


def test_every_expression_is_bound_to_our_jobs() -> None:
    """A cluster's own API servers have series of the same names: none of theirs may count as ours."""
    unbound = [
        (place, metric)
        for place, expression in queries()
        for metric in {name for name, _ in selectors(expression)}
        if not is_bound(expression, str(metric), "tenantry")
    ]
    assert unbound == []


@pytest.mark.parametrize(
    "expression",
    [
        "sum(rate(apiserver_request_total[5m]))",
        'sum(rate(apiserver_request_total{job="apiserver"}[5m]))',
        'sum(rate(apiserver_request_total{job=~"tenantry-apiserver"}[5m]))',
        'sum(rate(apiserver_request_total{job!="tenantry-apiserver"}[5m]))',
        'sum(rate(apiserver_request_total{job="tenantry-apiserver"}[5m])) / sum(rate(apiserver_request_total[5m]))',
        'max_over_time(sum(rate(apiserver_request_total{code="500"}[5m]))[1h:1m])',
    ],
)
def test_an_expression_that_is_not_bound_would_be_found(expression: str) -> None:
    assert strangers(expression, job="tenantry-apiserver") == ["apiserver_request_total"]


def enabled(**names: str) -> dict[str, Manifest]:
    """What the chart brings of monitoring, by name."""
    values = {"prometheusRules": {"enabled": True, "labels": {"release": "p"}}, "dashboards": {"enabled": True}}
    return {
        each["metadata"]["name"]: each
        for each in flat(rendered(values, **names))
        if each["kind"] == "PrometheusRule" or "dashboard" in each["metadata"]["name"]
    }


def test_the_chart_brings_them_only_when_asked() -> None:
    made = enabled()
    assert [group["name"] for group in made["tenantry-rules"]["spec"]["groups"]] == [
        group["name"] for group in RULES["groups"]
    ]
    assert made["tenantry-rules"]["metadata"]["labels"]["release"] == "p"
    for file in DASHBOARDS:
        name = file.stem.removeprefix("dashboard-")
        config = made[f"tenantry-dashboard-{name}"]
        assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
        board = json.loads(config["data"][f"tenantry-{name}.json"])
        assert [panel["title"] for panel in board["panels"]] == [
            panel["title"] for panel in json.loads(file.read_text())["panels"]
        ]
    assert not any(
        "dashboard" in each["metadata"]["name"] or each["kind"] == "PrometheusRule" for each in flat(rendered())
    )


def test_what_the_chart_brings_is_of_its_own_release_and_namespace() -> None:
    """Two installations that one Prometheus and one Grafana watch have nothing in common."""
    made = enabled(name="staging", namespace="second")
    expressions = [
        (rule.get("record") or rule["alert"], rule["expr"])
        for group in made["staging-rules"]["spec"]["groups"]
        for rule in group["rules"]
    ]
    for part in ("apiserver", "portal"):
        board = json.loads(made[f"staging-dashboard-{part}"]["data"][f"tenantry-{part}.json"])
        other = json.loads(enabled()[f"tenantry-dashboard-{part}"]["data"][f"tenantry-{part}.json"])
        assert (board["uid"], board["title"]) != (other["uid"], other["title"])
        assert len(board["uid"]) <= 40
        expressions += asked(part, board)
    assert len(expressions) == len(list(queries()))
    for place, expression in expressions:
        for metric in {str(name) for name, _ in selectors(expression)}:
            assert is_bound(expression, metric, "staging", namespace="second"), place


def judged(folder: Path, series: dict[str, str], told: list[dict[str, Any]]) -> None:
    """By Prometheus' own tool: who is woken when these series have these values."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(enabled()["tenantry-rules"]["spec"]))
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": told,
    }
    (folder / "test.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": [test]}))
    for command in (("check", "rules", "rules.yaml"), ("test", "rules", "test.yaml")):
        done = subprocess.run(
            [str(PROMTOOL), *command], cwd=folder, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def woken(alert: str, at: str, **labels: str) -> dict[str, Any]:
    """That this alert has woken somebody by then; without labels nobody."""
    rule = next(rule for rule in rules() if rule.get("alert") == alert)
    expected = {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": rule["annotations"]}
    return {"eval_time": at, "alertname": alert, "exp_alerts": [expected] * bool(labels)}


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing")
@pytest.mark.parametrize("whose", ["ours", "kube-apiserver's", "another installation's"])
def test_prometheus_wakes_somebody_for_our_errors_alone(whose: str, tmp_path: Path) -> None:
    """By Prometheus' own tool: a kube-apiserver that answers nothing but 500 is another's night."""
    failing = {
        "ours": 'job="tenantry-apiserver",namespace="tenantry"',
        "kube-apiserver's": 'job="apiserver",namespace="default"',
        "another installation's": 'job="tenantry-apiserver",namespace="elsewhere"',
    }
    series = {
        f'apiserver_request_total{{{labels},code="{500 if name == whose else 200}"}}': "0+600x120"
        for name, labels in failing.items()
    }
    ours = {"job": "tenantry-apiserver", "namespace": "tenantry"} if whose == "ours" else {}
    judged(tmp_path, series, [woken("TenantryApiserverErrorsFast", "90m", **ours)])


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing")
def test_prometheus_wakes_somebody_for_backups(tmp_path: Path) -> None:
    """For one that has failed at once, for one that is missing after a while, whichever portal tells; not for another's."""
    portal = 'job="tenantry-portal",namespace="tenantry"'
    ours = {"job": "tenantry-portal", "namespace": "tenantry"}
    series = {
        f'tenantry_backup_failed{{{portal},instance="a"}}': "0x9 1x20 0x30",
        f'tenantry_backup_failed{{{portal},instance="b"}}': "0x9 1x20 0x30",
        f'tenantry_backup_overdue_seconds{{{portal},instance="a"}}': "0x29 60+60x30",
        'tenantry_backup_failed{job="tenantry-portal",namespace="elsewhere"}': "1x60",
    }
    told = [
        woken("TenantryBackupFailed", "9m"),
        woken("TenantryBackupFailed", "11m", **ours),
        woken("TenantryBackupFailed", "35m"),
        woken("TenantryBackupOverdue", "35m"),
        woken("TenantryBackupOverdue", "45m", **ours),
    ]
    judged(tmp_path, series, told)


PORTAL = {"job": "tenantry-portal", "namespace": "tenantry"}
APISERVER = {"job": "tenantry-apiserver", "namespace": "tenantry"}


def of(metric: str, labels: dict[str, str], instance: str) -> str:
    """The name of a series."""
    pairs = ",".join(f'{name}="{value}"' for name, value in {**labels, "instance": instance}.items())
    return f"{metric}{{{pairs}}}"


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing")
@pytest.mark.parametrize("gone", ["do not answer", "are not there"])
def test_prometheus_wakes_somebody_when_all_are_gone(gone: str, tmp_path: Path) -> None:
    """Whoever is gone says nothing: not one of several, and not another installation's."""
    values = "1x20 0x40" if gone == "do not answer" else "1x20 _x40"
    series = {of("up", {"job": "tenantry-portal", "namespace": "elsewhere"}, "z"): "1x60"}
    for labels in (PORTAL, APISERVER):
        series |= {of("up", labels, "a"): values, of("up", labels, "b"): values.replace("20", "10", 1)}
    told = []
    for alert, labels in (("TenantryPortalsDown", PORTAL), ("TenantryApiserversDown", APISERVER)):
        told += [woken(alert, "18m"), woken(alert, "40m", **labels)]
    judged(tmp_path, series, told)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing")
def test_prometheus_wakes_somebody_when_nobody_is_woken(tmp_path: Path) -> None:
    """Without Redis, or without a beat or a worker: whatever waits, and if nothing does."""
    series = {
        **{of("tenantry_redis_up", PORTAL, each): "1x9 0x20 1x30" for each in "ab"},
        **{of("tenantry_wakeup_age_seconds", PORTAL, each): "5x9 _x20 5x9 65+60x20" for each in "ab"},
    }
    told = [
        woken("TenantryRedisDown", "9m"),
        woken("TenantryRedisDown", "20m", **PORTAL),
        woken("TenantryNobodyWoken", "20m"),
        woken("TenantryNobodyWoken", "40m"),
        woken("TenantryNobodyWoken", "55m", **PORTAL),
    ]
    judged(tmp_path, series, told)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing")
@pytest.mark.parametrize("state", ["busy", "apart"])
def test_prometheus_wakes_somebody_for_a_server_that_hears_nothing(state: str, tmp_path: Path) -> None:
    """And not for one that was asked a moment before the other, while hundreds write in a second."""
    series = {
        of("tenantry_store_revision", APISERVER, "a"): "0+12000x60",
        of("tenantry_store_revision", APISERVER, "b"): "3000+12000x60",
        of("tenantry_store_silence_seconds", APISERVER, "a"): "0.4x60",
        of("tenantry_store_silence_seconds", APISERVER, "b"): "0.4x60" if state == "busy" else "0.4x20 60+60x39",
    }
    judged(tmp_path, series, [woken("TenantryServersApart", "40m", **(APISERVER if state == "apart" else {}))])


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is missing")
def test_prometheus_wakes_somebody_for_a_process_that_is_silent_and_for_requests_without_a_record(
    tmp_path: Path,
) -> None:
    """Once it has been silent for a while; and for none that a neighbour's server does not record."""
    one = {**APISERVER, "worker": "1"}
    other = {**APISERVER, "namespace": "elsewhere"}
    series = {
        of("tenantry_worker_up", {**one, "worker": "0"}, "a"): "1x60",
        of("tenantry_worker_up", one, "a"): "1x9 0x60",
        of("tenantry_request_records_dropped_total", APISERVER, "a"): "0x30 1x30",
        of("tenantry_request_records_dropped_total", other, "b"): "5x60",
    }
    told = [
        woken("TenantryWorkerSilent", "12m"),
        woken("TenantryWorkerSilent", "20m", **one, instance="a"),
        woken("TenantryRequestsUnrecorded", "30m"),
        woken("TenantryRequestsUnrecorded", "35m", **APISERVER),
    ]
    judged(tmp_path, series, told)


def test_a_server_tells_for_how_long_it_has_not_heard_of_the_database(apiserver: OwnApiserver) -> None:
    text = apiserver.admin.send("GET", "/metrics").body
    told = re.findall(r"^tenantry_store_silence_seconds(?:\{.*\})? (\S+)$", text, re.MULTILINE)
    assert told
    assert all(float(silence) >= 0 for silence in told)
