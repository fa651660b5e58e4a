"""What the image is made of is said, and said of the image alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from tests.deploy.rendering import ROOT


@pytest.mark.skipif(shutil.which("make") is None, reason="make is missing")
def test_bill_of_materials_lists_every_pinned_package_of_the_image_with_its_hashes() -> None:
    subprocess.run(["make", "-o", ".venv/.development", "sbom"], cwd=ROOT, check=True, capture_output=True)
    bill = json.loads((ROOT / "build" / "sbom.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "tenantry")
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    removed = re.search(r"uv pip uninstall .* (\S+) (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert removed is not None
    for name in removed.groups():
        del pinned[name]
    assert {each["name"]: each["version"] for each in bill["components"]} == pinned
    assert all(each["externalReferences"][0]["hashes"] for each in bill["components"])


def test_last_stage_of_the_image_installs_nothing_and_runs_as_nobody() -> None:
    text = (ROOT / "Dockerfile").read_text()
    last = text.rpartition("\nFROM ")[2]
    assert not re.search(r"apt-get|pip install|gcc", last)
    assert re.search(r"pip uninstall .*pip", last)
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)


def test_what_git_does_not_keep_gets_into_no_image() -> None:
    """Neither what tools leave in a working tree, nor the data of the quickstart."""
    left_out = (ROOT / ".dockerignore").read_text().split()
    for line in (ROOT / ".gitignore").read_text().split():
        name = line.strip("/")
        assert (name if "/" in line.removesuffix("/") else f"**/{name}") in left_out, line
