"""Tenants that objects of others name, and which tenant was meant: a name outlives its tenant, consent does not.

A ``Policy`` and a binding of RBAC name a tenant that they let in. The server writes into the object, as an annotation
that nobody else can set, a digest of the UID of the tenant that bore the name when it was written there. A tenant that is
given the name later does not fit it. A digest says nothing about whether there is such a tenant: where there is none it is random.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from kube.authentication.subjects import BINDING_PREFIX
from kube.authorization.abac import InvalidPolicy, tenant_digest, tenant_meant
from kube.requests.logicalclusters import tenant_of
from kube.requests.names import SYSTEM_TENANT

TENANT_DIGESTS: Final = "tenantry.io/tenant-seals"
"""The annotation: the ``tenant_digest`` of each tenant that the object names, as a JSON object."""

_GROUP: Final = re.compile(rf"(?:{re.escape(BINDING_PREFIX)})?system:cluster:root:([^:]+)")

Body = Mapping[str, Any]


def tenant_of_group(group: str, cluster: str) -> str | None:
    """The other tenant whose users a subject of RBAC in this logical cluster means, or ``None``."""
    found = _GROUP.fullmatch(group)
    return found[1] if found and found[1] not in (tenant_of(cluster), SYSTEM_TENANT) else None


def tenants_named(body: Body, cluster: str) -> frozenset[str]:
    """The tenants that a Policy or a binding of this logical cluster lets in from elsewhere."""
    return frozenset(_named(body, cluster))


def holder_of(body: Body) -> str:
    """The uid of the object that names tenants."""
    return str(_mapping(body.get("metadata")).get("uid") or "")


def digest_of(body: Body, tenant: str) -> str:
    """The digest of a tenant in an object; empty, which nobody fits, where none was ever written."""
    return str(_digests(body).get(tenant) or "")


def refers_to(body: Body, tenant: str, uid: str | None) -> bool:
    """Whether the tenant with this uid is the one that the object meant by the name."""
    return uid is not None and digest_of(body, tenant) == tenant_digest(holder_of(body), uid)


def digests_annotation(body: Body, old: Body | None, cluster: str, uids: Mapping[str, str]) -> str:
    """The annotation of a new or changed object: who was named before stays who was meant; empty for nobody.

    ``uids`` are those of the tenants by name, random ones for tenants that are not there.
    """
    before = _digests(old) if old is not None else {}
    holder = holder_of(body)
    kept = tenants_named(old, cluster) if old is not None else frozenset()
    found = {
        tenant: str(before.get(tenant) or "") if tenant in kept else tenant_digest(holder, uids[tenant])
        for tenant in sorted(tenants_named(body, cluster))
    }
    return orjson.dumps(found).decode() if found else ""


def _named(body: Body, cluster: str) -> Iterator[str]:
    if body.get("kind") == "Policy":
        tenant = _mapping(body.get("spec")).get("tenant")
        with contextlib.suppress(InvalidPolicy):
            if isinstance(tenant, str) and tenant and tenant_meant(tenant) not in ("*", SYSTEM_TENANT):
                yield tenant_meant(tenant)
        return
    subjects = body.get("subjects")
    for subject in subjects if isinstance(subjects, list) else ():
        name = subject.get("name") if isinstance(subject, Mapping) and subject.get("kind") == "Group" else None
        tenant = tenant_of_group(name, cluster) if isinstance(name, str) else None
        if tenant is not None:
            yield tenant


def _digests(body: Body) -> Mapping[str, Any]:
    text = _mapping(_mapping(body.get("metadata")).get("annotations")).get(TENANT_DIGESTS)
    try:
        return _mapping(orjson.loads(text)) if isinstance(text, str) else {}
    except orjson.JSONDecodeError:
        return {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
