"""The main job, end to end, as a newcomer does it: on the real quickstart, with the real kubectl.

Sign in, workspace, kubeconfig, kubectl, suspend, resume, restart, crash: GW1, GW3, GW5, GW6, TS3, TS6, AZ1.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
import yaml

from tests.story.product import KUBECTL, Product, eventually

pytestmark = [
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"),
]


@pytest.fixture(scope="module")
def alice(product: Product) -> Any:
    product.add_person("alice@acme.test", "correct horse battery", "acme")
    return product.sign_in("alice@acme.test", "correct horse battery")


@pytest.fixture(scope="module")
def bob(product: Product) -> Any:
    product.add_person("bob@globex.test", "correct horse battery", "globex")
    return product.sign_in("bob@globex.test", "correct horse battery")


@pytest.fixture(scope="module")
def workspace(product: Product, alice: Any) -> dict[str, Any]:
    """Alice's workspace, with something in it."""
    answer = alice.post("/api/v1/workspaces/init", json={"tier": "basic"})
    assert answer.status_code == 201, answer.text
    body: dict[str, Any] = answer.json()
    config = alice.kubeconfig(body["id"])
    product.kubectl("create", "configmap", "colours", "--from-literal=sky=blue", kubeconfig=config)
    return body


def test_init_answers_as_the_seed_says(workspace: dict[str, Any]) -> None:
    """GW6."""
    assert workspace["status"] == "provisioned"
    assert workspace["quota"] == {"cpu": "4", "memory": "8Gi"}
    assert workspace["namespace"].startswith("tenant-")


