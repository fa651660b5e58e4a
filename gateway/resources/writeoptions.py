"""The options of a write in its query: ``dryRun``, ``fieldValidation``, ``fieldManager``, judged as kube-apiserver does."""

from __future__ import annotations

from typing import Any, Final

import orjson

from gateway.http.messages import Request
from kube.objects.managedfields import MAX_MANAGER_LENGTH
from kube.requests.status import BadRequest, Cause, Invalid

_KINDS: Final = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
_OPERATIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
_MODES: Final = ("Ignore", "Strict", "Warn")


def flag(text: str | None) -> bool:
    """A parameter that says yes or no: whatever is there and is not ``false`` or ``0`` says yes."""
    return text is not None and text.lower() not in ("false", "0")


def of_operation(request: Request, operation: str) -> dict[str, Any]:
    """The request's options as admission is told of them; those of a connection are its object."""
    kind = _OPERATIONS.get(operation)
    if kind is None:
        return {}
    options: dict[str, Any] = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if operation == "DELETE":
        options |= request.deletion
    else:
        options |= {
            name: request.query[name] for name in ("fieldManager", "fieldValidation") if request.query.get(name)
        }
    if request.dry_run:
        options["dryRun"] = ["All"]
    return options


def check(request: Request, *, applies: bool = False) -> None:
    """Raises ``Invalid`` (422) with every option that cannot be used."""
    query, causes = request.query, []
    if not query and not applies:
        return
    dry_run = query.get("dryRun")
    if dry_run is not None and dry_run != "All":
        causes.append(unsupported("dryRun", [dry_run], ("All",)))
    mode = query.get("fieldValidation") or ""
    if mode and mode not in _MODES:
        causes.append(unsupported("fieldValidation", mode, ("", *_MODES)))
    manager = query.get("fieldManager") or ""
    if applies and not manager:
        causes.append(Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager"))
    causes += _manager_causes(manager)
    kind = _KINDS.get(request.info.verb, "CreateOptions")
    if kind == "PatchOptions" and not applies and "force" in query:
        causes.insert(0, Cause("FieldValueForbidden", "Forbidden: may not be specified for non-apply patch", "force"))
    if causes:
        raise invalid_options(kind, causes)


def not_a_number(text: str) -> BadRequest:
    """The 400 for a parameter that should be a number, as Go's ``strconv`` puts it."""
    number = text.removeprefix("-")
    problem = "value out of range" if number.isascii() and number.isdigit() else "invalid syntax"
    return BadRequest(f'strconv.ParseInt: parsing "{text[:32]}": {problem}')


def unsupported(field: str, value: Any, supported: tuple[str, ...]) -> Cause:
    """The cause for a value that is none of ``supported``."""
    shown = orjson.dumps(value).decode()[:128]
    names = ", ".join(f'"{name}"' for name in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {shown}: supported values: {names}", field)


def invalid_options(kind: str, causes: list[Cause]) -> Invalid:
    """The 422 for options of a request."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    detail = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return Invalid(f'{kind}.meta.k8s.io "" is invalid: {detail}', group="meta.k8s.io", kind=kind, causes=causes)


def _manager_causes(manager: str) -> list[Cause]:
    causes = []
    if len(manager.encode()) > MAX_MANAGER_LENGTH:
        text = f"Too long: may not be more than {MAX_MANAGER_LENGTH} bytes"
        causes.append(Cause("FieldValueTooLong", text, "fieldManager"))
    for position, character in enumerate(manager[: MAX_MANAGER_LENGTH + 1]):
        if not character.isprintable():
            quoted = "".join(_escaped(each) for each in manager[:128])
            text = f'Invalid value: "{quoted}": invalid character U+{ord(character):04X} (at position {position})'
            causes.append(Cause("FieldValueInvalid", text, "fieldManager"))
            break
    return causes


def _escaped(character: str) -> str:
    if character.isprintable():
        return f"\\{character}" if character in '"\\' else character
    named = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
    return named.get(character, f"\\x{ord(character):02x}" if ord(character) < 128 else f"\\u{ord(character):04x}")
