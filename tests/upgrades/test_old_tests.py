"""The tests of the release before, as they were then, on the tables of this one: nothing that its processes rely on is gone.

Those that read and write each of its tables, by the engine of the store, over the API server, by the services and by the
portal. Its own code is tested, and the database has this tree's migrations.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.databases import ROOT, TEMPLATE, run, template

pytestmark = pytest.mark.timeout(3600)

BESIDE = Path(__file__).parent / "beside"

PARTS = {
    "store": [
        "store/test_commit.py",
        "store/test_engine.py",
        "store/test_lifecycle.py",
        "store/test_synchronous.py",
    ],
    "API server": [
        "gateway/test_objects.py",
    ],
    "services": [
        "access/test_portal_credentials.py",
        "audit/test_requests.py",
        "tenants/test_tenants.py",
        "tenants/test_workspaces.py",
    ],
    "portal": [
        "portal/operating",
        "portal/test_api.py",
        "portal/test_invitations.py",
        "portal/test_logins.py",
        "portal/test_notices.py",
        "portal/test_recordings.py",
        "portal/test_requests.py",
        "portal/test_signin_steps.py",
    ],
}


@pytest.mark.parametrize("part", PARTS)
def test_the_release_before_passes_its_own_tests_on_the_tables_of_this_one(
    part: str, release_before: Path, tmp_path: Path
) -> None:
    """A migration that takes away, or narrows, what it uses fails here.

    It fails each time. What a busy machine spoils in tests that are no longer ours to mend passes when it is tried again.
    """
    name = f"release_before_{uuid4().hex[:12]}"
    # No variable of this run's own, and none that lets its tests find a cluster: they are of its code and the database.
    ours = ("PYTEST_", "KUBEBUILDER_", "TENANTRY_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    environment |= {TEMPLATE: name, "PYTHONPATH": str(BESIDE), "NEWER_TREE": str(ROOT)}
    run("CREATE DATABASE {} TEMPLATE {}", name, template())
    try:
        for again in ((), ("--last-failed",)):
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "pytest", "-n", "0", "-p", "newertables", "-o", f"cache_dir={tmp_path}"),
                    *("-o", "timeout=900"),  # a busy machine takes its time
                    *(*again, *(f"tests/{path}" for path in PARTS[part])),
                ],
                cwd=release_before,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != pytest.ExitCode.TESTS_FAILED:
                break
    finally:
        run("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)
    assert done.returncode == 0, (done.stdout + done.stderr)[-20_000:]
