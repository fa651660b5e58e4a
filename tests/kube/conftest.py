"""The definitions of the served Kubernetes minor, read once."""

from __future__ import annotations

from importlib import resources

import pytest

from kube.kinds.builtins import KUBERNETES_MINOR
from kube.kinds.schemas import Definitions
from kube.kinds.tenantry import with_own_kinds


@pytest.fixture(scope="session")
def definitions() -> Definitions:
    folder = resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"v{KUBERNETES_MINOR}.0-local"
    return with_own_kinds(Definitions.from_json((folder / "_definitions.json").read_bytes()))
