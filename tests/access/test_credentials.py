"""Kubeconfigs and personal access tokens: issued once recorded, dead when they should be, never kept (GW3, GW9)."""

from __future__ import annotations

import base64
import json
import logging
import ssl
import time
import urllib.error
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
import redis
import yaml
from django.conf import settings as django_settings
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from access.credentials import (
    clustertokens,
    credential_revoke,
    credentials_expire,
    kubeconfig_issue,
    token_authenticate,
    token_create,
    token_revoke,
)
from access.credentials.selectors import credential_visible_to, credentials_of_workspace
from access.models import Credential, PersonalAccessToken
from audit.models import AuditEntry
from audit.verifying import chain_flaw
from kube.requests.status import Conflict, Forbidden, Invalid, NotFound, ServiceUnavailable, TooManyRequests
from portal.signin.accounts import user_change
from tenants import actionlimits
from tenants.models import Phase, Role, Workspace
from tenants.services import membership_remove, membership_set, workspace_init, workspace_resume, workspace_suspend
from tenants.tasks import operations_sweep
from tests.databases import owning
from tests.faultproxy import Fault
from tests.tenants.conftest import OPERATOR, actor_of, join, make_tenant, make_user
from tests.tenants.test_lock_order import PATIENCE, is_waiting

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return make_user()


@pytest.fixture
def workspace(cluster, tiers, alice) -> Workspace:
    make_tenant("acme", alice)
    workspace = workspace_init(actor=actor_of(alice), user=alice, tier="basic", name="web")
    workspace = cluster.settle(workspace, Phase.READY)
    cluster.proxy.heal()
    return workspace


def issue(alice, workspace, **fields):
    return kubeconfig_issue(
        actor=actor_of(alice), workspace_id=workspace.id, kind="direct", now=timezone.now(), **fields
    )


def token_of(issued) -> str:
    return yaml.safe_load(issued.yaml)["users"][0]["user"]["token"]


def call(cluster, token: str, path: str) -> int:
    """A request straight to the cluster with the token alone; its status."""
    context = ssl.create_default_context(cadata=cluster.proxy.ca.cert_pem.bytes().decode())
    request = urllib.request.Request(f"{cluster.proxy.url}{path}", headers={"Authorization": f"Bearer {token}"})
    try:
        return urllib.request.urlopen(request, context=context, timeout=300).status
    except urllib.error.HTTPError as error:
        return error.code


def outcomes() -> list[str]:
    rows = AuditEntry.objects.filter(action="IssueKubeconfig").order_by("sequence")
    return list(rows.values_list("outcome", flat=True))


def test_a_credential_ends_as_early_as_is_asked_for(cluster, workspace, alice):
    """GW3: below two hours, not above; the cluster itself ends the token then."""
    issue(alice, workspace, minutes=30)
    credential = Credential.objects.get()
    assert timedelta(minutes=29) < credential.expires_at - credential.issued_at <= timedelta(minutes=31)
    for minutes in (9, 121, -1):
        with pytest.raises(Invalid):
            issue(alice, workspace, minutes=minutes)
    assert Credential.objects.count() == 1


def test_an_issued_kubeconfig_opens_the_workspace_and_nothing_else(cluster, workspace, alice):
    """GW3, GW7."""
    issued = issue(alice, workspace)
    config = yaml.safe_load(issued.yaml)
    assert config["current-context"].startswith("acme.web.admin@")
    assert config["contexts"][0]["context"]["namespace"] == workspace.k8s_namespace
    assert config["users"][0]["name"] == config["current-context"]
    ca = base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    assert ca == workspace.cluster.ca_data
    token = token_of(issued)
    pods = f"/api/v1/namespaces/{workspace.k8s_namespace}/pods"
    cluster.lets_in(lambda: call(cluster, token, pods))
    assert call(cluster, token, "/api/v1/namespaces/default/pods") == 403
    assert call(cluster, token, "/api/v1/pods") == 403
    credential = Credential.objects.get()
    assert credential.jti
    assert timedelta(seconds=7190) < credential.expires_at - credential.issued_at <= timedelta(seconds=7260)
    assert (credential.issued_to, credential.ip_address) == (alice, "192.0.2.7")
    assert outcomes() == ["intent", "success"]
    success = AuditEntry.objects.get(action="IssueKubeconfig", outcome="success")
    assert success.detail["jti"] == credential.jti
    assert chain_flaw("acme") is None


