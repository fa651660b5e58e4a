"""Every rule of a policy, refused and allowed: one table, played in both kinds of namespaces, through kubectl too (AD4, AD5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.kinds.builtins import BUILTINS
from kube.objects.podtemplates import TEMPLATES
from kube.policies.policy import LISTS, RULES
from kube.policies.violations import KINDS
from tenants.models import Role, Tenant, Tier
from tenants.services import tenant_policies_change
from tests.gateway.callers import Answer, Caller, eventually
from tests.gateway.conftest import Server
from tests.gateway.placed.conftest import Door, owner_of
from tests.gateway.placed.test_policies import BACKEND, CONTAINERS, OURS, is_refused_at
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

TABLE = yaml.safe_load(Path(__file__).with_name("policies.yaml").read_text())
ON_CLUSTERS = [row for row in TABLE if not {"gateway", "listenerset", "route"} & {*row}]
GATEWAYS = "gateway.networking.k8s.io"
FENCED = "tenantry-pod-fence"
DEFINED = sorted(kind for group, kind in KINDS if group == GATEWAYS)
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def objects_of(row: Mapping[str, Any], tenant: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Where a row's objects are posted, what they are, and what is before the paths of their fields."""
    metadata = {"generateName": "x-", "labels": row.get("labels", {}), "annotations": row.get("annotations", {})}
    pod = row.get("pod", row.get("template"))
    if pod is not None:
        template = {
            "metadata": {"labels": {"a": "b", **row.get("labels", {})}},
            "spec": {"containers": CONTAINERS, **pod},
        }
        if "pod" in row:
            yield "/api/v1|pods", {"metadata": {**template["metadata"], **metadata}, "spec": template["spec"]}, ""
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        yield "/apis/apps/v1|deployments", {"metadata": metadata, "spec": spec}, "spec.template."
        job = {"spec": {"template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}}
        spec = {"schedule": "@daily", "jobTemplate": job}
        yield "/apis/batch/v1|cronjobs", {"metadata": metadata, "spec": spec}, "spec.jobTemplate.spec.template."
    if "service" in row:
        yield "/api/v1|services", {"metadata": metadata, "spec": {"ports": [{"port": 80}], **row["service"]}}, ""
    if "claim" in row:
        yield "/api/v1|persistentvolumeclaims", {"metadata": metadata, "spec": {**CLAIM, **row["claim"]}}, ""
    if "stateful" in row:
        labels = {"a": "b", **row.get("labels", {})}
        claims = [
            {"metadata": {"name": f"v{number}", "labels": labels}, "spec": {**CLAIM, **claim}}
            for number, claim in enumerate(row["stateful"])
        ]
        template = {"metadata": {"labels": labels}, "spec": {"containers": CONTAINERS}}
        spec = {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}}, "template": template}
        body = {"metadata": metadata, "spec": {**spec, "volumeClaimTemplates": claims}}
        yield "/apis/apps/v1|statefulsets", body, ""
    if "ingress" in row:
        spec = yaml.safe_load(yaml.safe_dump(row["ingress"]).replace("{tenant}", tenant))
        if "rules" in spec:
            spec["rules"] = [{**rule, **BACKEND} for rule in spec["rules"]]
        yield "/apis/networking.k8s.io/v1|ingresses", {"metadata": metadata, "spec": spec}, ""
    for kind in ("Gateway", "ListenerSet"):
        if kind.lower() in row:
            spec = yaml.safe_load(yaml.safe_dump(row[kind.lower()]).replace("{tenant}", tenant))
            body = {"apiVersion": f"{GATEWAYS}/v1", "kind": kind, "metadata": metadata, "spec": spec}
            yield f"/apis/{GATEWAYS}/v1|{kind.lower()}s", body, ""
    for kind in row.get("route", ()):
        names = [name.replace("{tenant}", tenant) for name in row["hostnames"]]
        body = {"apiVersion": f"{GATEWAYS}/v1", "kind": kind, "metadata": metadata, "spec": {"hostnames": names}}
        yield f"/apis/{GATEWAYS}/v1|{kind.lower()}s", body, ""


def definitions() -> Iterator[dict[str, Any]]:
    """Those of Gateways and their routes, as far as a policy asks about them."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/gateway-api"}
    for kind in DEFINED:
        plural = f"{kind.lower()}s"
        names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
        yield {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{GATEWAYS}", "annotations": approved},
            "spec": {"group": GATEWAYS, "scope": "Namespaced", "names": names, "versions": [version]},
        }


def define(owner: Caller) -> None:
    """The kinds of Gateways in a tenant's space."""
    for body in definitions():
        made = owner.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
        assert made.status == 201, made.body
        listed = f"/apis/{GATEWAYS}/v1/namespaces/default/{body['spec']['names']['plural']}"
        assert eventually(lambda listed=listed: owner.get(listed).status == 200)


def played(
    caller: Caller, tenant: str, namespace: str, rows: Sequence[Mapping[str, Any]] = TABLE
) -> Iterator[tuple[str, str, Answer]]:
    """Every object of every row, what is expected of it, and the answer."""
    for row in rows:
        tenant_policies_change(actor=OPERATOR, name=tenant, policies=row.get("policy", {}))
        for place, body, prefix in objects_of(row, tenant):
            base, _, resource = place.partition("|")
            answer = caller.post(f"{base}/namespaces/{namespace}/{resource}", body)
            yield (
                f"{row} as {resource}",
                f"{prefix}{row['refused']}" if row.get("refused") not in (None, "kind") else row.get("refused", ""),
                answer,
            )


