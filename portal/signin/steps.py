"""What stands between the right password and a session: a second factor, a password of one's own (GW16).

Nobody is signed in before the last step: until then the session says only who is on the way, so that no page, no REST
route and no consent for kubectl can be reached past a step. What is on the way ends after ten minutes, with another
password, and with the account.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from django.contrib import auth
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN
from portal.http.actors import visitor_of
from portal.signin import factors
from tenants.models import User

SECONDS: Final = 600
_KEY: Final = "on-the-way"
_BACKEND: Final = "django.contrib.auth.backends.ModelBackend"


class Step(StrEnum):
    """What is asked for next, by the name of its page."""

    CODE = "login-code"
    FACTOR = "login-factor"
    PASSWORD = "login-password"  # noqa: S105 (the name of a page)
    IN = "overview"


@dataclass(frozen=True, slots=True)
class OnTheWay:
    """Somebody whose password was right, and where they want to go. ``proof`` says by what else they have shown who they are."""

    user: User
    target: str
    proof: str = ""

    @property
    def step(self) -> Step:
        """The next one."""
        if not self.proof:
            if factors.is_asked(self.user):
                return Step.CODE
            if factors.needs_factor(self.user):
                return Step.FACTOR
        return Step.PASSWORD if self.user.password_given else Step.IN


def begin(request: HttpRequest, user: User, *, target: str) -> OnTheWay:
    """Remember whose password was right, under a new key of the session: one that was planted leads nowhere."""
    request.session.cycle_key()
    _remember(request, OnTheWay(user, target))
    return OnTheWay(user, target)


def proven(request: HttpRequest, on_the_way: OnTheWay, proof: str) -> OnTheWay:
    """Remember that the second factor was right."""
    request.session.cycle_key()
    further = OnTheWay(on_the_way.user, on_the_way.target, proof)
    _remember(request, further)
    return further


def on_the_way(request: HttpRequest) -> OnTheWay | None:
    """Whoever is on the way in this browser, unless that is over."""
    said: Any = request.session.get(_KEY)
    if not isinstance(said, dict) or not 0 <= time.time() - said["at"] <= SECONDS:
        return None
    user = User.objects.filter(pk=said["user"], status=User.Status.ACTIVE).first()
    if user is None or not constant_time_compare(said["hash"], user.get_session_auth_hash()):
        return None
    return OnTheWay(user, said["target"], said["proof"])


def enter(request: HttpRequest, on_the_way: OnTheWay) -> None:
    """Open the session, under a new key. Only for whoever has no step before them."""
    assert on_the_way.step is Step.IN  # noqa: S101 - the one place where a session begins by a password
    user = on_the_way.user
    request.session.pop(_KEY, None)
    auth.login(request, user, backend=_BACKEND)
    detail = {"second_factor": on_the_way.proof} if on_the_way.proof else None
    visitor_of(request, user.email, user).record(Action.SIGN_IN, chain=SYSTEM_CHAIN, target="session", detail=detail)


def _remember(request: HttpRequest, on_the_way: OnTheWay) -> None:
    user = on_the_way.user
    request.session[_KEY] = {
        "user": str(user.pk),
        "hash": user.get_session_auth_hash(),
        "target": on_the_way.target,
        "proof": on_the_way.proof,
        "at": time.time(),
    }
