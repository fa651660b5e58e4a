"""Pod Security in a space, where it is more than a cluster: several servers, tenants, workspaces, the audit (AZ11).

What the standards themselves say is compared with a real server in ``tests/conformance``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import yaml

from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server, another

LABEL = "pod-security.kubernetes.io/"


def namespace(name: str, **labels: str) -> dict[str, Any]:
    given = {LABEL + mode: value for mode, value in labels.items()}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": given}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "c", "image": "i"}], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_no_pod_passes_a_label_that_another_server_has_set(server: Server, alice: Caller, tmp_path: Path) -> None:
    with another(server, tmp_path / "data") as second:
        elsewhere = second.user("acme", "alice", "tenantry:owner")
        for number in range(20):
            name = f"pss-{number}"
            assert alice.post("/api/v1/namespaces", namespace(name)).status == 201
            path = f"/api/v1/namespaces/{name}"
            assert elsewhere.post(f"{path}/pods", pod("before", hostPID=True)).status == 201
            change = {"metadata": {"labels": {f"{LABEL}enforce": "baseline"}}}
            answer = alice.patch(path, change)
            assert answer.status == 200 and "before: host namespaces" in answer.headers["warning"]
            assert elsewhere.post(f"{path}/pods", pod("after", hostPID=True)).status == 403
            assert alice.patch(path, {"metadata": {"labels": {f"{LABEL}enforce": None}}}).status == 200
            assert elsewhere.post(f"{path}/pods", pod("again", hostPID=True)).status == 201


def test_exemptions_are_the_systems_and_not_those_of_a_tenants_namesakes(server: Server, tmp_path: Path) -> None:
    told = {
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "baseline", "enforce-version": "latest"},
        "exemptions": {"usernames": ["robot"], "namespaces": ["free"], "runtimeClasses": []},
    }
    file = tmp_path / "admission.yaml"
    plugins = [{"name": "PodSecurity", "configuration": told}]
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    file.write_text(yaml.safe_dump({**kind, "plugins": plugins}))
    with another(server, tmp_path / "data", f"--admission-control-config-file={file}") as second:
        tenants = [second.user("acme", name, "tenantry:owner") for name in ("robot", "alice")]
        assert tenants[1].post("/api/v1/namespaces", namespace("free")).status == 201
        for caller in tenants:
            for place in ("default", "free"):
                answer = caller.post(f"/api/v1/namespaces/{place}/pods", pod("exempt", hostPID=True))
                assert answer.status == 403 and 'PodSecurity "baseline:latest"' in answer.body["message"]
        warned = second.admin.post("/api/v1/namespaces", namespace("free", enforce="restricted"))
        assert "is exempt from Pod Security" in warned.headers["warning"]
        assert second.admin.post("/api/v1/namespaces/free/pods", pod("p", hostPID=True)).status == 201
        assert second.admin.post("/api/v1/namespaces/default/pods", pod("p", hostPID=True)).status == 403


def test_a_wrong_configuration_names_the_field_and_starts_nothing(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "admission.yaml"
    told = {
        "apiVersion": "pod-security.admission.config.k8s.io/v1",
        "kind": "PodSecurityConfiguration",
        "defaults": {"enforce": "strict"},
    }
    kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration"}
    file.write_text(yaml.safe_dump({**kind, "plugins": [{"name": "PodSecurity", "configuration": told}]}))
    try:
        with another(server, tmp_path / "data", f"--admission-control-config-file={file}"):
            raise AssertionError("it started")
    except RuntimeError as error:
        assert "defaults.enforce must be one of privileged, baseline, restricted" in str(error)


def test_the_audit_names_the_step_of_admission_that_refused_and_what_it_would_have_refused(
    server: Server, alice: Caller
) -> None:
    alice.post("/api/v1/namespaces", namespace("audited", enforce="baseline", audit="restricted", warn="privileged"))
    path = "/api/v1/namespaces/audited/pods"
    assert alice.post(path, pod("bad", hostIPC=True)).status == 403
    assert alice.post(path, pod("good")).status == 201

    def rows() -> dict[int, tuple[str, str, Any]]:
        with psycopg.connect(server.database) as connection:
            found = connection.execute(
                "SELECT code, step, reason, trace FROM api_requests WHERE path LIKE %s", [f"%{path[7:]}"]
            )
            return {code: (step, reason, trace) for code, step, reason, trace in found}

    assert eventually(lambda: len(rows()) == 2)
    step, reason, trace = rows()[403]
    assert step == "admission/PodSecurity"
    assert 'violates PodSecurity "baseline:latest": host namespaces (hostIPC=true)' in reason
    assert [each["step"] for each in _steps(trace)][-1] == "admission/PodSecurity"
    step, _, trace = rows()[201]
    noted = {each["rule"]: each["reason"] for each in _steps(trace) if each["step"] == "admission/PodSecurity"}
    assert step != "admission/PodSecurity"
    assert noted[f"{LABEL}enforce-policy"] == "baseline:latest"
    assert noted[f"{LABEL}audit-violations"].startswith('would violate PodSecurity "restricted:latest": allowPriv')


def _steps(trace: Any) -> list[dict[str, str]]:
    return list(json.loads(trace) if isinstance(trace, str) else trace)
