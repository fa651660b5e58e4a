"""What the client takes and what it sends: media types, compression, warnings."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import orjson
import yaml

from gateway.http.messages import JSON, Headers, Request, Response
from kube.requests.decoding import count_values, is_plain_text, weight
from kube.requests.status import NotAcceptable, UnsupportedMediaType

YAML: Final = b"application/yaml"
_TABLE_GROUP: Final = "meta.k8s.io"
_DISCOVERY_GROUP: Final = "apidiscovery.k8s.io"
_COMPRESS_FROM: Final = 128 * 1024
"""kube-apiserver compresses from this size; below it the time costs more than the bytes."""

YAML_MAX: Final = 20_000
"""Values in an answer that is written as YAML: it takes a hundred times as long as JSON."""

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


class Accept(NamedTuple):
    """One acceptable answer: the encoding, and the form in it (``as=Table;g=meta.k8s.io;v=v1``)."""

    media: bytes = JSON
    kind: str = ""
    group: str = ""
    version: str = ""

    @property
    def is_table(self) -> bool:
        """Whether rows and columns are wanted."""
        return self.kind == "Table"

    @property
    def is_partial(self) -> bool:
        """Whether only metadata is wanted."""
        return self.kind in ("PartialObjectMetadata", "PartialObjectMetadataList")

    @property
    def is_aggregated(self) -> bool:
        """Whether discovery of all groups in one document is wanted."""
        return self.kind == "APIGroupDiscoveryList"


_SHORT: Final = 512
"""Bytes of a header that is worth remembering; it bounds what the memory can grow to."""


def parse_accept(header: bytes) -> tuple[Accept, ...]:
    """The acceptable answers that this server can give, best first. Unknown ones are left out."""
    return _parsed(header) if len(header) <= _SHORT else _parsed.__wrapped__(header)


@lru_cache(maxsize=1024)
def _parsed(header: bytes) -> tuple[Accept, ...]:
    found: list[tuple[float, int, Accept]] = []
    for position, clause in enumerate(header.decode("latin-1").split(",")[:32]):
        media, *raw = (part.strip() for part in clause.split(";"))
        parameters = dict(part.split("=", 1) for part in raw if "=" in part)
        try:
            quality = float(parameters.get("q", "1"))
        except ValueError:
            quality = 0.0
        encoding = {"application/json": JSON, "*/*": JSON, "application/*": JSON, "application/yaml": YAML}.get(media)
        if encoding is None or not quality > 0:
            continue
        kind, group, version = (parameters.get(key, "") for key in ("as", "g", "v"))
        known = (
            not kind
            or (
                (kind in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"))
                and group == _TABLE_GROUP
                and version in ("v1", "v1beta1")
            )
            or (kind == "APIGroupDiscoveryList" and group == _DISCOVERY_GROUP and version in ("v2", "v2beta1"))
        )
        if known:
            found.append((-quality, position, Accept(encoding, kind, group, version)))
    return tuple(accept for _, _, accept in sorted(found, key=lambda entry: entry[:2]))


PLAIN: Final = Accept()
_PLAIN: Final = frozenset({b"*/*", b"application/json"})
_ENCODINGS: Final = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


def preferred(header: bytes) -> Accept:
    """The encoding of an answer that has only one form: of an error, or of a ``Status``."""
    return next((Accept(accept.media) for accept in parse_accept(header)), PLAIN) if header else PLAIN


def require_acceptable(request: Request) -> None:
    """Raises ``NotAcceptable`` (406) when the client takes none of the encodings, whatever the form."""
    header = request.headers.get(b"accept", b"")
    if header and header not in _PLAIN and not _is_acceptable(header):
        streams = ("", *(f"{media};stream=watch" for media in (_ENCODINGS[0], _ENCODINGS[2])))
        several = request.info.verb in ("list", "watch")
        media = f"{', '.join(_ENCODINGS)}{', '.join(streams) if several else ''}"
        error = NotAcceptable(f"406: Not Acceptable\n\nAvailable representations: {media}")
        error.always_detailed = True
        raise error
    if header and request.info.is_resource and not parse_accept(header):
        raise _unproducible()


def _unproducible() -> NotAcceptable:
    return NotAcceptable(f"only the following media types are accepted: {', '.join(_ENCODINGS)}")


def _is_acceptable(header: bytes) -> bool:
    return _known_acceptable(header) if len(header) <= _SHORT else _known_acceptable.__wrapped__(header)


@lru_cache(maxsize=1024)
def _known_acceptable(header: bytes) -> bool:
    return any(
        clause.split(";")[0].strip() in (*_ENCODINGS, "*/*", "application/*")
        for clause in header.decode("latin-1").split(",")[:32]
    )


def negotiate(request: Request, *, forms: bool = True, aggregated: bool = False) -> Accept:
    """The answer to give: the best acceptable one; with ``forms`` Table and PartialObjectMetadata count too.

    Raises ``NotAcceptable`` (406) when nothing that the client takes can be produced.
    """
    header = request.headers.get(b"accept", b"")
    if not header or header in _PLAIN:
        return PLAIN
    for accept in parse_accept(header):
        if not accept.kind or (forms and (accept.is_table or accept.is_partial)):
            return accept
        if aggregated and accept.is_aggregated:
            return accept
    raise _unproducible()


def content_type(request: Request) -> str:
    """The media type of the body, without parameters; JSON when none is named."""
    header = request.headers.get(b"content-type", JSON)
    if header == JSON:
        return "application/json"
    return header.split(b";", 1)[0].strip().lower().decode("latin-1") or "application/json"


def require_content_type(request: Request, *allowed: str) -> str:
    """The media type of the body, which must be one of ``allowed``; raises ``UnsupportedMediaType`` (415)."""
    media = content_type(request)
    if media not in allowed:
        raise UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: " + ", ".join(allowed)
        )
    return media


def require_patch_type(request: Request, *allowed: str) -> str:
    """The kind of a patch, which must be one of ``allowed``; raises ``UnsupportedMediaType`` (415)."""
    media = content_type(request)
    if media not in allowed:
        error = UnsupportedMediaType("415: Unsupported Media Type")
        error.always_detailed = True
        raise error
    return media


def encode(body: Any, accept: Accept) -> bytes:
    """``body`` in the negotiated encoding. Bytes are taken as finished JSON. Raises ``NotAcceptable``."""
    if accept.media == YAML:
        # Of what is no text yet the values alone: the words of an error may be many.
        size = weight(body) if isinstance(body, bytes) else count_values(orjson.dumps(body), YAML_MAX)
        if size > YAML_MAX:
            raise NotAcceptable("the answer is too large for application/yaml, ask for application/json")
        value = orjson.loads(body) if isinstance(body, bytes) else body
        return yaml.dump(value, Dumper=_Dumper, sort_keys=True, allow_unicode=True).encode()
    return body if isinstance(body, bytes) else orjson.dumps(body)


class _Dumper(yaml.SafeDumper):
    """Writes every value out, since anchors would surprise readers; and quotes as kube-apiserver does."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None if is_plain_text(text) else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def respond(request: Request, body: Any, *, status: int = 200, accept: Accept = PLAIN) -> Response:
    """A response with ``body`` encoded, compressed when it is large and the client takes gzip."""
    data = encode(body, accept)
    headers: Headers = ()
    if len(data) >= _COMPRESS_FROM and takes_gzip(request):
        data = gzip.compress(data, compresslevel=1)
        headers = ((b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding"))
    return Response(status, data, accept.media, headers)


async def respond_at_length(request: Request, data: bytes, *, accept: Accept = PLAIN) -> Response:
    """``respond`` for bytes that may be many: they are compressed beside the event loop."""
    answer = partial(respond, request, data, accept=accept)
    return await request.in_thread(len(data) if takes_gzip(request) else 0, answer)


def takes_gzip(request: Request) -> bool:
    """Whether the client takes compressed answers."""
    return b"gzip" in request.headers.get(b"accept-encoding", b"")


def warning_headers(warnings: Iterable[str]) -> Headers:
    """``Warning`` headers (RFC 7234, code 299) as kubectl shows them, at most 4 KiB together."""
    headers: list[tuple[bytes, bytes]] = []
    room = 4096
    for text in dict.fromkeys(warnings):
        quoted = "".join(c if c.isprintable() and ord(c) < 256 else " " for c in text)
        line = ('299 - "' + quoted.replace("\\", "\\\\").replace('"', '\\"') + '"').encode("latin-1")
        if len(line) <= room:
            room -= len(line)
            headers.append((b"warning", line))
    return tuple(headers)
