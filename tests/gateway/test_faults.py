"""The whole server when its database hangs, and when the supervisor of its workers is killed."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml
from psycopg.conninfo import conninfo_to_dict

from access.authentication.clusterwebhooks import PREFIX
from store.log.follower import HEALTHY_SECONDS
from tests.access.authorization.databaseproxy import DatabaseProxy
from tests.apiserver import OwnApiserver, running
from tests.conformance.script.auditing import whole_lines
from tests.databases import migrated
from tests.speaking import Answer, Speaker
from tests.story.product import eventually

AT = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def proxy() -> Iterator[DatabaseProxy]:
    with migrated("hanging") as database:
        proxy = DatabaseProxy(database)
        proxy.start()
        yield proxy
        proxy.stop()


def url_of(proxy: DatabaseProxy) -> str:
    parts = conninfo_to_dict(proxy.conninfo)
    return f"postgres://{parts['user']}@/{parts['dbname']}?host={parts['host']}&port={parts['port']}"


def trust_of(server: OwnApiserver) -> ssl.SSLContext:
    authority = yaml.safe_load(server.kubeconfig.read_text())["clusters"][0]["cluster"]["certificate-authority-data"]
    return ssl.create_default_context(cadata=b64decode(authority).decode())


def program_of(server: OwnApiserver, space: Speaker) -> Speaker:
    """A program of the tenant, which may view its space."""
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    body = {"metadata": {"name": "viewers"}, "subjects": [subject], "roleRef": role}
    assert space.send("POST", bindings, body).status in (201, 409)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = space.send("POST", "/api/v1/namespaces/default/serviceaccounts/default/token", request)
    return Speaker(server.url, trust_of(server), {"Authorization": f"Bearer {answer['status']['token']}"}, space.prefix)


def test_a_hanging_database_is_told_by_readiness_and_answered_in_time(proxy: DatabaseProxy) -> None:
    """Every kind of request has a Status as its answer, none waits for the database, and all goes on afterwards."""
    with running(url_of(proxy)) as server:
        space = server.tenant("hung")
        assert space.send("POST", AT, {"metadata": {"name": "a"}}).status == 201
        proxy.cut = True
        time.sleep(HEALTHY_SECONDS)
        speakers = [space.at("/clusters/root:hung") for _ in range(6)]
        ready = space.at("")
        nobody = Speaker(server.url, trust_of(server), {}, "")
        for probing in (ready, nobody):
            # So long after the last answer, which the server may have read a moment later than it came.
            assert eventually(lambda probing=probing: probing.send("GET", "/readyz").status == 503)
            assert "[-]store failed" in probing.send("GET", "/readyz").body
            assert probing.send("GET", "/livez").status == 200
        asked = [
            ("GET", f"{AT}/a", None),
            ("GET", AT, None),
            ("GET", "/api/v1/namespaces/default/secrets", None),
            ("POST", AT, {"metadata": {"name": "b"}}),
            ("DELETE", f"{AT}/a", None),
            ("PATCH", f"{AT}/a", {"data": {"x": "y"}}),
        ]
        with ThreadPoolExecutor(len(asked)) as pool:
            media = {"PATCH": "application/merge-patch+json"}
            waiting = [
                pool.submit(speaker.send, method, path, body, media.get(method, "application/json"))
                for speaker, (method, path, body) in zip(speakers, asked, strict=True)
            ]
            answers = [each.result() for each in waiting]
        assert {answer.status for answer in answers} <= {503, 504}
        assert all(answer["kind"] == "Status" for answer in answers)
        proxy.cut = False
        assert eventually(lambda: ready.send("GET", "/readyz").status == 200)
        assert space.send("POST", AT, {"metadata": {"name": "c"}}).status == 201
        assert "tenantry_store_revision" in server.admin.send("GET", "/metrics").body


def test_who_cannot_be_known_right_now_is_in_the_audit_log_as_well(proxy: DatabaseProxy, tmp_path: Path) -> None:
    """GW13: a cluster's credential about which the database says nothing; told so, and told of."""
    policy, log = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: Metadata}]}")
    flags = (f"--audit-policy-file={policy}", f"--audit-log-path={log}")
    with running(url_of(proxy), flags=flags) as server:
        stranger = Speaker(server.url, trust_of(server), {"Authorization": f"Bearer {PREFIX}none"})
        assert stranger.send("GET", "/apis").status == 401
        proxy.cut = True
        answers: list[Answer] = []

        def asked() -> bool:
            answers.append(stranger.send("GET", "/apis"))
            return answers[-1].status == 503

        assert eventually(asked)
        proxy.cut = False
        told = answers[-1].headers["audit-id"]

        def written() -> bool:
            events = [json.loads(line) for line in whole_lines(log)]
            codes = [
                each["responseStatus"]["code"]
                for each in events
                if each["auditID"] == told and "responseStatus" in each
            ]
            return codes == [503]

        assert eventually(written)


