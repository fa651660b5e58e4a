"""The gateway's credential of a cluster: its end is announced, and another takes over once it is proved (GW10, GW12)."""

from __future__ import annotations

import base64
import json
from datetime import timedelta

import pytest
from django.utils import timezone

from audit.actions import Action
from audit.models import AuditEntry
from kube.authentication.kubeconfig import read_kubeconfig
from kube.requests.status import Conflict, Invalid, StatusError
from tenants import manifests
from tenants.clusters import encryption
from tenants.clusters.selfcheck import EXPIRES_SOON, expiry_of
from tenants.models import Cluster
from tenants.reconciler.reachability import clusters_probe
from tenants.selectors import clusters_to_tend
from tenants.services import cluster_check, cluster_credential_rotate, cluster_register
from tests.clusters import TestCluster
from tests.faultproxy import Fault
from tests.kubeapiserver import make_kubeconfig
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db


def rotated(cluster: TestCluster, kubeconfig: str) -> Cluster:
    return cluster_credential_rotate(actor=OPERATOR, name=cluster.kind, kubeconfig=kubeconfig)


def straight(cluster: TestCluster, user: str = "tenantry-gateway", *groups: str) -> str:
    """A new credential, which leads past the proxy."""
    return cluster.real.kubeconfig(user, *groups)


def stored() -> str:
    return encryption.decrypt(bytes(Cluster.objects.get().sealed_credential or b""))


def refusal(cluster: TestCluster, kubeconfig: str) -> str:
    """What is said, and that nothing has changed."""
    before = Cluster.objects.values().get()
    with pytest.raises(StatusError) as refused:
        rotated(cluster, kubeconfig)
    assert Cluster.objects.values().get() == before
    assert {cause.field for cause in refused.value.causes} <= {"kubeconfig"}
    return refused.value.message


def test_a_new_credential_takes_over_and_the_old_one_is_wiped(cluster: TestCluster) -> None:
    old = stored()
    new = straight(cluster)
    rotated(cluster, new)
    assert stored() == new
    found = Cluster.objects.get()
    assert found.server == cluster.real.url
    assert found.credential_expires_at == expiry_of(read_kubeconfig(new))
    cluster.proxy.heal()
    assert cluster_check(actor=OPERATOR, name=cluster.kind) == ""
    assert clusters_probe() == 1
    assert cluster.proxy.calls == [], "nothing goes by the old one"
    entry = AuditEntry.objects.get(action=Action.CLUSTER_ROTATED)
    told = json.dumps(entry.detail)
    assert (entry.target, cluster.real.url in told) == (f"clusters/{cluster.kind}", True)
    for kubeconfig in (old, new):
        assert base64.b64encode(read_kubeconfig(kubeconfig).client_key).decode() not in told
    # As often as one likes, and back.
    rotated(cluster, old)
    assert stored() == old


def test_what_is_not_the_gateways_is_refused_and_changes_nothing(cluster: TestCluster) -> None:
    assert "tenantry-gateway" in refusal(cluster, straight(cluster, "somebody"))
    assert "more than the gateway's" in refusal(cluster, straight(cluster, "tenantry-gateway", "system:masters"))
    pem = cluster.real.ca.cert_pem.bytes().decode()
    spent = make_kubeconfig(cluster.real.url, pem, {"token": "nobody"})
    assert "credential" in refusal(cluster, spent)
    assert "kubeconfig" in refusal(cluster, "not: one")


def test_a_verb_that_is_missing_refuses(cluster: TestCluster) -> None:
    roles = manifests.load("gateway-role.yaml")
    less = json.loads(json.dumps(roles[0]))
    less["rules"] = [rule for rule in less["rules"] if "patch" not in rule["verbs"]]
    cluster.kubectl("replace", "-f", "-", stdin=json.dumps(less))
    try:
        assert "patch" in refusal(cluster, straight(cluster))
    finally:
        cluster.kubectl("replace", "-f", "-", stdin=json.dumps(roles[0]))


def test_a_credential_of_another_cluster_is_refused(cluster: TestCluster) -> None:
    """By the UID of kube-system, however alike the clusters are; which one it was is kept from its check on."""
    cluster_check(actor=OPERATOR, name=cluster.kind)
    assert Cluster.objects.get().identity
    Cluster.objects.update(identity="another")
    assert "another cluster than" in refusal(cluster, straight(cluster))


