"""``audit.k8s.io/v1`` Event: one stage of one request, as kube-apiserver writes it (GW13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from kube.auditing.policy import VERSION, Audited, Level, Stage
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.objects import protobuf
from kube.requests.decoding import decode_json, decode_yaml
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import StatusError

BODY_MAX: Final = 64 * 1024
"""Bytes of an object that is told of; of a larger one it is told that it has been left out."""

YAML_MAX: Final = 8 * 1024

_TRUNCATED: Final = "audit.k8s.io/truncated"
_WORKSPACE: Final = "tenancy.kcp.io/workspace"
_SECRETS: Final = frozenset({("", "secrets"), ("authentication.k8s.io", "tokenreviews")})
_TOKENS: Final = ("", "serviceaccounts", "token")
_BYTES: Final = frozenset({"proxy", "exec", "attach", "portforward", "log"})
_SECRET_KINDS: Final = frozenset({"Secret", "SecretList", "TokenRequest", "TokenReview"})
_STATUS_KIND: Final = b"Status"
_STATUS: Final = ("metadata", "status", "reason")
_WORDS: Final = ("message", "details")
"""What a status says in words, which may quote the object: a policy's or a webhook's do as they like."""


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes as they were sent. ``media`` is the content type without parameters."""

    data: bytes
    media: str
    encoded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What is known of a request at one of its stages; times are Unix seconds, ``status`` 0 while there is none.

    ``decision`` is whether the request was authorized, ``notes`` are what admission has noted of it.
    """

    audited: Audited
    stage: Stage
    audit_id: str
    uri: str
    info: RequestInfo
    received: float
    time: float
    caller: Principal | None = None
    acting: Principal | None = None
    source_ip: str = ""
    user_agent: str = ""
    status: int = 0
    decision: Decision | None = None
    notes: tuple[Decision, ...] = ()
    sent: Body | None = None
    answered: Body | None = None

    @property
    def size(self) -> int:
        """About how many bytes are kept with it."""
        noted = sum(len(note.rule) + len(note.reason) for note in self.notes)
        return 1024 + noted + sum(len(body.data) for body in (self.sent, self.answered) if body is not None)

    def as_object(self, clean: Callable[[Any], Any]) -> dict[str, Any]:
        """The event as JSON; ``clean`` takes secrets from a text or an object.

        Objects that are secrets by what they are (Secret, TokenRequest, TokenReview) are never in it, whatever the level,
        nor are the words of an answer to a request for one.
        """
        sent, cut = self._shown(self.sent, Level.REQUEST, Level.REQUEST_RESPONSE)
        answered, short = self._shown(self.answered, Level.REQUEST_RESPONSE)
        event: dict[str, Any] = {
            "kind": "Event",
            "apiVersion": VERSION,
            "level": self.audited.level.value,
            "auditID": self.audit_id,
            "stage": self.stage.value,
            "requestURI": clean(self.uri),
            "verb": self.info.verb,
            "user": self.caller.user_info() if self.caller is not None else {},
        }
        if self.acting is not None:
            event["impersonatedUser"] = self.acting.user_info()
        if self.source_ip:
            event["sourceIPs"] = [self.source_ip]
        event["userAgent"] = clean(self.user_agent)
        if self.info.is_resource:
            event["objectRef"] = self._reference()
        if self.status:
            event["responseStatus"] = clean(self._response_status())
        if sent is not None:
            event["requestObject"] = clean(sent)
        if answered is not None:
            event["responseObject"] = clean(answered)
        event["requestReceivedTimestamp"] = _moment(self.received)
        event["stageTimestamp"] = _moment(self.time)
        event["annotations"] = clean(self._annotations(truncated=cut or short))
        return event

    def _reference(self) -> dict[str, str]:
        info = self.info
        name: Any = info.name
        if not name and info.verb == "create" and self.stage is not Stage.REQUEST_RECEIVED:
            sent = _decoded(self.sent)
            metadata = sent.get("metadata") if isinstance(sent, dict) else None
            name = metadata.get("name") if isinstance(metadata, dict) else ""
        reference = {
            "resource": info.resource,
            "namespace": info.namespace,
            "name": name if isinstance(name, str) else "",
            "apiGroup": info.group,
            "apiVersion": info.version,
            "subresource": info.subresource,
        }
        return {key: value for key, value in reference.items() if value}

    def _response_status(self) -> dict[str, Any]:
        answer = (
            _decoded(self.answered) if self.answered is not None and _STATUS_KIND in self.answered.data[:64] else None
        )
        if isinstance(answer, dict) and answer.get("kind") == "Status":
            told = _STATUS if self._is_secret else (*_STATUS, *_WORDS)
            return {**{key: answer[key] for key in told if key in answer}, "code": self.status}
        return {"metadata": {}, "code": self.status}

    def _annotations(self, *, truncated: bool) -> dict[str, str]:
        said = {_WORKSPACE: self.info.cluster}
        if self.decision is not None and self.stage is not Stage.REQUEST_RECEIVED:
            said["authorization.k8s.io/decision"] = "allow" if self.decision.allowed else "forbid"
            said["authorization.k8s.io/reason"] = self.decision.reason
        for note in self.notes:
            # A refusal is told of as the answer; and what was noted first stands, as in kube-apiserver.
            if note.verdict is Verdict.NO_OPINION and note.rule:
                said.setdefault(note.rule, note.reason)
        if truncated:
            said[_TRUNCATED] = "true"
        return said

    @property
    def _is_secret(self) -> bool:
        """Whether what is asked for is a secret, whatever its bodies call themselves: a patch has no kind."""
        info = self.info
        return (info.group, info.resource) in _SECRETS or (info.group, info.resource, info.subresource) == _TOKENS

    def _shown(self, body: Body | None, *levels: Level) -> tuple[Any, bool]:
        """The object in a body where its level tells of it, and whether it has been left out for its size."""
        if body is None or not body.data or self.audited.level not in levels or not self.info.is_resource:
            return None, False
        if self.info.subresource in _BYTES or self._is_secret:
            return None, False
        if body.encoded or len(body.data) > (YAML_MAX if _is_yaml(body) else BODY_MAX):
            return None, True
        value = _decoded(body)
        if _holds_secret(value):
            return None, False
        return _without_managed_fields(value) if self.audited.omit_managed_fields else value, False


def _is_yaml(body: Body) -> bool:
    return body.media.endswith("yaml")


def _decoded(body: Body | None) -> Any:
    """The value of a body that can be read: JSON, YAML or protobuf; ``None`` for any other."""
    if body is None or body.encoded:
        return None
    try:
        if _is_yaml(body):
            return decode_yaml(body.data) if len(body.data) <= YAML_MAX else None
        if len(body.data) > BODY_MAX:
            return None
        if body.media == protobuf.MEDIA_TYPE:
            return protobuf.decode(body.data)
        return decode_json(body.data) if body.media.endswith("json") else None
    except StatusError:
        return None


def _holds_secret(value: Any) -> bool:
    """Whether an object is a secret by its kind, or a list or a table with one."""
    if not isinstance(value, dict):
        return False
    items, rows = value.get("items"), value.get("rows")
    return (
        value.get("kind") in _SECRET_KINDS
        or (isinstance(items, list) and any(map(_holds_secret, items)))
        or (isinstance(rows, list) and any(_holds_secret(row.get("object")) for row in rows if isinstance(row, dict)))
    )


def _without_managed_fields(value: Any) -> Any:
    """An object, a list of them or a table without who set which field."""
    if not isinstance(value, dict):
        return value
    metadata = value.get("metadata")
    if isinstance(metadata, Mapping) and "managedFields" in metadata:
        value = {**value, "metadata": {key: item for key, item in metadata.items() if key != "managedFields"}}
    if isinstance(items := value.get("items"), list):
        value = {**value, "items": [_without_managed_fields(item) for item in items]}
    if isinstance(rows := value.get("rows"), list):
        bare = [{**row, "object": _without_managed_fields(row.get("object"))} for row in rows if isinstance(row, dict)]
        value = {**value, "rows": bare}
    return value


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