@pytest.mark.parametrize("who", ["database", "server", "both"])
def test_nobody_is_refused_because_something_stood_still_for_some_seconds(proxy: DatabaseProxy, who: str) -> None:
    """GW5, P5: a machine, a disk or a neighbour takes the processor away for seconds. What is asked meanwhile waits.

    Of every kind there is: reads that ask the database, reads that wait for a revision, writes, reviews, a program of
    whose revocation the process may have missed the news, a watch.
    """
    with running(url_of(proxy)) as server:
        space = server.tenant("patient")
        made = space.send("POST", AT, {"metadata": {"name": "a"}})
        assert made.status == 201
        program = program_of(server, space)
        newest = made["metadata"]["resourceVersion"]
        review = {"spec": {"token": program.headers["Authorization"].removeprefix("Bearer ")}}
        access = {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}
        asked = [
            (program, "GET", f"{AT}/a", None),
            (program, "GET", AT, None),
            (program, "GET", f"{AT}?resourceVersion={newest}", None),
            (program, "GET", "/api/v1/namespaces/default/secrets?limit=1", None),
            (program, "GET", f"{AT}?watch=true&timeoutSeconds=1&resourceVersion={newest}", None),
            (space, "GET", "/api/v1/namespaces", None),
            (space, "POST", AT, {"metadata": {"name": "b"}}),
            (space, "POST", f"{AT}?dryRun=All", {"metadata": {"name": "c"}}),
            (space, "PATCH", f"{AT}/a", {"data": {"x": "y"}}),
            (space, "DELETE", "/api/v1/namespaces/default/secrets/none", None),
            (space, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", review),
            (space, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", access),
        ]
        speakers = [speaker.at(speaker.prefix) for speaker, *_ in asked]
        for speaker in speakers:
            assert speaker.send("GET", "/version").status == 200
        media = {"PATCH": "application/merge-patch+json"}
        with ThreadPoolExecutor(len(asked)) as pool:
            proxy.cut = who != "server"
            if who != "database":
                server.processes[0].send_signal(signal.SIGSTOP)
            waiting = [
                pool.submit(speaker.send, method, path, body, media.get(method, "application/json"))
                for speaker, (_, method, path, body) in zip(speakers, asked, strict=True)
            ]
            # Longer than what is known of revocations counts for, and than one try of anything.
            time.sleep(2 * HEALTHY_SECONDS)
            server.processes[0].send_signal(signal.SIGCONT)
            proxy.cut = False
            answers = [each.result().status for each in waiting]
        assert answers == [200, 200, 200, 403, 200, 200, 201, 201, 200, 404, 201, 201]


def test_workers_end_with_a_supervisor_that_is_killed() -> None:
    """SIGKILL gives it no chance to tell them."""
    with migrated("orphans") as database, running(database, workers=2) as server:
        supervisor = server.processes[0]
        children = subprocess.run(
            ["pgrep", "-P", str(supervisor.pid)], capture_output=True, text=True, check=True
        ).stdout.split()
        assert len(children) >= 2
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait()

        def all_gone() -> bool:
            return not any(_runs(int(pid)) for pid in children)

        try:
            assert eventually(all_gone)
        finally:
            for pid in children:
                if _runs(int(pid)):
                    os.kill(int(pid), signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
