"""Which worker of pytest-xdist gets what: a file as a whole, and files that share costly servers together."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

TOGETHER = {
    "the product": ("tests/story/",),
    "servers that authorize in every way": ("tests/access/authorization/",),
    "an API server with two processes": (
        "tests/conformance/test_equality.py",
        "tests/conformance/test_own_ways.py",
        "tests/gateway/test_isolation.py",
        "tests/gateway/test_two_processes.py",
    ),
    "a Keystone": ("tests/access/authentication/test_keystone.py", "tests/gateway/test_signin.py"),
    "two workspaces behind fences": ("tests/tenants/fences/",),
    "the clusters": (
        "tests/access/test_credentials.py",
        "tests/tenants/test_clusterchecks.py",
        "tests/tenants/test_drift.py",
        "tests/tenants/test_embedded.py",
        "tests/tenants/test_gatewaycredential.py",
        "tests/tenants/test_provisioning.py",
        "tests/tenants/test_workers.py",
    ),
}
"""What is started once because whoever needs it is in one place: beginnings of the files' paths."""


class Scheduling(LoadFileScheduling):
    """As ``--dist loadfile``, with the files of ``TOGETHER`` as one, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return next(
            (name for name, paths in TOGETHER.items() if nodeid.startswith(paths)), super()._split_scope(nodeid)
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    """However the workers were asked to share, so that ``-n`` alone will do."""
    config.option.loadscopereorder = False
    return Scheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Pure functions last: their files are small, so that all workers end at the same time."""
    items.sort(key=lambda item: "tests/kube/" in str(item.path))


def pytest_collection_finish() -> None:
    """What there is now stays to the end: the garbage collector need not look at it again and again."""
    gc.freeze()
