"""What an authenticator is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from kube.authentication.identity import Principal

_BLANKS: Final = " \t\n\v\f\r"


@dataclass(slots=True)
class Credentials:
    """What a request shows: the peer's certificate (DER) and the ``Authorization`` header, as sent; of a token its scheme.

    ``certificate_refusal`` says why the certificate is not to be believed; it is empty for one that is verified.
    ``shown_at`` is when they were shown, in Unix seconds: a stream shows them once, and is asked about again. ``address`` is
    who showed them.
    """

    certificate: bytes | None = None
    authorization: str | None = None
    certificate_refusal: str = ""
    shown_at: float = float("inf")
    address: str = ""
    bearer: str | None = field(init=False, default=None)
    """The bearer token, or ``None`` when there is none. The scheme's case does not matter (RFC 9110).

    As for kube-apiserver, blanks around the whole do not count, and a token behind more than one is none; nor is one with
    blanks inside. All who read tokens read this one: none is shown to others in a form that its own reader does not know.
    """

    def __post_init__(self) -> None:
        if self.authorization is not None:
            scheme, _, token = self.authorization.strip(_BLANKS).partition(" ")
            if token and scheme.lower() == "bearer":
                # Streams keep what they show, and tokens are long.
                self.authorization, self.bearer = scheme, token if token.split() == [token] else None

    def __repr__(self) -> str:
        return "Credentials(…)"


class Refused(Exception):
    """The credential is of this authenticator's kind and is not valid. The message never holds the credential."""


class Authenticator(Protocol):
    """One way to know who asks."""

    @property
    def name(self) -> str:
        """What the outcome is attributed to (AN9)."""
        ...

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:
        """The identity behind ``credentials``, or ``None`` when they are not of this kind.

        Raises ``Refused``, ``Unavailable`` when nobody can tell now, ``TooManyRequests`` when too many of that kind were wrong.
        """
        ...


@runtime_checkable
class ChangeNotifier(Protocol):
    """An authenticator that changes its mind while the server runs, so that open watches must be looked at again."""

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Until cancelled, call ``on_change`` when who was known a moment ago may be known no longer."""
        ...
