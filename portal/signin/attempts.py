"""How often somebody may try to sign in (API-34): by address, by account from an address, and by account.

Every attempt counts before anything is compared and is given back when it succeeds, so that only failures add up. A
browser in which the account has been signed in to before carries a signed cookie and is counted for itself alone:
whoever guesses elsewhere, behind the same address too, cannot lock it out.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponseBase

from audit import addresses
from portal.database.scopes import everything
from tenants import actionlimits
from tenants.actionlimits import Bucket
from tenants.models import User
from tenants.models.mailaddresses import address_key

ADDRESS: Final = Bucket("sign-in-address", burst=10, interval=30)
ACCOUNT_AND_ADDRESS: Final = Bucket("sign-in", burst=5, interval=30)
ACCOUNT: Final = Bucket("sign-in-account", burst=100, interval=30)
"""Against guessing from many addresses. Reached only by those whose addresses are not refused themselves."""

DEVICE: Final = Bucket("sign-in-device", burst=10, interval=30)
FACTOR: Final = Bucket("second-factor", burst=10, interval=300)
"""Codes of one account, from whichever addresses: three of a million are right at any moment."""

SESSION: Final = Bucket("sign-in-again", burst=10, interval=30)
BEGUN: Final = Bucket("sign-in-begun", burst=10, interval=30)
"""Ways to the single sign-on provider, and offers to passkeys, that are begun and not finished."""

LINK_ADDRESS: Final = Bucket("password-link-address", burst=10, interval=60)
LINK_ACCOUNT: Final = Bucket("password-link", burst=3, interval=600)
"""Links for a new password that one account is sent."""

DEVICE_SECONDS: Final = 180 * 24 * 3600
_ACCOUNTS_PER_DEVICE: Final = 5
_SALT: Final = "portal.signin.attempts.device"


@dataclass(frozen=True, slots=True)
class Attempt:
    """The tokens that one attempt to sign in has taken from its buckets."""

    taken: tuple[tuple[Bucket, str], ...]

    def succeeded(self) -> None:
        """Give the tokens back: only failures are to count."""
        for bucket, key in self.taken:
            actionlimits.refund(bucket, key)


def attempt(request: HttpRequest, *, email: str) -> Attempt:
    """Count an attempt to sign in to the account of ``email``. Raises ``TooManyRequests``."""
    account = address_key(email)
    for known in _devices(request):
        if known.belongs_to(account):
            return _taken((DEVICE, f"{known.device}:{known.account}"))
    network = network_of(request)
    # The address first: one that is refused takes nothing from the account, and so cannot lock it.
    return _taken((ADDRESS, network), (ACCOUNT_AND_ADDRESS, f"{network}:{account}"), (ACCOUNT, account))


def begin_single_sign_on(request: HttpRequest) -> None:
    """Count a way to the provider, until it is finished. Raises ``TooManyRequests``."""
    _taken((BEGUN, _browser(request)))


def return_from_single_sign_on(request: HttpRequest) -> Attempt:
    """Count a way back from the provider. Raises ``TooManyRequests``."""
    browser = _browser(request)
    attempt = _taken((ADDRESS, browser))
    return Attempt((*attempt.taken, (BEGUN, browser)))


def present_password(user: User) -> Attempt:
    """Count an attempt to say the password of a session's own account. Raises ``TooManyRequests``."""
    return _taken((SESSION, str(user.pk)))


def present_code(request: HttpRequest, user: User) -> Attempt:
    """Count an attempt to say a code of the second factor of ``user``'s. Raises ``TooManyRequests``."""
    known = next((each for each in _devices(request) if each.account == str(user.pk) and each.is_current()), None)
    return _taken((FACTOR, f"{user.pk}:{known.device}" if known else str(user.pk)))


def begin_passkey(request: HttpRequest) -> None:
    """Count what is offered to a browser that has no session yet, for it is kept in one. Raises ``TooManyRequests``."""
    # Reading it looks up whether what the cookie names is one.
    request.session.keys()
    if request.session.session_key is None:
        _taken((BEGUN, _browser(request)))


def present_passkey(request: HttpRequest) -> Attempt:
    """Count an answer of a passkey, while nobody knows whose it is. Raises ``TooManyRequests``."""
    browser = _browser(request)
    attempt = _taken((ADDRESS, browser))
    return Attempt((*attempt.taken, (BEGUN, browser)))


def ask_for_link(request: HttpRequest, *, email: str) -> bool:
    """Count a question for a new password; whether the account is to be sent another link so soon.

    Raises ``TooManyRequests`` by address alone: what is told does not depend on the account.
    """
    actionlimits.take(LINK_ADDRESS, network_of(request))
    return actionlimits.wait_for(LINK_ACCOUNT, address_key(email)) == 0


def remember_device(request: HttpRequest, response: HttpResponseBase, user: User) -> None:
    """Let this browser be known for ``user``'s account, until the password changes or half a year has passed."""
    others = [known for known in _devices(request) if known.account != str(user.pk)]
    device = others[0].device if others else secrets.token_urlsafe(12)
    devices = [_Device(str(user.pk), device, _proof(user)), *others][:_ACCOUNTS_PER_DEVICE]
    response.set_cookie(
        settings.DEVICE_COOKIE_NAME,
        signing.dumps([[known.account, known.device, known.proof] for known in devices], salt=_SALT),
        max_age=DEVICE_SECONDS,
        secure=True,
        httponly=True,
        samesite="Lax",
    )


def network_of(request: HttpRequest) -> str:
    """What attempts are counted by."""
    return addresses.network_of(request.META.get("REMOTE_ADDR"))


def _browser(request: HttpRequest) -> str:
    """What is counted while nobody knows whose account it is about: any account that was signed in to here vouches."""
    known = next((each.device for each in _devices(request) if each.is_current()), "")
    return f"device:{known}" if known else network_of(request)


@dataclass(frozen=True, slots=True)
class _Device:
    account: str
    device: str
    proof: str

    def belongs_to(self, email: str) -> bool:
        user = self._user()
        return user is not None and address_key(user.email) == email and self._proves(user)

    def is_current(self) -> bool:
        user = self._user()
        return user is not None and self._proves(user)

    def _user(self) -> User | None:
        with everything():
            return User.objects.filter(pk=self.account).first()

    def _proves(self, user: User) -> bool:
        return user.is_active and hmac.compare_digest(self.proof, _proof(user))


def _devices(request: HttpRequest) -> Iterator[_Device]:
    """What the cookie says; nothing where there is none, or not one of ours."""
    cookie = request.COOKIES.get(settings.DEVICE_COOKIE_NAME, "")
    try:
        said: Any = signing.loads(cookie, salt=_SALT, max_age=DEVICE_SECONDS) if cookie else ()
    except signing.BadSignature:
        return
    for account, device, proof in said:
        yield _Device(account, device, proof)


def _proof(user: User) -> str:
    """Changes with the password: who has stolen a cookie loses it then, as sessions do."""
    return user.get_session_auth_hash()[:22]


def _taken(*wanted: tuple[Bucket, str]) -> Attempt:
    for bucket, key in wanted:
        actionlimits.take(bucket, key)
    return Attempt(wanted)