@pytest.mark.django_db(transaction=True)
def test_the_intent_is_committed_before_the_token_is_asked_for(cluster, workspace, alice):
    """SEC-04: no record, no token."""
    with owning() as cursor:
        cursor.execute("ALTER TABLE audit_logs ADD CONSTRAINT broken CHECK (action <> 'IssueKubeconfig')")
        try:
            with pytest.raises(Exception, match="broken"):
                issue(alice, workspace)
        finally:
            cursor.execute("ALTER TABLE audit_logs DROP CONSTRAINT broken")
    assert [path for _, path, _ in cluster.proxy.calls] == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault("drop-before", "POST", "secrets"),
        Fault("drop-after", "POST", "secrets"),
        Fault("drop-after", "POST", "token"),
        Fault("500", "POST", "token"),
        Fault("403", "POST", "token"),
        Fault("html", "POST", "token"),
        Fault("truncated", "POST", "token"),
        Fault("429", "POST", "secrets", retry_after="1"),
    ],
    ids=lambda fault: f"{fault.action}-{fault.path}",
)
def test_a_failed_issue_leaves_nothing_behind(cluster, workspace, alice, fault):
    cluster.proxy.faults.append(Fault(**{**fault.__dict__, "hits": 0}))
    with pytest.raises(ServiceUnavailable):
        issue(alice, workspace)
    assert outcomes() == ["intent", "failure"]
    credential = Credential.objects.get()
    assert credential.failed_at is not None
    assert credential.jti is None
    cluster.proxy.heal()
    credentials_expire(now=timezone.now())
    assert Credential.objects.get().revocation_confirmed_at is not None
    secrets = cluster.kubectl("get", "secrets", "-n", workspace.k8s_namespace, "-o", "name")
    assert "tenantry-anchor" not in secrets
    issue(alice, workspace)


def test_a_revoked_credential_dies_alone(cluster, workspace, alice):
    first, second = issue(alice, workspace), issue(alice, workspace)
    path = f"/api/v1/namespaces/{workspace.k8s_namespace}/pods"
    cluster.lets_in(lambda: call(cluster, token_of(first), path))
    revoked = credential_revoke(actor=actor_of(alice), jti=first.credential.jti, now=timezone.now())
    assert revoked.revoked_at is not None
    assert revoked.revocation_confirmed_at is not None
    end = time.monotonic() + 300
    while call(cluster, token_of(first), path) != 401:
        assert time.monotonic() < end
        time.sleep(0.3)
    assert call(cluster, token_of(second), path) == 200
    assert AuditEntry.objects.filter(action="credential.revoke").count() == 1


def test_credentials_end_with_the_membership_that_gave_them(cluster, workspace, alice):
    """RV-11: of two members only the one who leaves loses the way in; a lower role ends what the higher one gave."""
    bob = make_user("bob@example.org")
    join(workspace.tenant, bob)
    hers, his = issue(alice, workspace), issue(bob, workspace)
    path = f"/api/v1/namespaces/{workspace.k8s_namespace}/configmaps"
    cluster.lets_in(lambda: call(cluster, token_of(his), path))
    membership_set(actor=actor_of(alice), tenant="acme", user=bob, role=Role.ADMIN)
    assert Credential.objects.filter(revoked_at=None).count() == 2
    membership_set(actor=actor_of(alice), tenant="acme", user=bob, role=Role.VIEWER)
    assert Credential.objects.get(revoked_at=None).pk == hers.credential.pk
    low = issue(bob, workspace)
    membership_remove(actor=actor_of(alice), tenant="acme", user=bob)
    assert credentials_expire(now=timezone.now()) == 2
    end = time.monotonic() + 300
    while {call(cluster, token_of(his), path), call(cluster, token_of(low), path)} != {401}:
        assert time.monotonic() < end
        time.sleep(0.3)
    assert call(cluster, token_of(hers), path) == 200
    assert AuditEntry.objects.get(action="membership.remove").detail["credentials_revoked"] == 1


def test_a_membership_that_ends_while_a_token_is_made_lets_none_out(cluster, workspace, alice, monkeypatch):
    """RV-17."""
    bob = make_user("bob@example.org")
    join(workspace.tenant, bob)
    made = clustertokens.token_request

    def leaving(*arguments, **named):
        token = made(*arguments, **named)
        membership_remove(actor=actor_of(alice), tenant="acme", user=bob)
        return token

    monkeypatch.setattr(clustertokens, "token_request", leaving)
    with pytest.raises(Forbidden, match="ended while the credential was made"):
        issue(bob, workspace)
    credential = Credential.objects.get()
    assert (credential.jti, credential.failed_at is not None) == (None, True)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "ends",
    [
        lambda bob: membership_remove(actor=OPERATOR, tenant="acme", user=bob),
        lambda bob: membership_set(actor=OPERATOR, tenant="acme", user=bob, role=Role.VIEWER),
        lambda bob: user_change(actor=OPERATOR, user_id=bob.pk, status="disabled"),
    ],
    ids=["removed", "lowered", "disabled"],
)
def test_a_right_that_is_about_to_end_lets_no_token_out(cluster, workspace, alice, ends):
    """RV-17: what takes it away has looked for credentials already, and is not committed yet."""
    bob = make_user("bob@example.org")
    join(workspace.tenant, bob)

    def ask():
        try:
            return issue(bob, workspace, role="editor")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            ends(bob)
            asked = pool.submit(ask)
            given_up = time.monotonic() + PATIENCE
            while not is_waiting() and not asked.done():
                assert time.monotonic() < given_up
                time.sleep(0.02)
        with pytest.raises((Forbidden, NotFound)):
            asked.result(PATIENCE)
    assert not Credential.objects.filter(failed_at=None).exists()
    assert "tenantry-anchor" not in cluster.kubectl("get", "secrets", "-n", workspace.k8s_namespace, "-o", "name")


