"""When a deleted object is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def finished(body: Mapping[str, Any]) -> bool:
    """Whether a deleted object has nothing left to wait for."""
    metadata = body["metadata"]
    waits = bool(metadata.get("finalizers")) or (
        body.get("kind") == "Namespace" and bool((body.get("spec") or {}).get("finalizers"))
    )
    return bool(metadata.get("deletionTimestamp")) and not waits
