"""The reviews that a kube-apiserver sends to webhooks, read from JSON, and the answers (GW17).

They come from a cluster that has shown its credential, but what is in them is its tenants': everything is checked that is
relied on. Every reader raises ``BadRequest`` for another kind or version, or fields of another type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kube.authentication.identity import CREDENTIAL_EXTRA, TENANT_EXTRA
from kube.authorization.decisions import Decision, Verdict
from kube.requests.status import BadRequest, StatusError

AUTHENTICATION: Final = "authentication.k8s.io/v1"
AUTHORIZATION: Final = "authorization.k8s.io/v1"
ADMISSION: Final = "admission.k8s.io/v1"
OPERATIONS: Final = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})

_TEXTS: Final = frozenset({"labels", "annotations"})
"""What of an object's metadata holds texts alone."""

_AUDIENCES_MAX: Final = 32
_LIST_MAX: Final = 1024
_VALUES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class TokenReview:
    """A token, and the audiences of the server that it was shown to; none: it does not say."""

    token: str = field(repr=False)
    audiences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """Who a review is about, as the cluster's authenticators have said it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants that ``extra`` names: none for whoever is not a tenant's, and never more than one."""
        return self.extra.get(TENANT_EXTRA, ())

    @property
    def credential_id(self) -> str:
        """The credential that was shown, as far as ``extra`` says it."""
        return next(iter(self.extra.get(CREDENTIAL_EXTRA, ())), "")


@dataclass(frozen=True, slots=True)
class AccessReview:
    """Whether somebody may do something. ``spec`` is the review's own, its attributes checked."""

    subject: Subject
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionReview:
    """Whether a write may be made. ``name`` is the final one; ``object`` is ``None`` for a deletion, ``old`` for a creation."""

    uid: str
    subject: Subject
    operation: str
    group: str
    version: str
    plural: str
    kind: str
    subresource: str
    namespace: str
    name: str
    object: dict[str, Any] | None
    old: dict[str, Any] | None
    dry_run: bool


def read_token_review(body: Any) -> TokenReview:
    """Read a ``TokenReview``."""
    spec = _spec(body, "TokenReview", AUTHENTICATION)
    token = _text(spec, "token", "spec")
    if not token:
        raise BadRequest("spec.token is required")
    return TokenReview(token, _texts(spec, "audiences", "spec", _AUDIENCES_MAX))


def read_access_review(body: Any) -> AccessReview:
    """Read a ``SubjectAccessReview``."""
    spec = _spec(body, "SubjectAccessReview", AUTHORIZATION)
    attributes = [name for name in ("resourceAttributes", "nonResourceAttributes") if spec.get(name) is not None]
    if len(attributes) != 1:
        raise BadRequest("spec must have either resourceAttributes or nonResourceAttributes")
    at = f"spec.{attributes[0]}"
    for name, value in (asked := _mapping(spec, attributes[0], "spec")).items():
        if name in ("fieldSelector", "labelSelector"):
            _check_selector(asked, name, at)
        elif not isinstance(value, str):
            raise BadRequest(f"{at}.{name} is no text")
    return AccessReview(read_subject(spec, "user", "spec"), spec)


def read_admission_review(body: Any) -> AdmissionReview:
    """Read an ``AdmissionReview``."""
    require_kind(body, "AdmissionReview", ADMISSION)
    asked = _mapping(body, "request", "AdmissionReview")
    resource, kind = _mapping(asked, "resource", "request"), _mapping(asked, "kind", "request")
    uid, operation, subresource, namespace, name = _said(
        asked, "request", "uid", "operation", "subResource", "namespace", "name"
    )
    group, version, plural = _said(resource, "request.resource", "group", "version", "resource")
    if not uid or not plural or operation not in OPERATIONS:
        raise BadRequest("request must have uid, resource and one of the operations of Kubernetes")
    new, old = (_object(asked, name) for name in ("object", "oldObject"))
    return AdmissionReview(
        uid=uid,
        subject=read_subject(_mapping(asked, "userInfo", "request"), "username", "request.userInfo"),
        operation=operation,
        group=group,
        version=version,
        plural=plural,
        kind=_text(kind, "kind", "request.kind"),
        subresource=subresource,
        namespace=namespace,
        name=name or _text((new or {}).get("metadata") or {}, "name", "request.object.metadata"),
        object=new,
        old=old,
        dry_run=asked.get("dryRun") is True,
    )


