"""What a password at the API server is good for, and how often it is guessed (API-34, CT-07)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from access.passwordattempts import ADDRESS, KNOWN
from tests.gateway.callers import Answer, Caller, config_map
from tests.gateway.conftest import Server, running, tenant_named

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def house(new_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with passwords: of two owners of one tenant."""
    folder = tmp_path_factory.mktemp("passwords")
    (folder / "users.csv").touch(mode=0o600)
    (folder / "users.csv").write_text("right,bert,b1,tenantry:owner,,pages\nright too,rosa,r1,tenantry:owner,,pages\n")
    with running(folder / "data", new_database, f"--basic-auth-file={folder}/users.csv") as server:
        tenant_named(server, "pages")
        yield server


def shown(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def asked(house: Server, user: str, password: str) -> Answer:
    return house.nobody.get(MAPS, headers=shown(user, password))


CREDENTIALS: dict[str, Callable[[Server], tuple[Caller, dict[str, str]]]] = {
    "x509": lambda house: (house.user("pages", "carla", "tenantry:owner"), {}),
    "basic-file": lambda house: (house.nobody, shown("rosa", "right too")),
}
WRITES: dict[str, tuple[str, str, Any]] = {
    "create": ("POST", MAPS, config_map("planted")),
    "create of rights": ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {"metadata": {"name": "x"}}),
    "update": ("PUT", f"{MAPS}/there", config_map("there", {"a": "2"})),
    "patch": ("PATCH", f"{MAPS}/there", {"data": {"a": "2"}}),
    "delete": ("DELETE", f"{MAPS}/there", None),
    "delete of all": ("DELETE", MAPS, None),
    "review": ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
}


@pytest.mark.parametrize("origin", ["https://evil.test", "null", "http://[", "https://evil.test/{}"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("credential", CREDENTIALS)
def test_a_page_of_another_host_changes_nothing_by_what_a_browser_shows_unasked(
    house: Server, credential: str, write: str, origin: str
) -> None:
    """CT-07: a body without a type needs no leave of the host that it is sent to."""
    caller, credentials = CREDENTIALS[credential](house)
    method, path, body = WRITES[write]
    refused = caller.call(method, path, body, {**credentials, "Origin": origin.format(caller.host)})
    assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
    assert "a page of another host" in refused.body["message"]


@pytest.mark.parametrize("credential", CREDENTIALS)
def test_pages_of_this_host_and_programs_do(house: Server, credential: str) -> None:
    caller, credentials = CREDENTIALS[credential](house)
    for headers in ({}, {"Origin": f"https://{caller.host}"}):
        made = caller.post(MAPS, config_map(f"m{uuid4().hex[:8]}"), headers={**credentials, **headers})
        assert made.status == 201, made.body


def guesses(house: Server, *users: str) -> tuple[int, Answer]:
    """How often somebody is told that a password is wrong, and what is said instead then."""
    for number in range(10_000):
        answer = asked(house, users[number % len(users)], f"wrong {number}")
        if answer.status != 401:
            return number, answer
    raise AssertionError("without end")


def test_guessing_is_slowed_and_locks_out_nobody_who_was_right_before(house: Server) -> None:
    """API-34: refused before anything is compared."""
    assert asked(house, "bert", "right").status == 200
    told, refused = guesses(house, "tom", "nobody")
    # A slow machine takes so long that one more is given back.
    assert told >= ADDRESS.burst
    assert (refused.status, refused.body["reason"]) == (429, "TooManyRequests")
    assert 0 < int(refused.headers["retry-after"]) <= 1 / ADDRESS.qps
    assert "too many wrong passwords" in refused.body["message"]
    # Who was right from here is counted alone, and so is what is guessed of that user from here.
    assert asked(house, "bert", "right").status == 200
    told, refused = guesses(house, "bert")
    assert (told >= KNOWN.burst, refused.status) == (True, 429)
    # Certificates and tokens are not guessed.
    assert house.user("pages", "carla", "tenantry:owner").get(MAPS).status == 200
    assert house.bearer("wrong").get(MAPS).status == 401
