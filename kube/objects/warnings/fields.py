"""What kube-apiserver warns of in fields that several kinds have (TS15)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kube.quota.quantities import InvalidQuantity, parse_quantity

Body = dict[str, Any]

_LABELS: Final = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
}


def old_label(key: str) -> str:
    """What is to be used instead of a node's label, or nothing."""
    version, new = _LABELS.get(key, ("", ""))
    return f'deprecated since {version}; use "{new}" instead' if version else ""


def terms(selectors: Sequence[Body], path: str, *, numbered: bool = True) -> Iterator[str]:
    """Old labels in terms that choose nodes; ``path`` is that of their list, or of the only one."""
    for index, term in enumerate(selectors):
        here = f"{path}[{index}]" if numbered else path
        for position, wanted in enumerate(term.get("matchExpressions", ())):
            key = wanted.get("key", "")
            if words := old_label(key):
                yield f"{here}.matchExpressions[{position}].key: {key} is {words}"


def fraction(amounts: Body, name: str, path: str) -> Iterator[str]:
    """Bytes that are no whole number."""
    try:
        quantity = parse_quantity(amounts[name]) if name in amounts else None
    except InvalidQuantity:
        return
    if quantity is not None and quantity.nanos % 10**9:
        yield f'{path}[{name}]: fractional byte value "{quantity}" is invalid, must be an integer'


def claim_amounts(spec: Body, path: str) -> Iterator[str]:
    """Fractions in the spec of a claim."""
    for kind in ("requests", "limits"):
        yield from fraction(spec.get("resources", {}).get(kind, {}), "storage", f"{path}.resources.{kind}")


def address(text: str, path: str) -> Iterator[str]:
    """An IPv6 address that is not written as RFC 5952 has it."""
    try:
        found = ipaddress.IPv6Address(text)
    except ValueError:
        return
    if str(found) != text:
        yield f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{found}")'


def network(text: str, path: str) -> Iterator[str]:
    """An IPv6 network that is not written as RFC 5952 has it."""
    try:
        found = ipaddress.IPv6Network(text)
    except ValueError:
        return
    if str(found) != text:
        yield f'{path}: IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{found}")'
