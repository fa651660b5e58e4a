"""Kubernetes' ``Status`` errors as exceptions that know their own body.

One root, small subclasses; ``gateway`` renders them for kubectl, the portal for people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of ``details.causes``: which field, why (``FieldValueInvalid``, …), in words."""

    reason: str
    message: str
    field: str = ""

    def as_dict(self) -> dict[str, str]:
        """The JSON form."""
        body = {"reason": self.reason} if self.reason else {}
        body["message"] = self.message
        if self.field:
            body["field"] = self.field
        return body


class StatusError(Exception):
    """A request that failed, as Kubernetes reports it (meta/v1 Status).

    ``rule`` names the object, and what in it, that refused: for the trace and the audit, no part of the body (AZ11).
    """

    code = 500
    reason = "InternalError"
    always_detailed = False
    """Whether the body has ``details`` even when they are empty."""

    def __init__(
        self,
        message: str,
        *,
        group: str = "",
        kind: str = "",
        name: str = "",
        uid: str = "",
        causes: Sequence[Cause] = (),
        retry_after: int | None = None,
        code: int | None = None,
        reason: str | None = None,
        rule: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rule = rule
        self.group = group
        self.kind = kind
        self.name = name
        self.uid = uid
        self.causes = tuple(causes)
        self.retry_after = retry_after
        if code is not None:
            self.code = code
        if reason is not None:
            self.reason = reason

    def details(self) -> dict[str, Any]:
        """The ``details`` object; ``kind`` holds the resource or kind name as Kubernetes fills it."""
        details: dict[str, Any] = {}
        if self.name:
            details["name"] = self.name
        if self.group:
            details["group"] = self.group
        if self.kind:
            details["kind"] = self.kind
        if self.uid:
            details["uid"] = self.uid
        if self.causes:
            details["causes"] = [cause.as_dict() for cause in self.causes]
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        return details

    def as_status(self) -> dict[str, Any]:
        """The whole ``Status`` body."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        details = self.details()
        if details or self.always_detailed:
            body["details"] = details
        body["code"] = self.code
        return body


class BadRequest(StatusError):
    """400: the request itself is wrong."""

    code = 400
    reason = "BadRequest"


class Unauthorized(StatusError):
    """401: no valid credential."""

    code = 401
    reason = "Unauthorized"

    def __init__(self, message: str = "Unauthorized", **details: Any) -> None:
        super().__init__(message, **details)


class Forbidden(StatusError):
    """403: who asks may not."""

    code = 403
    reason = "Forbidden"


def forbidden_object(
    group: str, plural: str, name: str, why: str, *, causes: Sequence[Cause] = (), rule: str = ""
) -> Forbidden:
    """The 403 for one object, as kubectl shows it; ``rule`` as in ``StatusError``."""
    qualified = f"{plural}.{group}" if group else plural
    said = f'{qualified} "{name}" is forbidden: {why}'
    return Forbidden(said, group=group, kind=plural, name=name, causes=causes, rule=rule)


class NotFound(StatusError):
    """404: there is no such object, or the caller may not know of it."""

    code = 404
    reason = "NotFound"


class NoSuchPage(NotFound):
    """404: nothing of this API begins like the path; answered as plain text."""

    def __init__(self) -> None:
        super().__init__("404 page not found")


class MethodNotAllowed(StatusError):
    """405: the resource does not support the verb."""

    code = 405
    reason = "MethodNotAllowed"
    always_detailed = True


class NotAcceptable(StatusError):
    """406: none of the accepted media types can be produced."""

    code = 406
    reason = "NotAcceptable"


class AlreadyExists(StatusError):
    """409: the name is taken."""

    code = 409
    reason = "AlreadyExists"


class Conflict(StatusError):
    """409: a precondition (uid, resourceVersion, field ownership) does not hold."""

    code = 409
    reason = "Conflict"


class Expired(StatusError):
    """410: the resource version or the continue token is too old; list again.

    ``token`` continues the list nevertheless, with what is there now.
    """

    code = 410
    reason = "Expired"

    def __init__(self, message: str, *, token: str = "") -> None:
        super().__init__(message)
        self.token = token

    def as_status(self) -> dict[str, Any]:
        """The whole ``Status`` body."""
        return super().as_status() | {"metadata": {"continue": self.token} if self.token else {}}


class RequestEntityTooLarge(StatusError):
    """413: the body is larger than the server takes."""

    code = 413
    reason = "RequestEntityTooLarge"


class UnsupportedMediaType(StatusError):
    """415: the body's media type is not one this resource takes."""

    code = 415
    reason = "UnsupportedMediaType"


class Invalid(StatusError):
    """422: the object is not valid; every cause is listed at once."""

    code = 422
    reason = "Invalid"


class TooManyRequests(StatusError):
    """429: slow down; ``retry_after`` seconds are in the details and the header."""

    code = 429
    reason = "TooManyRequests"


class InternalError(StatusError):
    """500: a defect on our side; the message never carries a secret."""


class ServiceUnavailable(StatusError):
    """503: something this request needs is away; trying again helps."""

    code = 503
    reason = "ServiceUnavailable"


class Timeout(StatusError):
    """504: the request could not be served in time."""

    code = 504
    reason = "Timeout"
    always_detailed = True
