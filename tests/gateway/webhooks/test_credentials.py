"""A cluster's own credential: what it opens, what it does not, and its end (GW17, GW9)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from io import StringIO

import pytest
import yaml
from django.core.management import CommandError, call_command
from django.utils import timezone

from access.credentials.webhooks import webhook_credential_rotate
from access.models import WebhookCredential
from audit.models import AuditEntry
from gateway.handlers.webhooks.serving import patience
from kube.requests.status import Conflict, NotFound
from tenants.services.clusters import cluster_delete
from tests.gateway.callers import eventually
from tests.gateway.webhooks.conftest import Asking, review
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

QUESTION = review(
    "SubjectAccessReview",
    "authorization.k8s.io/v1",
    {"user": "system:node:n1", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "kube-system"}},
)


def test_a_cluster_reaches_its_own_webhooks_and_nothing_else(
    asking: Asking, new_asking: Callable[[str], Asking]
) -> None:
    """Everything else is as closed to it as to a stranger, the other cluster's webhooks first."""
    other = new_asking("ams-1")
    assert asking.ask("authorize", QUESTION).body["status"]["allowed"] is False
    assert asking.ask("authorize", QUESTION, cluster=other.name).status == 403
    assert asking.ask("authorize", QUESTION, cluster="nowhere").status == 403
    assert asking.product.nobody.post("/webhooks/fra-1/authorize", QUESTION).status == 401
    assert asking.product.bearer("twh_invented").post("/webhooks/fra-1/authorize", QUESTION).status == 401
    # A client certificate is nobody's credential here, of whomever it is, nor beside the bearer.
    for certified in (asking.product.admin, asking.product.user("system", "tenantry:cluster:fra-1")):
        assert certified.post("/webhooks/fra-1/authorize", QUESTION).status == 403
        both = {"Authorization": f"Bearer {asking.token}", "Content-Type": "application/json"}
        assert certified.call("POST", "/webhooks/fra-1/authorize", QUESTION, both).status == 403
    caller = asking.product.bearer(asking.token)
    for path in ("/api/v1/namespaces", "/version", "/metrics", "/clusters/root:acme/webhooks/fra-1/authorize"):
        assert caller.get(path).status == 403, path
    assert caller.get("/webhooks/fra-1/authorize").status == 405
    assert caller.post("/webhooks/fra-1/invent", QUESTION).status == 404


@pytest.mark.parametrize(
    ("hook", "body", "status"),
    [
        ("authorize", {}, 400),
        ("authorize", [], 400),
        ("authorize", b"{", 400),
        ("authorize", {**QUESTION, "apiVersion": "authorization.k8s.io/v1beta1"}, 400),
        ("authorize", {**QUESTION, "kind": "SelfSubjectAccessReview"}, 400),
        ("authenticate", QUESTION, 400),
        ("authorize", {**QUESTION, "spec": {"user": 7}}, 400),
        ("authorize", {**QUESTION, "spec": {"user": "x"}}, 400),
        ("authorize", {**QUESTION, "spec": {"user": "x", "nonResourceAttributes": {"path": 1}}}, 400),
        ("authorize", {**QUESTION, "spec": {**QUESTION["spec"], "extra": {"a": "b"}}}, 400),
        ("authenticate", review("TokenReview", "authentication.k8s.io/v1", {}), 400),
        ("authorize", {**QUESTION, "metadata": {"annotations": {"a": "x" * 70_000}}}, 413),
    ],
)
def test_what_is_no_review_is_refused_by_the_proper_status(
    asking: Asking, hook: str, body: object, status: int
) -> None:
    answer = asking.ask(hook, body)
    assert (answer.status, answer.body["kind"]) == (status, "Status")


def test_only_json_is_read(asking: Asking) -> None:
    caller = asking.product.bearer(asking.token)
    answer = caller.post("/webhooks/fra-1/authorize", b"kind: x", {"Content-Type": "application/yaml"})
    assert answer.status == 415


