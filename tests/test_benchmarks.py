"""Every benchmark begins: what it imports is there, whatever its figures are."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.__main__ import FOR_ITSELF, NAMES
from tests.requirements import ROOT


@pytest.mark.parametrize("name", [*NAMES, *FOR_ITSELF, "compare"])
def test_a_benchmark_begins(name: str) -> None:
    """Each in a process of its own, as it is run."""
    code = f"import importlib; assert callable(importlib.import_module('bench.{name}').main)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
