"""The wall between the tenants of one cluster, for whoever speaks to it directly (GW17).

A tenant's people and the service accounts of its namespaces reach its namespaces on that cluster, what is the cluster's own
only as far as an operator opens it, and discovery.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kube.authentication.identity import SERVICE_ACCOUNT_PREFIX
from kube.authorization.decisions import Decision, Verdict
from kube.kinds.openings import Opening
from kube.requests.requestinfo import RequestInfo
from kube.webhooks.reviews import Subject

STEP: Final = "cluster-isolation"

PERSON: Final = "tenantry:"
"""What the names of people begin with on clusters, where somebody else may be known by the same e-mail address."""

_PLATFORM: Final = frozenset({"tenantry-gateway", "system:kube-controller-manager"})
_PLATFORM_GROUPS: Final = frozenset({"system:masters", "system:serviceaccounts:kube-system"})
_DISCOVERY: Final = ("/api", "/apis", "/healthz", "/livez", "/openapi", "/readyz", "/version")
_READS: Final = frozenset({"get", "list", "watch"})
_ABOUT_ONESELF: Final = frozenset(
    {
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    }
)
_LEFT: Final = Decision(Verdict.NO_OPINION, STEP, "whoever is known may ask this")
_OPENED: Final = Decision(Verdict.ALLOW, STEP, "an operator has opened it to the tenants of the cluster")
_CLOSED: Final = Decision(Verdict.DENY, STEP, "what is the cluster's own is not opened to tenants")
_PATH: Final = Decision(Verdict.DENY, STEP, "of the server itself tenants see discovery alone")


def is_platform(subject: Subject) -> bool:
    """Whether this is the cluster's own: its masters and controllers, and the gateway, as ``fences.yaml`` knows them."""
    return subject.name in _PLATFORM or not _PLATFORM_GROUPS.isdisjoint(subject.groups)


def account_namespace(name: str) -> str:
    """The namespace of a service account of this name, empty for any other user."""
    return name[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")[0] if name.startswith(SERVICE_ACCOUNT_PREFIX) else ""


def at_the_wall(tenant: str, asked: RequestInfo, owner: str | None, openings: Iterable[Opening]) -> Decision | None:
    """What the wall says of a request of somebody of ``tenant``; ``None`` inside of its own namespaces.

    ``owner`` is the tenant whose the asked namespace is on the cluster, ``None`` where it is nobody's.
    """
    if not asked.is_resource:
        open_ = asked.verb in ("get", "head") and any(
            asked.path == path or asked.path.startswith(f"{path}/") for path in _DISCOVERY
        )
        return _LEFT if open_ else _PATH
    if (asked.group, asked.resource) in _ABOUT_ONESELF:
        return _LEFT
    if asked.namespace:
        if owner == tenant:
            return None
        return Decision(
            Verdict.DENY, STEP, f'the namespace "{asked.namespace}" is none of the tenant\'s on this cluster'
        )
    if asked.verb in _READS and not asked.subresource and any(_opens(opening, asked) for opening in openings):
        return _OPENED
    return _CLOSED


def _opens(opening: Opening, asked: RequestInfo) -> bool:
    """Whether everything that is asked for is opened; what a label opens can only be told where the object is known."""
    if opening.place != (asked.group, asked.resource) or opening.selector is not None:
        return False
    return not opening.name or (asked.verb == "get" and opening.name == asked.name)