def test_kubeconfig_has_the_seeds_shape_and_two_hours(alice: Any, workspace: dict[str, Any]) -> None:
    """GW3, GW7."""
    answer = alice.get(
        f"/api/v1/workspaces/credentials/kubeconfig?workspace={workspace['id']}",
        headers={"X-Requested-With": "XMLHttpRequest"},
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"].startswith("application/x-yaml")
    assert "no-store" in answer.headers["Cache-Control"]
    config = yaml.safe_load(answer.text)
    assert config["current-context"] == config["contexts"][0]["name"]
    assert config["contexts"][0]["context"]["namespace"] == workspace["namespace"]
    claims = jwt.decode(config["users"][0]["user"]["token"], options={"verify_signature": False})
    assert claims["exp"] - claims["iat"] == 7200


def test_plain_link_does_not_issue(alice: Any, workspace: dict[str, Any]) -> None:
    """A GET that a foreign page can make a browser send issues nothing."""
    answer = alice.get(f"/api/v1/workspaces/credentials/kubeconfig?workspace={workspace['id']}")
    assert answer.status_code == 403


def test_kubectl_works_in_the_workspace(product: Product, alice: Any, workspace: dict[str, Any]) -> None:
    """TS6, TS15."""
    config = alice.kubeconfig(workspace["id"])
    whoami = product.kubectl("auth", "whoami", kubeconfig=config)
    assert f"system:serviceaccount:{workspace['namespace']}:sa-tenant-admin" in whoami
    product.kubectl("create", "configmap", "shapes", "--from-literal=sun=round", kubeconfig=config)
    assert "shapes" in product.kubectl("get", "configmaps", kubeconfig=config)
    assert "yes" in product.kubectl("auth", "can-i", "create", "pods", kubeconfig=config)
    refused = product.kubectl("get", "secrets", "-n", "default", kubeconfig=config, check=False)
    assert "Forbidden" in refused


def test_strangers_meet_nothing(product: Product, bob: Any, workspace: dict[str, Any]) -> None:
    """TS3, AZ1: 404 where one may not know, 403 where one may."""
    for method, path in (
        ("GET", f"/api/v1/workspaces/{workspace['id']}/"),
        ("DELETE", f"/api/v1/workspaces/{workspace['id']}/"),
        ("POST", f"/api/v1/workspaces/{workspace['id']}/credentials"),
        ("GET", f"/api/v1/workspaces/{workspace['id']}/credentials/"),
        ("GET", "/api/v1/tenants/acme/members/"),
    ):
        assert bob.request(method, path).status_code == 404, (method, path)
    assert bob.post(f"/api/v1/workspaces/{workspace['id']}/suspend", json={"reason": "mine"}).status_code in (403, 404)
    theirs = bob.post("/api/v1/workspaces/init", json={"tier": "basic"}).json()
    config = bob.kubeconfig(theirs["id"])
    for arguments in (
        ("get", "configmaps", "-n", workspace["namespace"]),
        ("get", "secrets", "-A"),
        ("get", "--raw", f"/api/v1/tenants/acme/namespaces/{workspace['namespace']}/configmaps"),
        ("get", "--raw", f"/clusters/root:acme/api/v1/namespaces/{workspace['namespace']}/configmaps"),
        ("get", "tenants"),
    ):
        answer = product.kubectl(*arguments, kubeconfig=config, check=False)
        assert "orbidden" in answer or "NotFound" in answer or "doesn't have a resource type" in answer, answer
        assert "colours" not in answer


def test_suspension_refuses_and_ends_open_watches_and_resume_revives_no_old_token(
    product: Product, alice: Any, workspace: dict[str, Any]
) -> None:
    """GW5, P4, P5."""
    operator = product.sign_in(product.facts["operator_email"], product.facts["operator_password"])
    config = alice.kubeconfig(workspace["id"])
    product.kubectl("get", "configmaps", kubeconfig=config)
    watch = subprocess.Popen(
        [str(KUBECTL), "--kubeconfig", str(config), "get", "configmaps", "--watch-only"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(1.0)
    assert watch.poll() is None
    assert alice.post(f"/api/v1/workspaces/{workspace['id']}/suspend", json={"reason": "x"}).status_code == 403
    answer = operator.post(f"/api/v1/workspaces/{workspace['id']}/suspend", json={"reason": "mining"})
    assert answer.status_code in (200, 202), answer.text
    watch.wait(timeout=300)
    refused = product.kubectl("get", "configmaps", kubeconfig=config, check=False)
    assert "Forbidden" in refused or "Unauthorized" in refused or "logged in" in refused
    assert alice.post(f"/api/v1/workspaces/{workspace['id']}/credentials").status_code == 409
    state = eventually(
        lambda: (
            (body := operator.get(f"/api/v1/workspaces/{workspace['id']}/").json())["status"] == "suspended" and body
        )
    )
    assert state
    answer = operator.post(f"/api/v1/workspaces/{workspace['id']}/resume")
    assert answer.status_code in (200, 202), answer.text
    eventually(lambda: alice.post(f"/api/v1/workspaces/{workspace['id']}/credentials").status_code in (200, 201))
    fresh = alice.kubeconfig(workspace["id"])
    # The API server hears that the door is open once it is.
    eventually(lambda: "colours" in product.kubectl("get", "configmaps", kubeconfig=fresh, check=False))
    stale = product.kubectl("get", "configmaps", kubeconfig=config, check=False)
    assert "colours" not in stale


def test_bad_input_is_refused_in_words(alice: Any, workspace: dict[str, Any]) -> None:
    """Unknown tier, over the limit, nonsense: a status, a sentence, and nothing half-done."""
    for body, code in (({"tier": "golden"}, 400), ({"tier": None}, 400), ({"tier": ["basic"]}, 400), ({}, 400)):
        answer = alice.post("/api/v1/workspaces/init", json=body)
        assert answer.status_code == code, answer.text
        assert answer.headers["Content-Type"].startswith("application/problem+json")
        assert answer.json()["detail"]


def test_audit_chain_holds(product: Product, workspace: dict[str, Any]) -> None:
    """GW13."""
    assert product.manage("audit", "verify")
    lines = product.manage("audit", "export").splitlines()
    actions = {json.loads(line)["action"] for line in lines}
    assert {"tenant.create", "IssueKubeconfig"} <= actions, actions


def test_second_start_is_quick_and_keeps_everything(product: Product, workspace: dict[str, Any]) -> None:
    """Ctrl-C stops everything it started; the second start makes nothing anew and costs less than the first."""
    product.stop(signal.SIGINT)
    assert eventually(lambda: not product.processes())
    product.start()
    assert product.start_costs[-1] < product.start_costs[0]
    alice = product.sign_in("alice@acme.test", "correct horse battery")
    config = alice.kubeconfig(workspace["id"])
    assert "colours" in product.kubectl("get", "configmaps", kubeconfig=config)


def _kubeconfig_or_nothing(product: Product, workspace: str) -> Path | None:
    """What alice gets while the database is coming back."""
    try:
        return product.sign_in("alice@acme.test", "correct horse battery").kubeconfig(workspace)
    except AssertionError:
        return None


def test_killed_quickstart_leaves_nothing_and_starts_again(product: Product, workspace: dict[str, Any]) -> None:
    """A crash of the parent, of a worker and of PostgreSQL is recovered by the next start."""
    product.stop(signal.SIGKILL)
    eventually(lambda: not product.processes())
    product.start()
    postmaster = int((product.folder / "postgresql/data/postmaster.pid").read_text().splitlines()[0])
    subprocess.run(["kill", "-9", str(postmaster)], check=True)
    config = eventually(lambda: _kubeconfig_or_nothing(product, workspace["id"]), every=2)
    # The API server has connections of its own, which come back by themselves.
    eventually(lambda: "colours" in product.kubectl("get", "configmaps", kubeconfig=config, check=False))


def test_taken_port_is_one_line_that_names_the_remedy(product: Product) -> None:
    with tempfile.TemporaryDirectory(prefix="tenantry-story-") as folder:
        second = Product(Path(folder) / "data", environment={"PORTAL_PORT": product.environment["PORTAL_PORT"]})
        with pytest.raises(AssertionError, match="PORTAL_PORT") as caught:
            second.start()
        assert product.environment["PORTAL_PORT"] in str(caught.value)
