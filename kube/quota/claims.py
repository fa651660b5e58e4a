"""What objects on clusters take of a tenant's quota, claimed before they are there and settled by what is (AD1, AD2, GW17).

A claim is made when a cluster asks whether an object may be written, and holds whatever becomes of the question: whether the
cluster went on to write it, nobody says. A look at the cluster settles it. What was seen is claimed as it is; what was not
seen goes, unless the answer is so new that the object may still come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kube.quota.podresources import Amounts, amounts
from kube.quota.quantities import Quantity
from kube.quota.tenantquotas import GROUP, VERSION
from kube.quota.usage import NONE

QUOTA_CLAIMS: Final = (GROUP, "quotaclaims")
"""Where they are kept, in the tenant's space. No API serves them."""

PENDING_SECONDS: Final = 120.0
"""How long after the answer an object may still be written: a kube-apiserver ends a request after a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One object's: of which namespace and resource, and what it takes.

    ``until`` is the moment (Unix seconds) up to which the object may come to be, 0 once it was seen. ``ending`` is set when
    a cluster has asked whether it may be deleted: it is worth a look.
    """

    namespace: str
    group: str
    plural: str
    used: Amounts
    until: float = 0.0
    ending: bool = False

    def as_body(self, uid: str) -> dict[str, Any]:
        """The object that is kept."""
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "QuotaClaim",
            "metadata": {"name": uid, "uid": uid},
            "spec": {"namespace": self.namespace, "group": self.group, "resource": self.plural},
            "status": {
                "used": {name: str(amount) for name, amount in sorted(self.used.items())},
                "until": self.until,
                "ending": self.ending,
            },
        }


def claim_from(body: Mapping[str, Any]) -> Claim:
    """Read what ``as_body`` has written."""
    spec, status = body["spec"], body["status"]
    return Claim(
        namespace=spec["namespace"],
        group=spec["group"],
        plural=spec["resource"],
        used=amounts(status["used"]),
        until=status["until"],
        ending=status["ending"],
    )


def raised(before: Claim | None, wanted: Claim) -> Claim | None:
    """The claim for a write that is admitted, ``None`` where what is claimed covers it.

    It never falls: the write may not come, and the object be what it was.
    """
    if before is None:
        return wanted
    used = _most(before.used, wanted.used)
    return None if used == dict(before.used) else replace(before, used=used, until=wanted.until)


def settled(claims: Mapping[str, Claim], seen: Mapping[str, Claim], *, asked_at: float) -> dict[str, Claim | None]:
    """What has to change of the claims of one namespace and resource after a look, by UID; ``None`` for those that end.

    ``seen`` is everything that was there at some moment after ``asked_at`` (Unix seconds).
    """
    changes: dict[str, Claim | None] = {}
    for uid, claim in claims.items():
        found = seen.get(uid)
        pending = asked_at < claim.until
        if found is None:
            if not pending:
                changes[uid] = None
            elif claim.ending:
                changes[uid] = replace(claim, ending=False)
        elif pending and _most(found.used, claim.used) != dict(found.used):
            # It was seen as it was before a change that was admitted meanwhile.
            if claim.ending:
                changes[uid] = replace(claim, ending=False)
        elif found != claim:
            changes[uid] = found
    changes.update((uid, found) for uid, found in seen.items() if uid not in claims and found.used)
    return changes


def difference(before: Claim | None, after: Claim | None) -> dict[str, Quantity]:
    """What is used more, and, below zero, less."""
    new, old = (claim.used if claim is not None else {} for claim in (after, before))
    change = {name: new.get(name, NONE) - old.get(name, NONE) for name in {**new, **old}}
    return {name: amount for name, amount in change.items() if amount.nanos}


def _most(left: Amounts, right: Amounts) -> dict[str, Quantity]:
    return {name: max(left.get(name, NONE), right.get(name, NONE)) for name in {**left, **right}}
