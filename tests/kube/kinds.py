"""The structures of built-in kinds, for tests that patch and apply them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import kubernetes_validate

from kube.kinds.mergestrategies import Structure, structure_of
from kube.kinds.schemas import Definitions

_FOLDER = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"


@cache
def definitions() -> Definitions:
    return Definitions.from_json((_FOLDER / "v1.36.0-local" / "_definitions.json").read_bytes())


def structure(group: str, version: str, kind: str) -> Structure:
    schema = definitions().schema(group, version, kind)
    assert schema is not None
    return structure_of(schema)
