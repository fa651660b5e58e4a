"""The audit log that an operator's policy asks for, as kube-apiserver writes it (GW13)."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import CommandError, call_command

from tests import kubeapiserver
from tests.apiserver import KUBECTL, OwnApiserver, running
from tests.conformance.recording import FOLDER
from tests.conformance.script.auditing import AUDITED, MAPS, audit_flags, events, log_of, story
from tests.databases import migrated
from tests.gateway.apiexports import APIS, binding, export
from tests.story.product import eventually

SECRET = "c2VjcmV0LXNlY3JldA=="
SECRETS = {"group": "", "resource": "secrets", "all": True, "verbs": ["*"]}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture(scope="module")
def flags(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return audit_flags(tmp_path_factory.mktemp("audit"))


@pytest.fixture(scope="module")
def audited(flags: tuple[str, str]) -> Iterator[OwnApiserver]:
    with migrated("auditlog") as database, running(database, workers=2, flags=flags) as server:
        yield server


def _differing(ours: dict[str, Any], real: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (ours.get(name), real.get(name)) for name in {*ours, *real} if ours.get(name) != real.get(name)}


def test_the_log_is_that_of_kube_apiserver(audited: OwnApiserver, flags: tuple[str, str], tmp_path: Path) -> None:
    if kubeapiserver.PRESENT:
        theirs = audit_flags(tmp_path)
        with kubeapiserver.running(flags=theirs) as real:
            expected = story(log_of(theirs), real.admin)
    else:
        expected = [json.loads(line) for line in (FOLDER / f"{AUDITED}.json").read_text().splitlines()]
    found = story(log_of(flags), audited.admin, least=len(expected))
    impersonated = [event.pop("impersonatedUser", None) for event in found if event["stage"] == "RequestReceived"]
    assert "bob" in impersonated, "the first stage knows it here already"
    assert [_differing(ours, real) for ours, real in zip(found, expected, strict=True) if ours != real] == []


def test_kubectl_is_told_of_as_the_policy_says(audited: OwnApiserver, flags: tuple[str, str]) -> None:
    if KUBECTL is None:
        pytest.skip("kubectl is not on the path")

    def kubectl(*words: str) -> None:
        subprocess.run([KUBECTL, "--kubeconfig", audited.kubeconfig, *words], check=True, capture_output=True)

    kubectl("create", "configmap", "quiet", "--from-literal=a=b", "-n", "default")
    kubectl("create", "secret", "generic", "hidden", "--from-literal=a=dontsay", "-n", "default")
    kubectl("create", "configmap", "shown", "--from-literal=token=dontsay", "--from-literal=b=c", "-n", "default")
    kubectl("delete", "--wait=false", "configmap/quiet", "configmap/shown", "secret/hidden", "-n", "default")

    def told(name: str) -> list[dict[str, Any]]:
        found = [event for event in events(log_of(flags), "kubectl") if event["stage"] == "ResponseComplete"]
        return [event for event in found if event["objectRef"].get("name") == name]

    for name in ("hidden", "shown"):
        eventually(lambda name=name: {event["verb"] for event in told(name)} >= {"create", "delete"})  # type: ignore[misc]
    eventually(lambda: told("quiet"))
    [made] = [event for event in told("shown") if event["verb"] == "create"]
    assert made["requestObject"]["data"] == {"token": "[redacted]", "b": "c"}
    assert made["user"]["username"] == "admin"
    assert made["annotations"]["tenancy.kcp.io/workspace"] == "root"
    [secret] = [event for event in told("hidden") if event["verb"] == "create"]
    assert secret["responseStatus"]["code"] == 201
    assert not {"requestObject", "responseObject"} & set(secret)
    assert [event["verb"] for event in told("quiet")] == ["create"], "a name in the body is no name in the URL"
    assert "dontsay" not in log_of(flags).read_text()


def test_a_log_that_was_moved_away_is_begun_anew(audited: OwnApiserver, flags: tuple[str, str]) -> None:
    log = log_of(flags)

    def told() -> bool:
        audited.admin.send("GET", "/api/v1/namespaces/default/endpoints/moved")
        return any("endpoints/moved" in event["requestURI"] for event in events(log, ""))

    eventually(told)
    log.rename(log.with_suffix(".1"))
    eventually(told)
    assert log.stat().st_mode & 0o077 == 0


def test_no_policy_shortens_the_record_of_requests(audited: OwnApiserver, flags: tuple[str, str]) -> None:
    """Usage is counted by it, and refusals and writes are promised to be in it (P10, AD7)."""
    acme = audited.tenant("acme")
    assert acme.send("GET", f"{MAPS}/quiet").status == 404
    assert acme.send("GET", "/api/v1/namespaces/elsewhere/pods").status == 200
    eventually(
        lambda: any(event.get("objectRef", {}).get("resource") == "tenants" for event in events(log_of(flags), ""))
    )
    assert not any("elsewhere" in event["requestURI"] for event in events(log_of(flags), ""))

    def recorded() -> bool:
        with psycopg.connect(audited.database) as connection:
            rows = set(connection.execute("SELECT path, code FROM api_requests WHERE space = 'root:acme'").fetchall())
        tenant = "/api/v1/tenants/acme/namespaces"
        return {(f"{tenant}/default/configmaps/quiet", 404), (f"{tenant}/elsewhere/pods", 200)} <= rows

    eventually(recorded)


def _plain(text: str) -> str:
    return base64.b64decode(text).decode()


@pytest.fixture(scope="module")
def outspoken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OwnApiserver, Path]]:
    """A server whose policy asks for everything of everything, but for Secrets of one name."""
    folder = tmp_path_factory.mktemp("outspoken")
    quiet = [{"group": "", "resources": ["secrets"], "resourceNames": ["quiet"]}]
    rules = [{"level": "None", "resources": quiet}, {"level": "RequestResponse"}]
    text = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}
    (folder / "policy.yaml").write_text(json.dumps(text))
    log = folder / "audit.log"
    flags = (f"--audit-policy-file={folder / 'policy.yaml'}", f"--audit-log-path={log}")
    with migrated("outspoken") as database, running(database, flags=flags) as server:
        yield server, log


def test_what_a_provider_does_to_secrets_of_others_is_told_of_as_that(outspoken: tuple[OwnApiserver, Path]) -> None:
    """Through the view of an export, whatever the body calls itself: rules and secrets are the consumer's (GW9, KC6)."""
    server, log = outspoken
    provider, consumer = server.tenant("prov"), server.tenant("cons")
    assert provider.send("POST", f"{APIS}/apiexports", export("vault", permissionClaims=[SECRETS])).status == 201
    accepts = binding("vault", "root:prov:vault", permissionClaims=[{**SECRETS, "state": "Accepted"}])
    assert consumer.send("POST", f"{APIS}/apibindings", accepts).status == 201
    bound = f"{APIS}/apibindings/vault"
    eventually(lambda: consumer.send("GET", bound).body.get("status", {}).get("phase") == "Bound")

    view = "/services/apiexport/root:prov/vault/clusters"
    secrets = f"{view}/root:cons/api/v1/namespaces/default/secrets"
    data = {"data": {"db": SECRET}}
    whole = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, **data}
    patch = [{"op": "add", "path": "/data/db", "value": SECRET}]
    steps: list[tuple[int, tuple[Any, ...], dict[str, str]]] = [
        (201, ("POST", secrets, {"metadata": {"name": "s"}, **data}), {}),
        (201, ("POST", secrets, {**whole, "metadata": {"name": "quiet"}}), {}),
        (200, ("PUT", f"{secrets}/s", whole), {}),
        (200, ("PATCH", f"{secrets}/s", data, "application/merge-patch+json"), {}),
        (200, ("PATCH", f"{secrets}/s", data, "application/strategic-merge-patch+json"), {}),
        (200, ("PATCH", f"{secrets}/s", patch, "application/json-patch+json"), {}),
        (200, ("PATCH", f"{secrets}/s?fieldManager=f&force=1", whole, "application/apply-patch+yaml"), {}),
        (404, ("PATCH", f"{secrets}/s/status", data, "application/merge-patch+json"), {}),
        (200, ("GET", secrets), {}),
        (200, ("GET", f"{secrets}/s?includeObject=Object"), {"Accept": TABLE}),
        (200, ("GET", f"{view}/*/api/v1/secrets?includeObject=Object"), {"Accept": TABLE}),
        (200, ("GET", f"{view}/*/api/v1/secrets?fieldSelector=metadata.name=quiet"), {}),
        (200, ("GET", f"{view}/*/apis"), {}),
        (200, ("DELETE", f"{secrets}/s"), {}),
    ]
    for status, words, headers in steps:
        answer = server.admin.send(*words, User_Agent="provider/1", **headers)
        assert answer.status == status, (words, answer.body)

    def told() -> list[dict[str, Any]]:
        return [event for event in events(log, "provider") if event["stage"] == "ResponseComplete"]

    eventually(lambda: any(event["verb"] == "delete" for event in told()))
    assert not [event for event in told() if {"requestObject", "responseObject"} & set(event)]
    found = [
        (event["verb"], event["annotations"]["tenancy.kcp.io/workspace"], event.get("objectRef")) for event in told()
    ]
    core = {"resource": "secrets", "apiVersion": "v1"}
    there = {**core, "namespace": "default"}
    one = {**there, "name": "s"}
    assert found == [
        ("create", "root:cons", one),
        # Its name is in the body alone, of which no rule knows.
        ("create", "root:cons", {**there, "name": "quiet"}),
        ("update", "root:cons", one),
        *[("patch", "root:cons", one)] * 4,
        ("patch", "root:cons", {**one, "subresource": "status"}),
        ("list", "root:cons", there),
        ("get", "root:cons", one),
        ("list", "root:prov", core),
        ("get", "root:prov", None),
        ("delete", "root:cons", one),
    ]
    assert SECRET not in log.read_text()
    assert _plain(SECRET) not in log.read_text()