def test_credentials_of_a_disabled_account_end(cluster, workspace, alice):
    """RV-17."""
    issue(alice, workspace)
    user_change(actor=OPERATOR, user_id=alice.pk, status="disabled")
    assert Credential.objects.get().revoked_by == OPERATOR.name


def test_a_revocation_while_the_cluster_is_away_is_finished_later(cluster, workspace, alice):
    issued = issue(alice, workspace)
    cluster.proxy.faults.append(Fault("drop-before", times=10**6))
    revoked = credential_revoke(actor=actor_of(alice), jti=issued.credential.jti, now=timezone.now())
    assert revoked.revoked_at is not None
    assert revoked.revocation_confirmed_at is None
    cluster.proxy.heal()
    assert credentials_expire(now=timezone.now()) == 1


def test_after_suspension_and_resume_earlier_tokens_stay_dead(cluster, workspace, alice):
    """P4, P5."""
    token = token_of(issue(alice, workspace))
    path = f"/api/v1/namespaces/{workspace.k8s_namespace}/pods"
    cluster.lets_in(lambda: call(cluster, token, path))
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="mining")
    with pytest.raises(Conflict, match="suspended"):
        issue(alice, workspace)
    cluster.settle(workspace, Phase.SUSPENDED)
    assert call(cluster, token, path) in {401, 403}
    assert Credential.objects.get().revoked_at is not None
    workspace_resume(actor=OPERATOR, workspace_id=workspace.id)
    workspace = cluster.settle(workspace, Phase.READY)
    end = time.monotonic() + 300
    while call(cluster, token, path) != 401:
        assert time.monotonic() < end
        time.sleep(0.3)
    fresh = token_of(issue(alice, workspace))
    cluster.lets_in(lambda: call(cluster, fresh, path))


def test_roles_give_different_rights(cluster, workspace, alice):
    """A viewer's kubeconfig only looks; nobody gets more than the membership."""
    bob = make_user("bob@example.org")
    join(workspace.tenant, bob, Role.VIEWER)
    token = token_of(issue(bob, workspace))
    base = f"/api/v1/namespaces/{workspace.k8s_namespace}"
    cluster.lets_in(lambda: call(cluster, token, f"{base}/pods"))
    assert call(cluster, token, f"{base}/secrets") == 403
    with pytest.raises(Forbidden):
        issue(bob, workspace, role="admin")
    with pytest.raises(Forbidden):
        issue(alice, workspace, role="god")
    assert Credential.objects.get().role == "viewer"


def test_strangers_get_404_and_floods_429(cluster, workspace, alice, monkeypatch):
    # What the bucket gives back while the credentials are issued would let one more through.
    monkeypatch.setattr(actionlimits, "CREDENTIAL", replace(actionlimits.CREDENTIAL, interval=100_000))
    eve = make_user("eve@example.org")
    with pytest.raises(NotFound):
        issue(eve, workspace)
    with pytest.raises(NotFound):
        kubeconfig_issue(actor=actor_of(alice), workspace_id=uuid.uuid4(), now=timezone.now())
    assert outcomes() == ["denied"]
    for _ in range(actionlimits.CREDENTIAL.burst):
        issue(alice, workspace)
    with pytest.raises(TooManyRequests) as caught:
        issue(alice, workspace)
    assert caught.value.retry_after and caught.value.retry_after > 0
    assert len(credentials_of_workspace(actor_of(alice), workspace)) == actionlimits.CREDENTIAL.burst
    with pytest.raises(NotFound):
        credential_visible_to(actor_of(eve), Credential.objects.first().jti)
    assert [path for _, path, _ in cluster.proxy.calls if "tenant-" not in path] == []


def _plain(client: redis.Redis, kind: bytes, key: bytes) -> object:
    return {b"string": client.get, b"hash": client.hgetall, b"set": client.smembers}[kind](key)


