"""Policies that let users of other tenants in (AZ7): understood whole, or refused."""

from __future__ import annotations

from typing import Any

from kube.authorization import abac
from kube.requests.fielderrors import required
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import Cause


def policy_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a Policy."""
    spec = body.get("spec") or {}
    causes = [] if spec.get("tenant") else [required("spec.tenant", "names the tenant that is let in, or * for any")]
    if not spec.get("resource") and not spec.get("nonResourcePath"):
        causes.append(required("spec.resource", "names what is opened, or nonResourcePath does"))
    if causes:
        return causes
    try:
        # Whose space it is says nothing about whether it can be understood.
        abac.policy_of(body, space=SYSTEM_TENANT)
    except abac.InvalidPolicy as error:
        return [Cause("FieldValueInvalid", f"Invalid value: {error}", "spec")]
    return []
