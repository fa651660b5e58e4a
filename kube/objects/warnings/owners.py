"""Owners that are named twice: each is kept once, and the client is told (TS15)."""

from __future__ import annotations

from typing import Any, Final

_TOLD: Final = (
    "API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; "
    "duplicate UID(s) observed"
)


def merge_owners(body: dict[str, Any], *, admitted: bool = False) -> list[str]:
    """Take away the owner references that say what one before them says. Returns what the client is told of it.

    ``admitted`` says that those who change objects have had their turn.
    """
    metadata: Any = body.get("metadata")
    references = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    if not isinstance(references, list) or len(references) < 2:
        return []
    known: set[str] = set()
    kept: list[Any] = []
    repeated: list[str] = []
    for reference in references:
        said = repr(sorted(reference.items())) if isinstance(reference, dict) else ""
        if said and said in known:
            repeated.append(str(reference.get("uid", "")))
        else:
            known.add(said)
            kept.append(reference)
    if not repeated:
        return []
    body["metadata"] = {**metadata, "ownerReferences": kept}
    when = " after mutating admission happens" if admitted else ""
    return [
        f".metadata.ownerReferences contains duplicate entries{when}; {_TOLD}: {', '.join(dict.fromkeys(repeated))}"
    ]
