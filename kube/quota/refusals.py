"""A refusal by a quota in words: what was asked for, and how much is used of how much in the namespace and in the tenant (AD2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kube.quota.podresources import Amounts, amounts
from kube.quota.quantities import InvalidQuantity
from kube.quota.usage import NONE, QuotaExceeded, counts, read_quota
from kube.requests.status import Cause, Forbidden, forbidden_object

REASON: Final = "QuotaExceeded"
"""Of the causes."""

_NAMESPACE: Final = "in the namespace"
_TENANT: Final = "in the tenant"
_SAID: Final = re.compile(r"exceeded quota: [^\s,]+, requested: (\S+), used: (\S+), limited: (\S+)")


@dataclass(frozen=True, slots=True)
class Bound:
    """A quota that holds for what was refused: ``where`` in words, and by resource name what may be and what is."""

    where: str
    hard: Amounts
    used: Amounts

    @property
    def of_tenant(self) -> bool:
        """Whether it is the tenant's."""
        return self.where == _TENANT


def namespace_bounds(
    quotas: Iterable[Mapping[str, Any]], group: str, resource: str, item: Mapping[str, Any]
) -> list[Bound]:
    """The ResourceQuotas of a namespace that count an object. What is none, as a cluster may send it, says nothing."""
    found = []
    for body in quotas:
        try:
            quota, status = read_quota(body), body.get("status") or {}
            if counts(quota, group, resource, item):
                found.append(Bound(_NAMESPACE, quota.hard, amounts(status.get("used"))))
        except (InvalidQuantity, KeyError, TypeError, AttributeError):
            continue
    return found


def tenant_bound(hard: Amounts, used: Amounts) -> Bound:
    """The quota of the tenant."""
    return Bound(_TENANT, hard, used)


def refusal(
    error: QuotaExceeded, group: str, resource: str, name: str, *, rule: str, bounds: Sequence[Bound]
) -> Forbidden:
    """The 403 for an object that a quota does not admit: one message with all amounts, and a cause for each of them.

    ``rule`` is the quota that refuses, ``bounds`` are all that count the object, in the order in which they are told.
    Where the tenant's quota says nothing of what was asked for, the words are Kubernetes' alone, who has no causes.
    """
    tenants = any(bound.where == _TENANT and error.requested.keys() & bound.hard.keys() for bound in bounds)
    causes = _causes(error.requested, bounds) if tenants else []
    said = "".join(f"; {cause.field}: {cause.message}" for cause in causes)
    return forbidden_object(group, resource, name, f"{error}{said}", causes=causes, rule=rule)


def read_exceeded(message: str) -> tuple[QuotaExceeded, Bound] | None:
    """What a kube-apiserver says of a ResourceQuota that is full; ``None`` for another message."""
    found = _SAID.search(message)
    if found is None:
        return None
    try:
        requested, used, limited = (_listed(text) for text in found.groups())
    except InvalidQuantity:
        return None
    return QuotaExceeded(found.group(), requested=requested), Bound(_NAMESPACE, limited, used)


def _listed(text: str) -> Amounts:
    pairs = (pair.partition("=") for pair in text.split(","))
    return amounts({name: amount for name, _, amount in pairs})


def _causes(requested: Amounts, bounds: Sequence[Bound]) -> list[Cause]:
    causes = []
    for name in sorted(requested):
        said, word = [], " used"
        for where in dict.fromkeys(bound.where for bound in bounds):
            holding = [bound for bound in bounds if bound.where == where and name in bound.hard]
            if holding:
                # The one with the least room is the one that decides.
                least = min(holding, key=lambda bound: (bound.hard[name] - bound.used.get(name, NONE)).nanos)
                said.append(f"{least.used.get(name, NONE)} of {least.hard[name]}{word} {where}")
                word = ""
        causes.append(Cause(REASON, ", ".join([f"asked {requested[name]}", *said]), name))
    return causes
