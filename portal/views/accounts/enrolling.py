"""The secret of an app that is being set up: in the session, sealed, until a code has confirmed it."""

from __future__ import annotations

from typing import Any, Final

import segno
from django.http import HttpRequest
from django.views.decorators.debug import sensitive_variables

from portal.signin import factors
from tenants.clusters import encryption
from tenants.models import User

_OFFERED: Final = "second-factor-offered"


@sensitive_variables("secret")
def offered_secret(request: HttpRequest) -> str:
    """The secret that this browser is shown, the same one until it is confirmed, or somebody begins to sign in.

    With that the session's key changes and what it keeps does not: who was there before, or planted it, knows the secret.
    """
    key, sealed = request.session.get(_OFFERED, ("", ""))
    try:
        if key == request.session.session_key:
            return encryption.decrypt(sealed.encode())
    except encryption.DecryptionError:
        pass
    secret = factors.secret_new()
    request.session[_OFFERED] = (request.session.session_key, encryption.encrypt(secret).decode())
    return secret


def forget_secret(request: HttpRequest) -> None:
    """Offer another one the next time."""
    request.session.pop(_OFFERED, None)


@sensitive_variables("secret")
def app_context(user: User, secret: str) -> dict[str, Any]:
    """The secret as a square and as text that can be typed."""
    square = segno.make(factors.app_address(user, secret), micro=False)
    # An image of its own: a program that the page would run it is not, and our policy would not let it.
    return {
        "square": square.svg_data_uri(scale=5, border=4, dark="#000", light="#fff"),
        "secret": " ".join(secret[start : start + 4] for start in range(0, len(secret), 4)),
    }
