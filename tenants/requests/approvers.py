"""Who decides what people ask for: the policy of an installation, by kind (GW25).

Read by the settings, so nothing here needs models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

OWNER: Final = "owner"
OPERATOR: Final = "operator"
TWO: Final = "two"

DEFAULTS: Final = {
    "tenant": OPERATOR,
    "tier": OPERATOR,
    "quota": OPERATOR,
    "role": OWNER,
    "break-glass": OPERATOR,
    "leave": OPERATOR,
}
OWNERS_MAY: Final = frozenset({"role", "break-glass"})
"""What owners of a tenant have the right to do themselves; of the rest an approval of theirs could not be carried out."""


def approvers_read(values: Any) -> dict[str, str]:
    """The defaults with ``values`` over them. Raises ``ValueError`` with what to change."""
    if not isinstance(values, Mapping):
        raise ValueError('an object is needed, such as {"role": "operator"}')  # noqa: TRY004 (bad input, no defect)
    for kind, approvers in values.items():
        if kind not in DEFAULTS:
            raise ValueError(f"there is no kind {str(kind)[:40]!r}; there are {', '.join(DEFAULTS)}")
        if approvers not in {OWNER, OPERATOR, TWO}:
            raise ValueError(f"{kind}: {str(approvers)[:40]!r} is none of {OWNER}, {OPERATOR}, {TWO}")
        if approvers == OWNER and kind not in OWNERS_MAY:
            raise ValueError(f"{kind}: owners have no right to do this; say {OPERATOR} or {TWO}")
    return {**DEFAULTS, **values}