def test_a_refusal_that_quotes_a_secret_is_told_of_without_its_words(outspoken: tuple[OwnApiserver, Path]) -> None:
    server, log = outspoken
    admission = "/apis/admissionregistration.k8s.io/v1"
    expression = "string(object.data.db)"
    says = {
        "matchConstraints": {
            "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"]}]
        },
        "validations": [{"expression": "!has(object.data)", "messageExpression": expression}],
    }
    policies, bindings = (f"{admission}/validatingadmissionpolic{end}" for end in ("ies", "ybindings"))
    assert server.admin.send("POST", policies, {"metadata": {"name": "quoting"}, "spec": says}).status == 201
    bound = {"metadata": {"name": "quoting"}, "spec": {"policyName": "quoting", "validationActions": ["Deny"]}}
    assert server.admin.send("POST", bindings, bound).status == 201
    secret = {"metadata": {"name": "refused"}, "data": {"db": SECRET}}

    def refused() -> bool:
        path = "/api/v1/namespaces/default/secrets?dryRun=All"
        answer = server.admin.send("POST", path, secret, User_Agent="refused/1")
        return answer.status == 422 and SECRET in answer["message"]

    eventually(refused)

    def told() -> list[dict[str, Any]]:
        found = [event["responseStatus"] for event in events(log, "refused") if event["stage"] == "ResponseComplete"]
        return [status for status in found if status["code"] == 422]

    eventually(lambda: told())
    assert told()[0] == {"metadata": {}, "status": "Failure", "reason": "Invalid", "code": 422}
    assert SECRET not in log.read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, 'loading audit policy file: failed to read file path ".*": open .*: no such file or directory'),
        ("rules: [{level: Metadata}]", "loading audit policy file: failed decoding: .*: from file .*"),
    ],
)
def test_a_policy_that_means_nothing_stops_the_start(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "policy.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(CommandError, match=said):
        call_command("apiserver", f"--audit-policy-file={file}")
