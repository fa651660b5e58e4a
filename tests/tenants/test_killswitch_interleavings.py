"""The kill switch in every interleaving: what was issued before a closing is dead once it is reported (GW5, P4, P5).

So are, after a resume, tokens of accounts that the tenant made itself.
"""

from __future__ import annotations

import itertools
import ssl
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

import orjson
import pytest
import yaml
from django.db import connection
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from access.credentials import credential_revoke, credentials_expire, kubeconfig_issue
from access.models import Credential
from kube.requests.status import StatusError
from store import synchronous
from store.types import Create, Delete, Key, Update
from tenants import actionlimits, operationqueue
from tenants.clusters.anchors import AnchorState
from tenants.models import Cluster, Operation, Phase, Status, Workspace
from tenants.operationqueue import database_now
from tenants.reconciler.loop import operations_run
from tenants.services import (
    tenant_resume,
    tenant_suspend,
    workspace_delete,
    workspace_init,
    workspace_resume,
    workspace_suspend,
)
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.speaking import Speaker
from tests.tenants.conftest import OPERATOR, actor_of, make_tenant, make_user
from tests.tenants.test_own_accounts import Namespace, behind

HELD_WITHIN = timedelta(seconds=10)
_numbers = itertools.count()


class Killed(BaseException):
    """A worker's death in the middle of something."""


@dataclass
class Token:
    """What was issued, and whether a closing was ordered, or reported, since."""

    text: str
    credential: Credential | None
    """``None`` for one of an account that the tenant made itself, as its pods have it."""
    closing: bool = False
    dead: bool = False


class EmbeddedHand:
    """Changes secrets past every fence: straight in the store."""

    def __init__(self, workspace: Workspace, cluster: TestCluster) -> None:
        self._workspace = workspace

    def delete(self, name: str) -> None:
        stored = synchronous.get(self._key(name))
        if stored is not None:
            synchronous.commit([Delete(stored.key, stored.revision, orjson.loads(stored.data))])

    def create(self, name: str) -> None:
        if synchronous.get(self._key(name)) is None:
            metadata = {"name": name, "namespace": self._workspace.k8s_namespace, "uid": f"fake-{next(_numbers)}"}
            synchronous.commit(
                [
                    Create(
                        self._key(name), {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": metadata}
                    )
                ]
            )

    def hold(self, name: str) -> None:
        stored = synchronous.get(self._key(name))
        if stored is not None:
            body = orjson.loads(stored.data)
            body["metadata"] |= {"labels": {}, "finalizers": ["example.org/held"]}
            synchronous.commit([Update(stored.key, stored.revision, body)])

    def _key(self, name: str) -> Key:
        return Key(self._workspace.tenant.cluster_path, "", "secrets", self._workspace.k8s_namespace, name)


class RealHand:
    """The same as the cluster's administrator."""

    def __init__(self, workspace: Workspace, cluster: TestCluster) -> None:
        self._admin = cluster.real.admin
        self._path = f"/api/v1/namespaces/{workspace.k8s_namespace}/secrets"

    def delete(self, name: str) -> None:
        self._admin.send("DELETE", f"{self._path}/{name}")

    def create(self, name: str) -> None:
        self._admin.send("POST", self._path, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})

    def hold(self, name: str) -> None:
        for patch in ({"labels": None}, {"finalizers": ["example.org/held"]}):
            self._admin.send("PATCH", f"{self._path}/{name}", {"metadata": patch}, "application/merge-patch+json")


