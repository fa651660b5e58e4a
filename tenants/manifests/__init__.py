"""Manifests as data: the roles of workspaces, the gateway's own role, and the fences that keep both small (GW10)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import yaml


@cache
def load(file: str) -> tuple[dict[str, Any], ...]:
    """Every document of a manifest of this folder; not to be changed."""
    text = (Path(__file__).parent / file).read_text()
    return tuple(yaml.safe_load_all(text))
