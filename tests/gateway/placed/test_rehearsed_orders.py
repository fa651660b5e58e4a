"""A dry run of an order judges all that the order would, says it in the same words, and leaves nothing behind (GW18)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from audit.actions import Action
from audit.models import AuditEntry
from store.models import StoredObject
from tenants.models import Approval, Operation, Role, Tier, Workspace
from tenants.services import tenant_suspend
from tenants.services.operating.freezing import tenant_freeze
from tests.gateway.callers import Answer, Caller, config_map, eventually
from tests.gateway.placed.conftest import STANDING_IN, Door, namespace, phase_of, said
from tests.gateway.standingcluster import Standing
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)


def kept() -> dict[str, Any]:
    """All that an order leaves; a token is what any request to a cluster needs, a rehearsal as well."""
    recorded = AuditEntry.objects.filter(action__startswith="workspace.").exclude(action=Action.WORKSPACE_TOKEN_ISSUED)
    return {
        "workspaces": sorted(Workspace.objects.values_list("k8s_namespace", "status")),
        "operations": Operation.objects.count(),
        "audit": sorted(recorded.values_list("action", "target")),
        "namespaces": sorted(
            StoredObject.objects.filter(resource="namespaces").values_list("space", "name", "revision")
        ),
    }


@contextmanager
def nothing_left() -> Iterator[None]:
    before = kept()
    yield
    assert kept() == before


def ordered(caller: Caller, name: str, on: str = STANDING_IN, **annotations: str) -> Answer:
    """What the order is answered, the same as its dry run was: which left nothing behind."""
    body = namespace(name, on, **annotations)
    with nothing_left():
        rehearsed = caller.post("/api/v1/namespaces", body, dryRun="All")
    answer = caller.post("/api/v1/namespaces", body)
    assert (rehearsed.status, rehearsed.body.get("reason"), said(rehearsed)) == (
        answer.status,
        answer.body.get("reason"),
        said(answer),
    )
    return answer


@pytest.fixture
def door(new_standing_door: Callable[[], Door]) -> Door:
    return new_standing_door()


def test_what_would_be_refused_is_refused_alike(door: Door, server: Standing) -> None:
    """By name, cluster, tier, right and person: each as the order itself is."""
    Tier.objects.create(name="dear", position=99, quota={}, limit_range=[], approval=Approval.OPERATOR)
    name = f"{door.name}-a"
    cases: list[tuple[str, int, Callable[[Caller], Answer]]] = [
        ("must begin with", 422, lambda who: ordered(who, "web")),
        ("RFC 1123", 422, lambda who: ordered(who, f"{door.name}-")),
        ("no cluster of this name", 422, lambda who: ordered(who, name, on="nowhere")),
        ("tier", 422, lambda who: ordered(who, name, **{"tenantry.io/tier": "golden"})),
        ("given on request", 403, lambda who: ordered(who, name, **{"tenantry.io/tier": "dear"})),
        ("choose another name", 409, lambda who: ordered(who, f"{door.name}-there")),
    ]
    there = {"metadata": {"name": f"{door.name}-there"}}
    assert server.admin.post("/api/v1/namespaces", there).status == 201
    for number, (words, status, order) in enumerate(cases):
        answer = order(door.person(f"olga{number}", Role.OWNER))
        assert (answer.status, words in said(answer)) == (status, True), answer.body
    for somebody in (door.server.user(door.name, "robot", "tenantry:owner"), door.person("vera", Role.VIEWER)):
        assert ordered(somebody, name).status == 403
    raised = door.server.user(door.name, f"vera@{door.name}.test", "tenantry:owner")
    assert said(ordered(raised, name)) == "Viewers cannot create workspaces."
    assert not Workspace.objects.exists()


def test_what_would_be_accepted_is_shown_and_can_be_ordered(door: Door) -> None:
    """As what it would be, with what the product writes on it; and no more than the tier allows."""
    Tier.objects.update(workspaces_per_user=1)
    owner = door.person("olga", Role.OWNER)
    name = f"{door.name}-a"
    with nothing_left():
        shown = owner.post("/api/v1/namespaces", namespace(name, STANDING_IN), dryRun="All").body
    assert shown["metadata"]["labels"]["tenantry.io/cluster"] == STANDING_IN
    assert (shown["status"]["phase"], "resourceVersion" in shown["metadata"]) == ("Pending", False)
    assert phase_of(owner, name) == ""
    assert door.place(owner, name, on=STANDING_IN) == name
    assert "per user" in said(ordered(owner, f"{door.name}-b"))
    assert ordered(owner, name).status == 409


def test_kubectls_own_dry_runs_judge_as_well(door: Door, kubectl: Callable[..., str]) -> None:
    """``create`` and ``apply``, by client and by server; a dry run of a deletion is one too."""
    owner = door.person("olga", Role.OWNER)
    manifest = (
        f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: web, labels: {{tenantry.io/cluster: {STANDING_IN}}}}}"
    )
    for how in (("create",), ("apply",), ("apply", "--server-side")):
        told = kubectl(owner, *how, "--dry-run=server", "-f", "-", stdin=manifest, check=False)
        assert "must begin with" in told, how
    good = manifest.replace("name: web", f"name: {door.name}-a")
    for how in (("create",), ("apply",), ("apply", "--server-side")):
        with nothing_left():
            assert "(server dry run)" in kubectl(owner, *how, "--dry-run=server", "-f", "-", stdin=good)
    door.place(owner, f"{door.name}-a", on=STANDING_IN)
    with nothing_left():
        assert "(server dry run)" in kubectl(owner, "delete", "ns", f"{door.name}-a", "--dry-run=server")
    editor = door.person("eddy", Role.EDITOR)
    path = f"/api/v1/namespaces/{door.name}-a"
    with nothing_left():
        rehearsed = editor.delete(path, dryRun="All")
    answer = editor.delete(path)
    assert (rehearsed.status, said(rehearsed)) == (answer.status, said(answer)) == (403, said(answer))


@pytest.mark.parametrize("close", [tenant_suspend, tenant_freeze])
def test_who_is_closed_out_rehearses_nothing(door: Door, close: Callable[..., Any]) -> None:
    owner, maps = door.person("olga", Role.OWNER), "/api/v1/namespaces/default/configmaps"
    close(actor=OPERATOR, name=door.name, reason="unpaid")
    # Whoever orders before the server has heard of it is refused by the portal, in other words.
    assert eventually(lambda: "unpaid" in said(owner.post(maps, config_map("c"), dryRun="All")))
    answer = ordered(owner, f"{door.name}-a")
    assert (answer.status, "unpaid" in said(answer)) == (403, True)