def test_a_rotation_leaves_time_to_exchange_the_file_and_then_ends_the_old_one(asking: Asking) -> None:
    """Stored as a digest alone; each is in the audit, without its text."""
    new = webhook_credential_rotate(actor=OPERATOR, cluster="fra-1", now=timezone.now())
    renewed = Asking("fra-1", asking.product, new)
    assert eventually(lambda: renewed.ask("authorize", QUESTION).status == 200)
    assert asking.ask("authorize", QUESTION).status == 200
    out = StringIO()
    call_command("webhooks", "rotate", "fra-1", "--overlap", "0", stdout=out)
    newest = Asking("fra-1", asking.product, out.getvalue().strip())
    assert eventually(lambda: newest.ask("authorize", QUESTION).status == 200)
    assert eventually(lambda: asking.ask("authorize", QUESTION).status == 401)
    assert eventually(lambda: renewed.ask("authorize", QUESTION).status == 401)
    texts = {asking.token, new, newest.token}
    kept = {value for row in WebhookCredential.objects.values_list() for value in map(str, row)}
    told = str(list(AuditEntry.objects.filter(action="webhook.credential").values_list()))
    assert not any(text in value for text in texts for value in (*kept, told))
    assert AuditEntry.objects.filter(action="webhook.credential").count() == 3


def test_a_credential_ends_by_itself_and_with_its_cluster(asking: Asking) -> None:
    now = timezone.now() - timedelta(hours=2)
    webhook_credential_rotate(actor=OPERATOR, cluster="fra-1", overlap=timedelta(hours=1), now=now)
    assert eventually(lambda: asking.ask("authorize", QUESTION).status == 401)
    webhook_credential_rotate(actor=OPERATOR, cluster="fra-1", now=timezone.now())
    cluster_delete(actor=OPERATOR, name="fra-1")
    assert not WebhookCredential.objects.exists()
    with pytest.raises(NotFound):
        webhook_credential_rotate(actor=OPERATOR, cluster="fra-1", now=timezone.now())
    with pytest.raises(Conflict):
        webhook_credential_rotate(actor=OPERATOR, cluster="embedded", now=timezone.now())


def test_what_to_apply_is_printed_without_a_secret(asking: Asking) -> None:
    """Whole YAML documents, each with the place of its file; the addresses are this cluster's own webhooks."""
    out = StringIO()
    call_command("webhooks", "manifests", "fra-1", "--folder", "/srv/hooks", stdout=out)
    assert asking.token not in out.getvalue()
    assert "twh_" not in out.getvalue()
    printed = list(yaml.safe_load_all(out.getvalue()))
    documents = {document["kind"]: document for document in printed}
    hooks, place = documents["ValidatingWebhookConfiguration"]["webhooks"], f"{asking.product.url}/webhooks/fra-1"
    assert {hook["clientConfig"]["url"] for hook in hooks} == {f"{place}/admit"}
    *configs, admission = (document for document in printed if document["kind"] == "Config")
    servers = [config["clusters"][0]["cluster"]["server"] for config in configs]
    assert servers == [f"{place}/authenticate", f"{place}/authorize"]
    # kube-apiserver finds the credential for an admission webhook by its host and port.
    assert admission["users"][0]["name"] == asking.product.url.removeprefix("https://")
    for config in (*configs, admission):
        assert config["users"][0]["user"] == {"tokenFile": "/srv/hooks/token"}
    modes = [mode["type"] for mode in documents["AuthorizationConfiguration"]["authorizers"]]
    assert modes == ["Node", "Webhook", "Webhook", "RBAC"]
    with pytest.raises(CommandError, match="no registered cluster"):
        call_command("webhooks", "manifests", "embedded")


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [("10s", 5), ("1m30s", 45), ("2.5s", 1.25), ("1m", 30), ("", 5), ("nonsense", 5), ("-3s", 5)],
)
def test_half_of_what_the_cluster_waits_is_the_deadline(timeout: str, seconds: float) -> None:
    """A cluster says in the query how long it waits; without that it is what kube-apiserver waits by default."""
    assert patience(timeout) == seconds