def test_a_cluster_that_was_never_known_and_is_away_is_nobodys_guess(cluster: TestCluster) -> None:
    cluster.proxy.faults.append(Fault("401", times=10))
    assert "Register it again" in refusal(cluster, straight(cluster))


def test_nobody_is_asked_about_a_cluster_that_is_away(cluster: TestCluster) -> None:
    cluster_check(actor=OPERATOR, name=cluster.kind)
    cluster.proxy.faults.append(Fault("503", times=100))
    assert refusal(cluster, cluster.gateway_kubeconfig)


def test_the_later_of_two_rotations_is_refused(cluster: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was looked at before the other one came has to look again."""
    from tenants.services import clustercredentials

    proved = clustercredentials.credential_prove
    first, second = straight(cluster), straight(cluster)

    def meanwhile(*arguments: object) -> None:
        monkeypatch.setattr(clustercredentials, "credential_prove", proved)
        rotated(cluster, second)

    monkeypatch.setattr(clustercredentials, "credential_prove", meanwhile)
    with pytest.raises(Conflict, match="changed meanwhile"):
        rotated(cluster, first)
    assert stored() == second


def registered(cluster: TestCluster, kubeconfig: str) -> Cluster:
    return cluster_register(actor=OPERATOR, name=cluster.kind, kubeconfig=kubeconfig, is_default=True)


def test_registering_a_name_again_tries_the_credential_as_a_rotation_does(cluster: TestCluster) -> None:
    """What is not the gateway's, not all of it, or another cluster's takes nobody's place; the same cluster's does."""
    cluster_check(actor=OPERATOR, name=cluster.kind)
    before = Cluster.objects.values().get()
    spent = make_kubeconfig(cluster.real.url, cluster.real.ca.cert_pem.bytes().decode(), {"token": "nobody"})
    for kubeconfig in (straight(cluster, "somebody"), straight(cluster, "tenantry-gateway", "system:masters"), spent):
        with pytest.raises(Invalid) as refused:
            registered(cluster, kubeconfig)
        assert {cause.field for cause in refused.value.causes} == {"kubeconfig"}
    Cluster.objects.update(identity="another")
    with pytest.raises(Invalid, match="another cluster than"):
        registered(cluster, straight(cluster))
    Cluster.objects.update(identity=before["identity"])
    assert Cluster.objects.values().get() == before
    new = straight(cluster)
    registered(cluster, new)
    assert (stored(), Cluster.objects.get().identity) == (new, before["identity"])


def test_a_cluster_that_was_never_known_is_registered_again_by_what_it_says_now(cluster: TestCluster) -> None:
    """Its old credential tells nothing; the new one has to be the gateway's all the same."""
    cluster.proxy.faults.append(Fault("401", times=10))
    with pytest.raises(Invalid, match="tenantry-gateway"):
        registered(cluster, straight(cluster, "somebody"))
    registered(cluster, straight(cluster))
    cluster.proxy.heal()
    assert Cluster.objects.get().identity


def test_what_the_cluster_has_already_is_not_tried(cluster: TestCluster) -> None:
    """The rest is said anew while it is away; and a first credential is looked at by the check that follows."""
    cluster_check(actor=OPERATOR, name=cluster.kind)
    known = Cluster.objects.get().identity
    cluster.proxy.faults.append(Fault("503", times=100))
    registered(cluster, cluster.gateway_kubeconfig)
    assert Cluster.objects.get().identity == known
    cluster_register(actor=OPERATOR, name="another", kubeconfig=straight(cluster, "somebody"))


def test_an_end_is_announced_two_weeks_ahead(cluster: TestCluster) -> None:
    now = timezone.now()
    for left, announced in ((timedelta(minutes=1), False), (-timedelta(minutes=1), True), (-EXPIRES_SOON, True)):
        Cluster.objects.update(credential_expires_at=now + EXPIRES_SOON + left)
        assert [each.name for each in clusters_to_tend(OPERATOR, now=now)] == [cluster.kind] * announced
    with pytest.raises(Invalid):
        rotated(cluster, "")
