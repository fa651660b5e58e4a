"""How wrong passwords are counted (API-34)."""

from __future__ import annotations

import pytest

from access import passwordattempts
from access.passwordattempts import ADDRESS, USER, PasswordAttempts
from kube.requests.status import TooManyRequests


def is_full(counted: PasswordAttempts, address: str, user: bytes, now: float = 0.0) -> bool:
    try:
        counted.require_room(address, user, now)
    except TooManyRequests as error:
        assert error.retry_after
        return True
    return False


def guess(counted: PasswordAttempts, address: str, user: bytes, now: float = 0.0) -> int:
    """How often somebody is wrong before nothing is compared any more."""
    for number in range(10_000):
        if is_full(counted, address, user, now):
            return number
        counted.failed(address, user, now)
    raise AssertionError("without end")


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("2001:db8::1", "2001:db8::ffff", True),
        ("2001:db8::1", "2001:db8:1::1", False),
        ("", "no address", True),
    ],
)
def test_a_network_is_one_stranger(one: str, other: str, are_one: bool) -> None:
    counted = PasswordAttempts()
    assert guess(counted, one, b"a") == ADDRESS.burst
    assert is_full(counted, other, b"b") is are_one


def test_many_addresses_have_no_more_of_one_user(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = PasswordAttempts()
    tried = sum(guess(counted, f"192.0.{n // 250}.{n % 250}", b"a") for n in range(300))
    assert tried == USER.burst
    assert not is_full(counted, "198.51.100.1", b"b")


def test_who_was_right_from_an_address_is_not_locked_out_by_others() -> None:
    counted = PasswordAttempts()
    counted.succeeded("192.0.2.1", b"a")
    for number in range(300):
        guess(counted, f"198.51.{number // 250}.{number % 250}", b"a")
    guess(counted, "192.0.2.1", b"b")
    assert is_full(counted, "198.51.100.1", b"a")
    assert not is_full(counted, "192.0.2.1", b"a")
    assert guess(counted, "192.0.2.1", b"a") == passwordattempts.KNOWN.burst


def test_time_gives_back() -> None:
    counted = PasswordAttempts()
    guess(counted, "192.0.2.1", b"a")
    assert guess(counted, "192.0.2.1", b"a", now=1 / ADDRESS.qps) == 1
    assert guess(counted, "192.0.2.1", b"a", now=ADDRESS.burst / ADDRESS.qps * 2) == ADDRESS.burst


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwordattempts, "REMEMBERED", 10)
    counted = PasswordAttempts()
    for number in range(1000):
        counted.failed(f"192.0.2.{number % 250}", b"%d" % number, 0.0)
        counted.succeeded(f"192.0.2.{number % 250}", b"%d" % number)
    for held in (counted._addresses._levels, counted._users._levels, counted._at_known._levels, counted._known):
        assert len(held) <= 10
