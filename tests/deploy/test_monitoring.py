"""Rules and dashboards name only what real processes tell, in words that Prometheus understands."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from django.test import Client

from tests.apiserver import OwnApiserver
from tests.deploy.rendering import MONITORING, ROOT, flat, rendered

RULES = yaml.safe_load((MONITORING / "prometheus-rules.yaml").read_text())
DASHBOARDS = sorted(MONITORING.glob("dashboard-*.json"))
OF_PROMETHEUS = {"up"}

Rule = dict[str, Any]


def rules() -> Iterator[Rule]:
    for group in RULES["groups"]:
        yield from group["rules"]


def queries() -> Iterator[tuple[str, str]]:
    """Every expression, with where it stands."""
    for rule in rules():
        yield rule.get("record") or rule["alert"], rule["expr"]
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                yield f"{file.name}: {panel['title']}", target["expr"]


def named(expression: str) -> set[tuple[str, frozenset[str]]]:
    """The metrics that an expression asks for, each with the labels that it chooses by."""
    found = set()

    def look(node: Any) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            found.add((node.name, frozenset(matcher.name for matcher in node.matchers.matchers)))
        return True

    promql_parser.walk(promql_parser.parse(expression), look)
    return found


@pytest.fixture(scope="module")
def told(apiserver: OwnApiserver, django_db_setup: None, django_db_blocker: Any) -> dict[str, set[str]]:
    """What the processes tell: each metric's labels."""
    apiserver.admin.send("GET", "/api/v1/namespaces")
    texts = [apiserver.admin.send("GET", "/metrics").body]
    with django_db_blocker.unblock():
        from tenants.models import Cluster

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
        and (metric not in told or (told[metric] and not labels <= told[metric] | {"instance"}))
    }
    assert missing == set()


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


def test_the_chart_brings_them_only_when_asked() -> None:
    enabled = {"prometheusRules": {"enabled": True, "labels": {"release": "p"}}, "dashboards": {"enabled": True}}
    made = {
        each["metadata"]["name"]: each
        for each in flat(rendered(enabled))
        if "data" in each or "groups" in each.get("spec", {})
    }
    assert made["tenantry-rules"]["spec"]["groups"] == RULES["groups"]
    assert made["tenantry-rules"]["metadata"]["labels"]["release"] == "p"
    for file in DASHBOARDS:
        name = file.stem.removeprefix("dashboard-")
        config = made[f"tenantry-dashboard-{name}"]
        assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert json.loads(config["data"][f"tenantry-{name}.json"]) == json.loads(file.read_text())
    assert not any(
        "dashboard" in each["metadata"]["name"] or each["kind"] == "PrometheusRule" for each in flat(rendered())
    )