def _object(asked: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """An object of which at least the metadata is what it must be."""
    value = asked.get(name)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise BadRequest(f"request.{name} is no object")
    metadata = _mapping(value, "metadata", f"request.{name}")
    for part in _TEXTS & metadata.keys():
        for key, text in _mapping(metadata, part, f"request.{name}.metadata").items():
            if not isinstance(text, str):
                raise BadRequest(f"request.{name}.metadata.{part}[{key}] is no text")
    return value


def read_subject(given: Mapping[str, Any], name: str, at: str) -> Subject:
    """Read the fields of a user; ``name`` is what the field of the name is called."""
    extra = _mapping(given, "extra", at)
    if len(extra) > _LIST_MAX:
        raise BadRequest(f"{at}.extra has more than {_LIST_MAX} entries")
    user, uid = _said(given, at, name, "uid")
    return Subject(
        user,
        uid,
        _texts(given, "groups", at, _LIST_MAX),
        {str(key).lower(): _texts(extra, key, f"{at}.extra", _LIST_MAX) for key in extra},
    )


def token_answer(user: Mapping[str, Any], audiences: Sequence[str]) -> dict[str, Any]:
    """The review of a token that is somebody's, for these audiences."""
    return _answer("TokenReview", AUTHENTICATION, {"authenticated": True, "user": user, "audiences": list(audiences)})


def token_refusal(why: str) -> dict[str, Any]:
    """The review of a token that is nobody's."""
    return _answer("TokenReview", AUTHENTICATION, {"authenticated": False, "user": {}, "error": why})


def access_answer(decision: Decision) -> dict[str, Any]:
    """The review of a right: allowed, denied whatever others say, or left to the cluster's other authorizers."""
    status: dict[str, Any] = {"allowed": decision.allowed}
    if decision.verdict is Verdict.DENY:
        status["denied"] = True
    if decision.reason:
        status["reason"] = f"{decision.step}: {decision.reason}"
    return _answer("SubjectAccessReview", AUTHORIZATION, status)


def admission_answer(uid: str, refusal: StatusError | None, warnings: Sequence[str] = ()) -> dict[str, Any]:
    """The review of a write: admitted, or refused with the ``Status`` that the client is to see."""
    response: dict[str, Any] = {"uid": uid, "allowed": refusal is None}
    if refusal is not None:
        response["status"] = refusal.as_status()
    if warnings:
        response["warnings"] = list(warnings)
    return {"apiVersion": ADMISSION, "kind": "AdmissionReview", "response": response}


def _answer(kind: str, version: str, status: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {}, "spec": {}, "status": status}


def _spec(body: Any, kind: str, version: str) -> Mapping[str, Any]:
    require_kind(body, kind, version)
    return _mapping(body, "spec", kind)


def require_kind(body: Any, kind: str, version: str) -> None:
    """Raise ``BadRequest`` unless ``body`` is an object of this kind and version."""
    if not isinstance(body, dict) or (body.get("apiVersion"), body.get("kind")) != (version, kind):
        raise BadRequest(f"a {kind} of {version} is expected here")


def _mapping(given: Mapping[str, Any], name: str, at: str) -> Mapping[str, Any]:
    value = given.get(name)
    if isinstance(value, dict):
        return value
    if value is not None:
        raise BadRequest(f"{at}.{name} is no object")
    return {}


def _check_selector(given: Mapping[str, Any], name: str, at: str) -> None:
    selector, at = _mapping(given, name, at), f"{at}.{name}"
    _text(selector, "rawSelector", at)
    requirements = selector.get("requirements") or []
    if not isinstance(requirements, list) or not all(isinstance(each, dict) for each in requirements):
        raise BadRequest(f"{at}.requirements is no list of objects")
    for each in requirements:
        _text(each, "key", at), _text(each, "operator", at), _texts(each, "values", at, _VALUES_MAX)


def _said(given: Mapping[str, Any], at: str, *names: str) -> list[str]:
    """The texts of these fields; empty for those that are not there."""
    said = []
    for name in names:
        value = given.get(name)
        if not isinstance(value, str):
            if value is not None:
                raise BadRequest(f"{at}.{name} is no text")
            value = ""
        said.append(value)
    return said


def _text(given: Mapping[str, Any], name: str, at: str) -> str:
    return _said(given, at, name)[0]


def _texts(given: Mapping[str, Any], name: str, at: str, most: int) -> tuple[str, ...]:
    value = given.get(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadRequest(f"{at}.{name} is no list of texts")
    if len(value) > most:
        raise BadRequest(f"{at}.{name} has more than {most} entries")
    return tuple(value)