def test_every_rule_refuses_and_allows_in_stored_namespaces(tenant: Tenant, door_server: tuple[Server, str]) -> None:
    owner = owner_of(door_server[0], tenant)
    define(owner)
    wrong = [
        (said, answer.body)
        for said, field, answer in played(owner, tenant.name, "default")
        if not (is_refused_at(answer, field) if field else answer.status == 201)
    ]
    assert not wrong


def test_every_rule_refuses_and_allows_at_the_door(door: Door) -> None:
    """What the cluster itself refuses beside is not this policy's."""
    owner = door.person("olga", Role.OWNER)
    wrong = [
        (said, answer.body)
        for said, field, answer in played(owner, door.name, door.place(owner), ON_CLUSTERS)
        if not (is_refused_at(answer, field) if field else OURS not in str(answer.body.get("message", "")))
    ]
    assert not wrong


def test_every_rule_refuses_and_allows_through_kubectl(
    tenant: Tenant, door_server: tuple[Server, str], kubectl: Callable[..., str]
) -> None:
    """As people meet it: what is refused is told with the field, and nothing of it is made."""
    owner = owner_of(door_server[0], tenant)
    define(owner)
    wrong = []
    for row in TABLE:
        tenant_policies_change(actor=OPERATOR, name=tenant.name, policies=row.get("policy", {}))
        said = created(owner, tenant.name, "default", row, kubectl)
        if not is_as_told(row, tenant.name, said):
            wrong.append((row, said))
    assert not wrong


def test_every_rule_refuses_and_allows_through_kubectl_at_the_door(door: Door, kubectl: Callable[..., str]) -> None:
    """The same commands, for a namespace on a cluster, whose own fences learn of the rules a moment later."""
    Tier.objects.update(limit_range=[], quota={"services": "1000"})
    owner = door.person("olga", Role.OWNER)
    namespace, wrong = door.place(owner), []
    for row in ON_CLUSTERS:
        tenant_policies_change(actor=OPERATOR, name=door.name, policies=row.get("policy", {}))
        said = created(owner, door.name, namespace, row, kubectl)
        if FENCED in said and "refused" not in row:
            said = door.until(lambda row=row: without_fence(created(owner, door.name, namespace, row, kubectl)))  # type: ignore[misc]
        # Which volumes and host names are a workspace's is the cluster's to say beside.
        is_allowed = "refused" not in row and not {"claim", "ingress"}.isdisjoint(row) and OURS not in said
        if not is_allowed and not is_as_told(row, door.name, said):
            wrong.append((row, said))
    assert not wrong


def without_fence(said: str) -> str:
    return "" if FENCED in said else said


def created(owner: Caller, tenant: str, namespace: str, row: Mapping[str, Any], kubectl: Callable[..., str]) -> str:
    """What kubectl says when it is to make the objects of a row."""
    bodies = [{**typed(place), **body} for place, body, _ in objects_of(row, tenant)]
    return kubectl(owner, "-n", namespace, "create", "-f", "-", stdin=yaml.safe_dump_all(bodies), check=False)


def is_as_told(row: Mapping[str, Any], tenant: str, said: str) -> bool:
    """Whether kubectl has made all of them, or was refused each at its field."""
    prefixes = [prefix for *_, prefix in objects_of(row, tenant)]
    made, refused = sum(line.endswith(" created") for line in said.splitlines()), said.count(OURS)
    if "refused" not in row:
        return (made, refused) == (len(prefixes), 0)
    fields = [f"{'' if row['refused'] == 'kind' else prefix}{row['refused']}" for prefix in prefixes]
    return (made, refused) == (0, len(prefixes)) and all(field in said for field in fields)


def typed(place: str) -> dict[str, str]:
    """What an object says that is posted there."""
    base, _, resource = place.partition("|")
    group, version = ("", "v1") if base == "/api/v1" else base.removeprefix("/apis/").split("/")
    if group == GATEWAYS:
        return {}
    known = BUILTINS.by_group_resource(group, resource)
    assert known is not None, place
    return {"apiVersion": f"{group}/{version}" if group else version, "kind": known.kind}


def test_the_table_has_every_rule_refusing_and_allowing() -> None:
    """Each also as an empty list, which allows nothing, and, where it may be, as null, which allows anything."""
    missing = []
    for rule in RULES:
        rows = [row for row in TABLE if rule in row.get("policy", {})]
        wanted = {
            "refuses": any("refused" in row for row in rows),
            "allows": any("refused" not in row and row["policy"][rule] for row in rows),
        }
        if rule not in LISTS:
            wanted["allows nothing"] = any("refused" in row and row["policy"][rule] == [] for row in rows)
            wanted["allows anything"] = any("refused" not in row and row["policy"][rule] is None for row in rows)
        missing += [f"{rule} {which}" for which, there in wanted.items() if not there]
    assert not missing


def test_the_table_has_every_kind_that_a_policy_looks_at() -> None:
    """Those that make pods are judged by their pods (``tests/kube/test_policies.py``): some stand for all."""
    refused = {place.partition("|")[2] for row in TABLE if "refused" in row for place, *_ in objects_of(row, "t")}
    plurals = {plural for kind, (_, plural) in KINDS.items() if kind not in TEMPLATES}
    assert plurals | {"pods", "deployments", "cronjobs", "statefulsets"} <= refused
