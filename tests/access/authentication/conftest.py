"""One Keystone for all tests that need it."""

import pytest

from tests.access.authentication.keystones import KeystoneServer, interpreter


@pytest.fixture(scope="session")
def keystone_server(tmp_path_factory):
    """A running Keystone, or ``None`` where it is not installed."""
    python = interpreter()
    if python is None:
        yield None
        return
    server = KeystoneServer(python, tmp_path_factory.mktemp("keystone") / "data")
    yield server
    server.stop()
