"""One object in two groups or versions: whichever a client speaks, it reads and writes the same (TS15)."""

from __future__ import annotations

from typing import Any

from tests.gateway.callers import Caller


def test_an_event_is_the_same_in_both_of_its_groups(alice: Caller, namespace: str) -> None:
    old, new = f"/api/v1/namespaces/{namespace}/events", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    subject = {"kind": "Pod", "name": "p", "namespace": namespace}
    body = {"metadata": {"name": "e"}, "involvedObject": subject, "message": "m", "reason": "R", "type": "Normal"}
    assert alice.post(old, body | {"count": 2, "source": {"component": "c"}}).status == 201
    shown = alice.get(f"{new}/e").body
    assert (shown["apiVersion"], shown["note"], shown["regarding"]) == ("events.k8s.io/v1", "m", subject)
    assert (shown["deprecatedCount"], shown["deprecatedSource"]) == (2, {"component": "c"})
    assert not {"message", "involvedObject", "count", "source", "reportingController"} & shown.keys()
    assert alice.get(new).body["items"] == [shown]
    revision = shown["metadata"]["resourceVersion"]
    with alice.watch(new, resourceVersion=revision) as watch:
        assert alice.patch(f"{old}/e", {"message": "changed"}).status == 200
        (event,) = watch.take(1)
        assert (event["type"], event["object"]["note"]) == ("MODIFIED", "changed")
    assert alice.get(f"{old}/e").body["message"] == "changed"
    newer: dict[str, Any] = {
        "metadata": {"name": "f"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.org/c",
        "reportingInstance": "i",
        "action": "A",
        "reason": "R",
        "type": "Normal",
        "note": "n",
        "regarding": subject,
    }
    assert alice.post(new, newer).status == 201
    core = alice.get(f"{old}/f").body
    assert (core["message"], core["involvedObject"], core["reportingComponent"]) == ("n", subject, "example.org/c")
    applied = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "f", "labels": {"a": "b"}}}
    assert alice.patch(f"{new}/f", applied, "apply", fieldManager="m").status == 200
    assert alice.get(f"{old}/f").body["metadata"]["labels"] == {"a": "b"}


def test_an_autoscaler_is_the_same_in_both_of_its_versions(alice: Caller, namespace: str) -> None:
    old, new = (f"/apis/autoscaling/{v}/namespaces/{namespace}/horizontalpodautoscalers" for v in ("v1", "v2"))
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    body = {"metadata": {"name": "h"}, "spec": {"scaleTargetRef": target, "maxReplicas": 3}}
    made = alice.post(old, body | {"spec": body["spec"] | {"targetCPUUtilizationPercentage": 50}})
    assert made.status == 201, made.body

    def cpu() -> list[tuple[str, int]]:
        metrics = alice.get(f"{new}/h").body["spec"]["metrics"]
        return [(metric["resource"]["name"], metric["resource"]["target"]["averageUtilization"]) for metric in metrics]

    assert cpu() == [("cpu", 50)]
    with alice.watch(new, resourceVersion=made.body["metadata"]["resourceVersion"]) as watch:
        assert alice.patch(f"{old}/h", {"spec": {"targetCPUUtilizationPercentage": 70}}).status == 200
        (event,) = watch.take(1)
        assert event["object"]["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70
    memory = {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 9}},
    }
    change = [{"op": "add", "path": "/spec/metrics/-", "value": memory}]
    assert alice.patch(f"{new}/h", change, "json").status == 200
    shown = alice.get(f"{old}/h").body
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 70
    assert "memory" in shown["metadata"]["annotations"]["autoscaling.alpha.kubernetes.io/metrics"]
    assert alice.get(old).body["items"] == [shown]
    applied = {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}}
    applied["spec"] = {"minReplicas": 2}
    assert alice.patch(f"{old}/h", applied, "apply", fieldManager="m", force="true").status == 200
    assert sorted(cpu()) == [("cpu", 70), ("memory", 9)]
    assert alice.get(f"{new}/h").body["spec"]["minReplicas"] == 2
