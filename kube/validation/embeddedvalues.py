"""JSON in the texts of an object: its values are nowhere in the object's own bytes that can be counted (DOS-03)."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from kube.requests.decoding import weight
from kube.validation.configuration import JSON_KEYS


def embedded_values(body: dict[str, Any]) -> int:
    """About how many values the texts of a built-in object hold at most that are read as JSON; 0 for small ones."""
    return sum(map(weight, _texts(body)))


def _texts(body: dict[str, Any]) -> Iterator[bytes]:
    kind = body.get("kind")
    if kind == "Secret":
        text = (body.get("data") or {}).get(JSON_KEYS.get(body.get("type", ""), ""))
        yield base64.b64decode(text or "")
    elif kind == "HorizontalPodAutoscaler" and body.get("apiVersion") == "autoscaling/v1":
        # What this version has no words for, see ``kube.objects.conversion``.
        yield from map(str.encode, (body.get("metadata", {}).get("annotations") or {}).values())
