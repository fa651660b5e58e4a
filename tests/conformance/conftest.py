"""What the comparisons with a real kube-apiserver share."""

from __future__ import annotations

import pytest

from tests.speaking import Speaker


@pytest.fixture(scope="session")
def server(bare_kube_apiserver: Speaker) -> Speaker:
    """The real kube-apiserver that the library's answers are compared with."""
    return bare_kube_apiserver
