"""Rules about what the objects of tenants may be: checked, kept, and told to the API servers (AD4, AD5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db import transaction

from audit.actions import Action
from audit.recorder import Actor
from kube.policies.policy import as_document, read_rules
from kube.requests.fielderrors import invalid_object
from tenants.models import Status, Tenant
from tenants.policies import tenant_policies_show
from tenants.rights import require_operator, tenant_locked
from tenants.services import desiredstate

_FENCED: Final = ("priority_classes", "node_names", "node_labels", "affinity_namespaces", "tolerations")
"""The rules that the clusters' own fences are told of (``tenants/manifests/fences.yaml``)."""


def checked_policies(document: Mapping[str, Any], *, kind: str, name: str) -> dict[str, Any]:
    """Rules, if they are such. Raises ``Invalid`` with a cause for each that is not."""
    rules, causes = read_rules(document, "policies")
    if causes:
        raise invalid_object("", kind, name, causes)
    return as_document(rules)


def reach_clusters(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a change of rules is one that the clusters' fences are to be told of."""
    return any(before.get(rule, ...) != after.get(rule, ...) for rule in _FENCED)


@transaction.atomic
def tenant_policies_change(*, actor: Actor, name: str, policies: Mapping[str, Any]) -> Tenant:
    """Rules of a tenant in place of those of its tiers, from the commit on. Operators only.

    What is there already stays as it is. Raises ``NotFound``, ``Forbidden``, ``Invalid``.
    """
    require_operator(actor)
    checked = checked_policies(policies, kind="Tenant", name=name)
    tenant = tenant_locked(name)
    before, tenant.policies = tenant.policies, checked
    tenant.save(update_fields=["policies"])
    if reach_clusters(before, checked):
        for workspace in tenant.workspaces.filter(status=Status.ACTIVE).select_for_update(no_key=True).order_by("id"):
            desiredstate.request_ready(workspace, actor)
        transaction.on_commit(desiredstate.enqueue_sweep)
    detail = {"before": before, "after": checked}
    actor.record(Action.TENANT_POLICIES_CHANGED, chain=name, target=f"tenants/{name}", detail=detail)
    tenant_policies_show(tenant)
    return tenant
