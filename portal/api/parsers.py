"""JSON and YAML as they may come from anybody: bounded, UTF-8, one value a name, nothing that the database cannot hold."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import yaml
from rest_framework import exceptions
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request

from kube.requests.decoding import read_yaml
from kube.requests.status import StatusError

MAX_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 16
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


class TooLarge(exceptions.APIException):
    """413: the body has more bytes than ``MAX_BYTES``."""

    status_code = 413
    default_detail = "The body is larger than one mebibyte."
    default_code = "request_entity_too_large"


class StrictJSONParser(BaseParser):
    """``application/json`` in UTF-8, one mebibyte and sixteen levels at most."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """The value. Raises ``ParseError`` (400), ``TooLarge`` (413), ``UnsupportedMediaType`` (415)."""
        raw = _raw(stream, parser_context)
        try:
            value = json.loads(raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise exceptions.ParseError("The body is not valid JSON in UTF-8.") from error
        _check(value, MAX_DEPTH)
        return value


class StrictYAMLParser(BaseParser):
    """``application/yaml``: one document, within the same bounds, read as kubectl reads it."""

    media_type = "application/yaml"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None) -> Any:
        """The value. Raises as ``StrictJSONParser``."""
        raw = _raw(stream, parser_context)
        if _has_several(raw.decode("utf-8", "replace")):
            raise exceptions.ParseError("The body is several YAML documents: send each by itself.")
        try:
            value, duplicates = read_yaml(raw)
        except StatusError as error:
            raise exceptions.ParseError(f"The body is not valid YAML: {error.message[:300]}") from None
        if duplicates:
            raise exceptions.ParseError(f"The body is not valid YAML: {duplicates[0][:300]}")
        _check(value, MAX_DEPTH)
        return value


class YAMLRenderer(BaseRenderer):
    """The same as in JSON, in YAML, with its fields in their order."""

    media_type = "application/yaml"
    format = "yaml"
    charset = "utf-8"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """Of what JSON can say."""
        plain = json.loads(JSONRenderer().render(data)) if data is not None else None
        return b"" if plain is None else yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).encode()


class JsonOrYaml(BaseContentNegotiation):
    """JSON, and YAML for whoever names it; what a client accepts besides is its own affair."""

    def select_parser(self, request: Request, parsers: Iterable[BaseParser]) -> BaseParser | None:
        """By the kind of the body; nothing for other ones, which becomes 415."""
        kind = (request.content_type or "").split(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == kind), None)

    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """YAML where it is named and JSON is not."""
        accepted = {part.split(";")[0].strip().lower() for part in request.headers.get("Accept", "").split(",")}
        known = list(renderers)
        named = [renderer for renderer in known if renderer.media_type in accepted]
        chosen = (named or known)[0]
        return chosen, chosen.media_type


def _has_several(text: str) -> bool:
    """Whether there is something behind the end of the first document."""
    begun = ended = False
    for line in text.splitlines():
        if re.match(r"(---|\.\.\.)(\s|$)", line):
            ended, begun = begun, True
            line = line[3:]  # noqa: PLW2901 - a marker may have content behind it
        if line.strip() and not line.startswith(("#", "%")) and not line.strip().startswith("#"):
            if ended:
                return True
            begun = True
    return False


def _raw(stream: Any, parser_context: Mapping[str, Any] | None) -> bytes:
    request = (parser_context or {}).get("request")
    if request is not None and request.META.get("HTTP_CONTENT_ENCODING", "identity") != "identity":
        raise exceptions.UnsupportedMediaType(
            request.META["HTTP_CONTENT_ENCODING"], "Compressed bodies are not accepted."
        )
    raw: bytes = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise TooLarge
    return raw


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a name is given twice")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def _check(value: Any, depth: int) -> None:
    if depth == 0:
        raise exceptions.ParseError("The body is nested too deeply.")
    if isinstance(value, str):
        if _UNSTORABLE.search(value):
            raise exceptions.ParseError("The body contains NUL or surrogate characters.")
    elif isinstance(value, float) and not math.isfinite(value):
        raise exceptions.ParseError("The body contains a number that is too large.")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise exceptions.ParseError("The body contains an integer of more than 64 bits.")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check(key, depth)
            _check(item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth - 1)
