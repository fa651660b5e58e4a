"""When whoever is in a session has last shown who they are: its cookie alone, which may be in other hands, shows nothing.

What outlasts the session is given out soon after a sign-in, or for the present password (GW16).
"""

from __future__ import annotations

import time
from typing import Any, Final

from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables

from kube.requests.status import Cause, Forbidden, Invalid
from portal.signin import attempts
from tenants.models import User

MINUTES: Final = 15
"""For so long a sign-in counts as one that has just been."""

_KEY: Final = "signed-in-at"


def note_sign_in(request: HttpRequest, **_: Any) -> None:
    """Remember it in the session that it opens (Django's ``user_logged_in``: there is no way in beside it)."""
    request.session[_KEY] = time.time()


def is_recent(request: HttpRequest) -> bool:
    """Whether the session's person has signed in just now; not in one from before this was remembered."""
    at: Any = request.session.get(_KEY)
    return isinstance(at, float) and 0 <= time.time() - at <= MINUTES * 60


@sensitive_variables("password")
def require_password(user: User, password: str) -> None:
    """Raises ``Invalid`` for another one than the person's present password, ``TooManyRequests`` for too many."""
    attempt = attempts.present_password(user)
    if not user.check_password(password):
        message = "This is not your present password."
        raise Invalid(message, kind="User", causes=[Cause("FieldValueInvalid", message, "old")])
    attempt.succeeded()


def require_recent(request: HttpRequest) -> None:
    """Raises ``Forbidden`` where they have not."""
    if not is_recent(request):
        raise Forbidden(f"Sign in again first: a token is made within {MINUTES} minutes of a sign-in.", kind="tokens")