class KillSwitch(RuleBasedStateMachine):
    """One workspace of one tenant on ``cluster``, and everybody who pulls at it."""

    cluster: ClassVar[TestCluster]
    patch: ClassVar[pytest.MonkeyPatch]

    def __init__(self) -> None:
        super().__init__()
        number = next(_numbers)
        self.cluster.proxy.heal()
        Cluster.objects.update(away_until=None)
        self.user = make_user(f"p{number}@example.org")
        self.tenant = make_tenant(f"t{number}", self.user)
        made = workspace_init(actor=actor_of(self.user), user=self.user, tier="basic", name="web")
        self.pk = self.cluster.settle(made, Phase.READY).pk
        self.tokens: list[Token] = []
        hand = EmbeddedHand if self.cluster.kind == "embedded" else RealHand
        self.hand = hand(self.workspace, self.cluster)
        self.namespace = Namespace(self.cluster, self.workspace)
        self.namespace.account("chart")

    @property
    def workspace(self) -> Workspace:
        return Workspace.objects.select_related("tenant", "cluster", "tier", "user").get(pk=self.pk)

    @rule()
    def issue(self) -> None:
        try:
            issued = kubeconfig_issue(
                actor=actor_of(self.user), workspace_id=self.pk, kind="direct", now=timezone.now()
            )
        except StatusError:
            return
        text = yaml.safe_load(issued.yaml)["users"][0]["user"]["token"]
        self.tokens.append(Token(text, issued.credential))

    @property
    def issued(self) -> list[Token]:
        return [token for token in self.tokens if token.credential is not None]

    @rule(account=st.sampled_from(["default", "chart"]))
    def issue_own(self, account: str) -> None:
        text = self.namespace.token_if_any(account)
        if text:
            self.tokens.append(Token(text, None))

    @rule(stop=st.booleans())
    def suspend(self, stop: bool) -> None:
        self._close(lambda: workspace_suspend(actor=OPERATOR, workspace_id=self.pk, reason="x", stop=stop))

    @rule()
    def suspend_tenant(self) -> None:
        self._close(lambda: tenant_suspend(actor=OPERATOR, name=self.tenant.name, reason="x"))

    @precondition(lambda self: self.tokens)
    @rule()
    def delete(self) -> None:
        self._close(lambda: workspace_delete(actor=OPERATOR, workspace_id=self.pk))

    @rule()
    def resume(self) -> None:
        for act in (
            lambda: tenant_resume(actor=OPERATOR, name=self.tenant.name),
            lambda: workspace_resume(actor=OPERATOR, workspace_id=self.pk),
        ):
            try:
                act()
            except StatusError:
                continue

    @precondition(lambda self: self.issued)
    @rule(data=st.data())
    def revoke(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(self.issued))
        revoked = credential_revoke(actor=OPERATOR, jti=token.credential.jti, now=timezone.now())
        if self.cluster.kind == "embedded" and revoked.revocation_confirmed_at is not None:
            token.dead = True

    @rule()
    def sweep(self) -> None:
        credentials_expire(now=timezone.now() + timedelta(minutes=20))

    @rule()
    def cluster_away(self) -> None:
        self.cluster.proxy.faults.append(Fault("drop-before", times=10**6))

    @rule(
        method=st.sampled_from(["GET", "POST", "DELETE"]), action=st.sampled_from(["503", "drop-after", "429", "403"])
    )
    def cluster_fails(self, method: str, action: str) -> None:
        self.cluster.proxy.faults.append(Fault(action, method))

    @rule()
    def cluster_back(self) -> None:
        self.cluster.proxy.heal()

    @precondition(lambda self: self.issued)
    @rule(data=st.data(), deed=st.sampled_from(["replace", "hold", "delete"]))
    def hostile(self, data: st.DataObject, deed: str) -> None:
        anchor = data.draw(st.sampled_from(self.issued)).credential.anchor
        if deed == "hold":
            self.hand.hold(anchor)
            return
        self.hand.delete(anchor)
        if deed == "replace":
            self.hand.create(anchor)

    @rule(turns=st.integers(1, 3))
    def work(self, turns: int) -> None:
        for _ in range(turns):
            self._time_passes()
            operations_run(workspace_id=self.pk, limit=1)

    @rule(after=st.integers(1, 12))
    def work_killed(self, after: int) -> None:
        left = iter(range(after))

        def die(_: str) -> None:
            if next(left, None) is None:
                raise Killed

        self._time_passes()
        with self.patch.context() as patched:
            patched.setattr(operationqueue, "failpoint", die)
            try:
                operations_run(workspace_id=self.pk, limit=1)
            except Killed:
                pass

    @invariant()
    def the_dead_stay_dead(self) -> None:
        workspace = self.workspace
        if self._closed() or workspace.phase == Phase.READY:
            for token in self.tokens:
                token.dead |= token.closing
        accepted = [token for token in self.tokens if token.dead and self._accepts(token)]
        assert not accepted, (workspace.status, workspace.phase, workspace.receipt)

    def teardown(self) -> None:
        """However it ended: once the cluster answers, what was asked for comes true."""
        self.cluster.proxy.heal()
        workspace = self.workspace
        wanted = {
            Status.ACTIVE: Phase.READY,
            Status.SUSPENDED: Phase.SUSPENDED,
            Status.DELETED: Phase.DELETED,
        }[Status(workspace.status)]
        turns = 0
        while wanted is not Phase.READY and not self._closed():
            assert (turns := turns + 1) < 10, list(Operation.objects.filter(workspace=self.pk).values("state", "error"))
            self._time_passes()
            operations_run(workspace_id=self.pk, limit=1)
        if wanted is Phase.READY:
            self._time_passes()
            self.cluster.settle(workspace, wanted)
        self.the_dead_stay_dead()

    def _closed(self) -> bool:
        """Whether it is reported that nobody has a right: a finalizer may hold the namespace after that for ever."""
        workspace = self.workspace
        layers = {layer["layer"] for layer in workspace.receipt if layer["verified"]}
        ends = workspace.status == Status.DELETED and {"bindings", "canary", "service-accounts"} <= layers
        return ends or workspace.phase in {Phase.SUSPENDED, Phase.DELETED}

    def _close(self, act) -> None:
        try:
            act()
        except StatusError:
            return
        for token in self.tokens:
            token.closing = True

    def _time_passes(self) -> None:
        """As long as a suspension may be made to wait, for whatever reason, and no longer."""
        now = database_now()
        for operation in Operation.objects.filter(workspace=self.pk, desired="suspended"):
            waits = operation.state not in {"done", "superseded"}
            assert not waits or operation.not_before < now + HELD_WITHIN
        for operation in Operation.objects.filter(workspace=self.pk).exclude(lease_until=None):
            assert operation.lease_until < now + HELD_WITHIN
        for cluster in Cluster.objects.exclude(away_until=None):
            assert cluster.away_until < now + HELD_WITHIN
        with connection.cursor() as cursor:
            cursor.execute("UPDATE operations SET lease_until = NULL, not_before = now() WHERE not_before > now()")
            cursor.execute("UPDATE operations SET lease_until = NULL WHERE workspace_id = %s", [self.pk])
        Cluster.objects.update(away_until=None)

    def _accepts(self, token: Token) -> bool:
        """Whether it opens anything; own accounts have no right in a closed namespace, and are unknown in an open one."""
        code = self._answer(token.text)
        unknown = code in {401, 503}
        return code == 200 or (token.credential is None and self.workspace.phase == Phase.READY and not unknown)

    def _answer(self, token: str) -> int:
        proxy = self.cluster.proxy
        context = ssl.create_default_context(cadata=proxy._upstream_ca)
        workspace = self.workspace
        space, namespace = workspace.tenant.cluster_path, workspace.k8s_namespace
        bearer, end = Speaker(proxy._upstream, context, {"Authorization": f"Bearer {token}"}), time.monotonic() + 300
        try:
            while behind(answer := bearer.send("GET", f"/api/v1/namespaces/{namespace}/secrets"), space, namespace):
                assert time.monotonic() < end, answer
                time.sleep(0.05)
        finally:
            bearer.close()
        assert answer.status in {200, 401, 403, 503}
        return answer.status


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("cluster", "examples", "steps"),
    [("embedded", 6, 20), ("kube-apiserver", 2, 12)],
    indirect=["cluster"],
    ids=["embedded", "kube-apiserver"],
)
def test_no_token_outlives_a_closing(cluster, tiers, monkeypatch, examples, steps):
    """Issue, suspend, resume, revoke, delete, tenants, a cluster away, workers killed, hostile hands: in any order."""
    monkeypatch.setattr(actionlimits, "take", lambda *_: None)
    thorough = settings().max_examples // 40
    machine = type("Machine", (KillSwitch,), {"cluster": cluster, "patch": monkeypatch})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples * max(1, thorough),
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("own", [False, True], ids=["ours", "the tenant's own"])
def test_the_property_would_see_a_token_that_lives_on(embedded, tiers, monkeypatch, own):
    """The machine with accounts that outlive a suspension: it must fail."""
    monkeypatch.setattr(actionlimits, "take", lambda *_: None)
    if own:
        monkeypatch.setattr("tenants.reconciler.ownaccounts.renew", lambda _: None)
    else:
        monkeypatch.setattr("tenants.reconciler.closing.remove_accounts", lambda _: database_now())
        monkeypatch.setattr("tenants.reconciler.closing.anchor_end", lambda *_, **__: AnchorState.GONE)
    machine = type("Machine", (KillSwitch,), {"cluster": embedded, "patch": monkeypatch})
    tried = machine()
    if own:
        tried.issue_own("chart")
    else:
        tried.issue()
    tried.suspend(False)
    tried.work(1)
    tried.the_dead_stay_dead()
    tried.resume()
    embedded.settle(tried.workspace, Phase.READY)
    with pytest.raises(AssertionError):
        tried.the_dead_stay_dead()
    embedded.proxy.heal()
