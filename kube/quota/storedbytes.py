"""How many bytes a tenant's objects may take together, and what is said where there is no room (AD8)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kube.quota import usage
from kube.quota.quantities import Quantity, parse_quantity
from kube.quota.refusals import refusal, tenant_bound
from kube.quota.usage import Quota, QuotaExceeded
from kube.requests.status import Forbidden

SETTING: Final = "stored_mebibytes"
"""Of a tier."""

NAME: Final = "tenantry.io/stored-bytes"
"""What refusals and pages call the amount."""

STEP: Final = "admission/StoredBytes"
RULE: Final = "stored bytes of the tenant"

MEBIBYTES_MAX: Final = 1 << 24
"""Sixteen tebibytes: no database of one server is larger."""

_REMEDY: Final = (
    "; delete objects or make them smaller, or ask an operator for another tier or a larger "
    f"{SETTING} of the tier (TENANT_STORED_MEBIBYTES where no tier says one)"
)


def bound(said: Iterable[int | None], default: int) -> int:
    """The bytes that a tenant may take whose namespaces are of tiers that say this, in mebibytes; 0 is no bound.

    The most generous counts; for a tier that says nothing, and for a tenant without any, ``default`` does.
    """
    found = [default if each is None else each for each in said] or [default]
    return max(found) << 20 if all(found) else 0


def read_mebibytes(value: object) -> int | None:
    """A tier's setting; ``None`` where it says nothing. Raises ``ValueError`` with what it must be."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MEBIBYTES_MAX:
        raise ValueError(f"must be a whole number from 0, for no bound, to {MEBIBYTES_MAX}")
    return value


def amount(size: int) -> Quantity:
    """Bytes as an amount of a quota."""
    return parse_quantity(str(size))


def full(limit: int) -> str:
    """What is said where the product had something to write for a tenant and there is no room; the same until that changes."""
    return f"the objects of the tenant may take no more bytes together ({NAME}={limit}){_REMEDY}"


def no_room(group: str, resource: str, name: str, asked: int, used: int, *, limit: int) -> Forbidden:
    """The 403 for an object that grows by ``asked`` bytes where ``used`` of ``limit`` are taken."""
    hard, taken, wanted = ({NAME: amount(size)} for size in (limit, used, asked))
    try:
        usage.check(Quota(name=RULE.replace(" ", "-"), hard=hard), wanted, taken)
    except QuotaExceeded as error:
        said = refusal(error, group, resource, name, rule=RULE, bounds=[tenant_bound(hard, taken)])
        return Forbidden(
            f"{said.message}{_REMEDY}", group=group, kind=resource, name=name, causes=said.causes, rule=RULE
        )
    raise ValueError("there is room")
