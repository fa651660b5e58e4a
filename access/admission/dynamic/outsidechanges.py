"""Objects that policies and webhooks have changed: made whole again, and who of them looks at them once more (TS15)."""

from __future__ import annotations

from typing import Final, Protocol

from access.admission.base import Attributes
from kube.admissionpolicies.matching import Asked, Body
from kube.objects.managedfields import are_readable
from kube.objects.patches import same
from kube.requests.status import Cause, InternalError, StatusError

_NAMES: Final = ("name", "namespace")
_UNREADABLE: Final = (
    ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating "
    "admission controller; please fix your requests"
)
_GIVEN: Final = ("creationTimestamp", "generation", "selfLink", "tenant", "uid")


class Completed(Protocol):
    """Makes of what was changed a whole object of its kind again."""

    def __call__(self, attributes: Attributes, body: Body, *, strict: bool = False) -> Body:
        """With ``strict`` an unknown field is an error, else it is left out. Raises ``StatusError``."""
        ...


def change(
    attributes: Attributes, asked: Asked, result: Body, completed: Completed, *, by: str, strict: bool = False
) -> bool:
    """Put a changed object in the place of the one that is asked about; whether it is another one.

    Managed fields that nobody can read any more stay as they were, and the client is told.
    Raises ``StatusError``: a part of an object cannot be changed.
    """
    body = asked.object
    if body is None:
        raise internal(f"{by} attempted to modify the object, which is not supported for this operation")
    if attributes.sent is not None:
        # Only what is decided of it counts: what a part was made of is settled already.
        if same(result, asked.in_form(body, asked.form)):
            return False
        raise internal(f"{by} attempted to modify a part of the object")
    whole = _identified(completed(attributes, asked.in_form(result, asked.form), strict=strict), body, by)
    if not are_readable(whole["metadata"].get("managedFields")):
        del whole["metadata"]["managedFields"]
        whole["metadata"] |= {name: value for name, value in body["metadata"].items() if name == "managedFields"}
        attributes.warnings.append(f"{_UNREADABLE}: {by} left an entry that cannot be read")
    if same(whole, body):
        return False
    body.clear()
    body.update(whole)
    return True


def _identified(whole: Body, body: Body, by: str) -> Body:
    """The changed object with what the server alone gives. Raises ``StatusError`` for one that goes by another name."""
    metadata, given = whole.get("metadata") or {}, body["metadata"]
    if not isinstance(metadata, dict):
        raise internal(f"{by} made an object without metadata")
    moved = [name for name in _NAMES if name in metadata and metadata[name] != given.get(name)]
    moved += [name for name in ("apiVersion", "kind") if name in whole and whole[name] != body.get(name)]
    if moved:
        raise internal(f"{by} attempted to change the {moved[0]} of the object, by which it is kept")
    kept = {name: value for name, value in metadata.items() if name not in _GIVEN}
    kept |= {name: given[name] for name in (*_NAMES, *_GIVEN) if name in given}
    identity: Body = {name: body[name] for name in ("apiVersion", "kind") if name in body}
    return {**identity, **whole, "metadata": kept}


def internal(words: str) -> StatusError:
    """The 500 of who cannot say what is wrong with a request."""
    return InternalError(f"Internal error occurred: {words}", causes=(Cause("", words),))