@pytest.mark.parametrize("cluster", ["embedded", "kube-apiserver"], indirect=True)
@pytest.mark.django_db(transaction=True)
def test_no_token_is_in_any_sink(cluster, workspace, alice, caplog, tmp_path):
    """GW9, P2, SEC-01: every row, every Redis key, every log line, the queue's messages, every error."""
    caplog.set_level(logging.DEBUG)
    canaries = [token_of(issue(alice, workspace)) for _ in range(2)]
    minted = token_create(
        actor=actor_of(alice),
        user=alice,
        name="ci",
        scope=PersonalAccessToken.Scope.READ,
        now=timezone.now(),
        expires_at=timezone.now() + timedelta(days=1),
    )
    canaries.append(minted.text)
    errors = []
    for fault in (Fault("drop-after", "POST", "token"), Fault("html", "POST", "secrets")):
        cluster.proxy.faults.append(fault)
        with pytest.raises(ServiceUnavailable) as caught:
            issue(alice, workspace)
        errors += [str(caught.value), repr(caught.value), json.dumps(caught.value.as_status())]
    credential_revoke(actor=actor_of(alice), jti=Credential.objects.exclude(jti=None).first().jti, now=timezone.now())
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="mining")
    operations_sweep.apply_async()
    cluster.settle(workspace, Phase.SUSPENDED)
    texts = [caplog.text, *errors, repr(minted)]
    with owning() as cursor:
        cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
        tables = [name for (name,) in cursor.fetchall()]
        for table in tables:
            cursor.execute(f'SELECT t::text FROM "{table}" t')
            texts += [row for (row,) in cursor.fetchall()]
    assert len(tables) > 20
    client = redis.Redis.from_url(django_settings.REDIS_URL)
    # DUMP compresses, and a compressed secret is one that a search misses.
    readers = {b"list": client.lrange, b"zset": client.zrange}
    kept = [
        repr(readers[kind](key, 0, -1) if (kind := client.type(key)) in readers else _plain(client, kind, key)).encode()
        for key in client.scan_iter()
    ]
    assert any(b"operations_sweep" in value for value in kept), "the queue's messages are among what is searched"
    texts += [value.decode("latin-1") for value in kept]
    for canary in canaries:
        # The signature alone, or the random part alone, would be as bad.
        for part in (canary, canary[-40:], canary.split(".")[-1], base64.b64encode(canary.encode()).decode()[8:48]):
            assert not [text[:200] for text in texts if part in text]


def make_token(user, **fields):
    now = timezone.now()
    values = {"name": "ci", "scope": "read", "expires_at": now + timedelta(days=30), "now": now} | fields
    return token_create(actor=actor_of(user), user=user, **values)


def test_a_token_is_known_by_its_digest_alone(alice):
    minted = make_token(alice)
    assert minted.text.startswith("tnt_")
    assert minted.text not in json.dumps(list(PersonalAccessToken.objects.values()), default=str)
    found = token_authenticate(minted.text, now=timezone.now())
    assert found is not None
    assert found.user == alice
    assert PersonalAccessToken.objects.get().last_used_at is not None


def test_a_token_ends_by_revocation_expiry_and_its_user(alice):
    now = timezone.now()
    first, second = make_token(alice), make_token(alice)
    token_revoke(actor=actor_of(alice), token_id=first.token.id, now=now)
    assert token_authenticate(first.text, now=now) is None
    assert token_authenticate(second.text, now=now + timedelta(days=31)) is None
    assert token_authenticate(second.text, now=now) is not None
    alice.status = "disabled"
    alice.save()
    assert token_authenticate(second.text, now=now) is None


@given(text=st.text(max_size=60) | st.from_regex(r"tnt_[0-9A-Za-z]{38}", fullmatch=True))
def test_noise_is_no_token_and_no_query(text):
    with CaptureQueriesContext(connection) as queries:
        assert token_authenticate(text, now=timezone.now()) is None
    assert not queries.captured_queries


@pytest.mark.parametrize(
    "fields",
    [
        {"name": " "},
        {"scope": "root"},
        {"expires_at": timezone.now() + timedelta(days=400)},
        {"expires_at": timezone.now() - timedelta(1)},
    ],
)
def test_a_bad_token_request_names_the_field(alice, fields):
    with pytest.raises(Invalid) as caught:
        make_token(alice, **fields)
    assert caught.value.causes


def test_tokens_are_their_own_users_business(alice):
    eve = make_user("eve@example.org")
    make_tenant("acme", alice)
    now = timezone.now()
    with pytest.raises(Forbidden):
        token_create(actor=actor_of(eve), user=alice, name="x", scope="read", expires_at=now + timedelta(1), now=now)
    with pytest.raises(Forbidden):
        make_token(eve, scope="operate")
    with pytest.raises(NotFound):
        make_token(eve, tenant=alice.tenants.get())
    with pytest.raises(NotFound):
        token_revoke(actor=actor_of(eve), token_id=make_token(alice).token.id, now=now)
