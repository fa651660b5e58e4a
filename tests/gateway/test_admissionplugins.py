"""Operators choose which of Kubernetes' admission plug-ins run (AD7)."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from access.admission.choice import ABSENT, FIXED, OPTIONAL, check
from tests.gateway.callers import eventually
from tests.gateway.conftest import Server, another

CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}}
LIMITS = {"spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]}}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--enable-admission-plugins=Nope"], "--enable-admission-plugins: Nope is unknown"),
        (["--enable-admission-plugins=AlwaysPullImages"], "AlwaysPullImages does not run here"),
        (["--disable-admission-plugins=LimitRanger,Nope"], "--disable-admission-plugins: Nope is unknown"),
        (["--disable-admission-plugins=NamespaceLifecycle"], "NamespaceLifecycle cannot be switched off"),
        (["--enable-admission-plugins=LimitRanger", "--disable-admission-plugins=LimitRanger"], "LimitRanger is in"),
    ],
)
def test_names_that_mean_nothing_stop_the_start(flags: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("apiserver", *flags)


def test_whoever_switches_off_what_never_runs_has_what_was_wanted() -> None:
    check((), sorted(OPTIONAL | ABSENT))
    assert not ABSENT & (OPTIONAL | FIXED)


def test_what_is_switched_off_does_not_run(server: Server, tmp_path: Path) -> None:
    path = "/api/v1/namespaces/default"
    with another(server, tmp_path / "data", "--disable-admission-plugins=LimitRanger") as second:
        made = second.admin.post(f"{path}/limitranges", {"metadata": {"name": "small"}, **LIMITS})
        assert made.status == 201
        claim = {"metadata": {"name": "large"}, **CLAIM}
        try:
            assert second.admin.post(f"{path}/persistentvolumeclaims", claim, dryRun="All").status == 201
            # As in kube-apiserver, each process knows of the limits when it has followed.
            assert eventually(
                lambda: server.admin.post(f"{path}/persistentvolumeclaims", claim, dryRun="All").reason == "Forbidden"
            )
        finally:
            second.admin.delete(f"{path}/limitranges/small")
