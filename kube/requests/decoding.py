"""Bodies of requests as JSON values, decoded within bounds (API-26, ADM-11: hostile input never gives a 500).

Both decoders give JSON types only and refuse the same things: more than 3 MiB, more than ``MAX_DEPTH`` levels and
numbers that are no JSON numbers. In JSON, bytes that are not UTF-8 and lone surrogates become U+FFFD, as in Go; YAML
with them is refused. Errors are told in Go's words, without saying what was being decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

import orjson
import yaml

from kube.requests.jsonsyntax import LENGTH_MAX, syntax_error
from kube.requests.status import BadRequest, RequestEntityTooLarge

MAX_BYTES: Final = 3 * 1024 * 1024
"""kube-apiserver's limit for a request body."""

MAX_DEPTH: Final = 256
"""Levels of nesting. Recursive readers of a decoded body stay far below Python's recursion limit with it."""

MAX_YAML_NODES: Final = 100_000
"""Values in a YAML body with every alias written out: what an alias bomb is stopped by."""

MAX_VALUES: Final = 100_000
"""Commas and opening brackets in a JSON body outside of its texts, hence about as many values."""

HEAVY: Final = 1_000
"""Values from which on the work on a body may take longer than others should wait."""

SMALL: Final = 4 * 1024
"""Bytes of a body from which on it is weighed."""

MAX_DUPLICATES: Final = 100
"""How many duplicate fields are named at most, as in kube-apiserver."""

PATH_MAX: Final = 1_000
"""Characters of a duplicate or unknown field's path that are shown."""


class TooHeavy(Exception):
    """What was asked would hold whoever answers others, too."""


class TooManyValues(RequestEntityTooLarge):
    """A body holds more values than it may."""


class ValueCount:
    """How many values a decoder has made, of which there may be ``most``: what its bytes do not tell beforehand."""

    __slots__ = ("most", "values")

    def __init__(self, most: int) -> None:
        self.most = most
        self.values = 0

    def add(self, values: int = 1) -> None:
        """Count them before they are made. Raises ``TooManyValues``."""
        self.values += values
        if self.values > self.most:
            raise TooManyValues(f"Request entity too large: limit is {self.most} values")


def decode_json(body: bytes) -> Any:
    """The value of a JSON body; of duplicate keys the last one wins.

    Raises ``RequestEntityTooLarge`` (413) and ``BadRequest`` (400).
    """
    return _decoded(body, _repaired)


def decode_unambiguous(body: bytes) -> Any:
    """The value of a JSON body that every reader takes for the same, for bodies that somebody else reads once more.

    Raises as ``decode_json``, and ``BadRequest`` for keys that are there twice, which it names, and for characters that
    do not exist.
    """
    value = _decoded(body, _refused)
    twice = duplicate_fields(body, value)
    if twice:
        raise BadRequest("strict decoding error: " + ", ".join(f'duplicate field "{path}"' for path in twice))
    return value


def _decoded(body: bytes, otherwise: Callable[[bytes, str], Any]) -> Any:
    _check_size(body)
    _check_values(body)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        value = otherwise(body, str(error))
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH:
        _check_depth(value)
    return value


def _refused(body: bytes, problem: str) -> Any:
    raise BadRequest(syntax_error(body) or problem)


def _repaired(body: bytes, problem: str) -> Any:
    """The value of a body that is JSON but for characters that do not exist. Raises ``BadRequest`` for any other."""
    wrong = syntax_error(body)
    if wrong or len(body) > LENGTH_MAX:
        raise BadRequest(wrong or problem)
    try:
        text = json.dumps(json.loads(body.decode("utf-8", "replace")), ensure_ascii=False)
        return orjson.loads(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    except (ValueError, RecursionError):
        raise BadRequest(problem) from None


def duplicate_fields(body: bytes, value: Any) -> list[str]:
    """The paths of keys that a JSON body names twice (``metadata.labels.a``, ``spec.containers[0].image``).

    ``value`` is what ``decode_json`` has made of it.
    """
    if b"\\" not in body:
        # Written again from its value, a body loses the quotation marks of what it names twice, and no others.
        try:
            if orjson.dumps(value).count(b'"') == body.count(b'"'):
                return []
        except orjson.JSONEncodeError:
            pass
    seen = False

    def collect(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal seen
        value = dict(pairs)
        if len(value) != len(pairs):
            seen = True
        return value

    text = body.decode("utf-8", "replace")
    json.loads(text, object_pairs_hook=collect, parse_float=_no_number, parse_int=_no_number)
    if not seen:
        return []
    return _duplicate_paths(json.loads(text, object_pairs_hook=_pairs, parse_float=_no_number, parse_int=_no_number))


def _no_number(_digits: str) -> int:
    """Instead of a number that nobody asks for. In Python, for in it others get the interpreter, as in ``_pairs``."""
    return 0


def decode_yaml(body: bytes, count: ValueCount | None = None) -> Any:
    """The value of the first document of a YAML body, read as Kubernetes reads it: YAML 1.1 booleans, dates as text.

    Of duplicate keys the last one wins. Raises ``RequestEntityTooLarge`` (413) and ``BadRequest`` (400), for tags too;
    ``TooManyValues`` beyond a ``count`` that lets in less than any body may hold.
    """
    return read_yaml(body, count)[0]


def read_yaml(body: bytes, count: ValueCount | None = None) -> tuple[Any, list[str]]:
    """As ``decode_yaml``, and the keys that the body names twice, in the words of Go's reader.

    JSON is YAML, and read as such much faster.
    """
    _check_size(body)
    if body.startswith(b"{"):
        try:
            value = decode_json(body)
            if not duplicate_fields(body, value):
                return value, []
        except BadRequest:
            pass
    count = count or ValueCount(MAX_YAML_NODES)
    reader = _YamlReader(count)
    try:
        return reader.read(body.decode("utf-8")), reader.duplicates[:MAX_DUPLICATES]
    except TooManyValues:
        if count.most < MAX_YAML_NODES:
            raise
        raise BadRequest("yaml: document contains excessive aliasing or too many values") from None
    except yaml.MarkedYAMLError as error:
        raise BadRequest(f"yaml: {_line(error)}{error.problem}") from None
    except yaml.reader.ReaderError:
        raise BadRequest("yaml: control characters are not allowed") from None
    except UnicodeDecodeError:
        raise BadRequest("yaml: invalid Unicode character") from None
    except (yaml.YAMLError, ValueError) as error:
        raise BadRequest(f"yaml: {error}") from None


def _line(error: yaml.MarkedYAMLError) -> str:
    """Where Go's reader sees an error: it counts from 0, after a scanner's error from 1, and does not say 0."""
    late = error.problem_mark.line if error.problem_mark else 0
    early = error.context_mark.line if error.context_mark else 0
    line = late + isinstance(error, yaml.scanner.ScannerError) if late else early
    return f"line {line}: " if line else ""


def _check_size(body: bytes) -> None:
    if len(body) > MAX_BYTES:
        raise RequestEntityTooLarge(f"Request entity too large: limit is {MAX_BYTES}")


def weight(body: bytes) -> int:
    """About how many values a body holds at most, found much faster than by decoding it; 0 for every small one."""
    if len(body) < SMALL:
        return 0
    return body.count(b",") + body.count(b"{") + body.count(b"[") + body.count(b"\n")


_MARKS: Final = (b",", b"{", b"[")
"""One of them stands before nearly every value."""


def count_values(body: bytes, most: int) -> int:
    """How many values a JSON body holds, found without decoding it; beyond ``most`` any number above it."""
    # Texts may hold as many marks as they like; without escapes, every second quotation mark ends one.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body
    if plain.count(b'"') > 4 * most:
        return most + 1
    return sum(part.count(mark) for part in plain.split(b'"')[::2] for mark in _MARKS)


def _check_values(body: bytes) -> None:
    """Raise ``RequestEntityTooLarge`` for more values than ``MAX_VALUES``: to decode them all would take too long."""
    if len(body) <= MAX_VALUES or sum(map(body.count, _MARKS)) <= MAX_VALUES:
        return
    if count_values(body, MAX_VALUES) > MAX_VALUES:
        raise RequestEntityTooLarge(f"Request entity too large: limit is {MAX_VALUES} values")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            for child in (node.values() if type(node) is dict else node if type(node) is list else ())
            if type(child) is dict or type(child) is list
        ]
        if not level:
            return
    raise BadRequest(f"exceeded max depth of {MAX_DEPTH}")


class _Pairs(list[tuple[str, Any]]):
    """A JSON object with its repeated keys still in it."""


def _pairs(pairs: list[tuple[str, Any]]) -> _Pairs:
    return _Pairs(pairs)


def _duplicate_paths(value: Any) -> list[str]:
    found: list[str] = []
    # A place is its parent's and its own name: written out for every member, a long name would fill the memory.
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while waiting and len(found) < MAX_DUPLICATES:
        place, node = waiting.pop()
        children: list[tuple[tuple[Any, ...], Any]] = []
        if isinstance(node, _Pairs):
            keys: set[str] = set()
            for key, child in node:
                children.append(((place, key), child))
                if key in keys:
                    found.append(_path((place, key)))
                keys.add(key)
        elif isinstance(node, list):
            children = [((place, index), child) for index, child in enumerate(node)]
        waiting.extend(reversed(children))
    return found[:MAX_DUPLICATES]


def _path(place: tuple[Any, ...]) -> str:
    parts: list[str] = []
    while place:
        place, name = place
        parts.append(f"[{name}]" if isinstance(name, int) else f".{name}")
    return "".join(reversed(parts)).removeprefix(".")[:PATH_MAX]


_NULLS: Final = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE: Final = frozenset(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"))
_FALSE: Final = frozenset(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"))
_INTEGER: Final = re.compile(r"[-+]?(?:0b[01]+|0o?[0-7]+|0x[0-9a-fA-F]+|0|[1-9][0-9]*)", re.ASCII)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_MAX_DIGITS: Final = 70  # 64 binary digits with sign and prefix; longer integers are floats as in Go


class _YamlReader:
    """Builds a value from parser events with an explicit stack, so that depth and size are counted as it grows."""

    def __init__(self, count: ValueCount) -> None:
        self._count = count
        self._anchors: dict[str, tuple[Any, int]] = {}
        self.duplicates: list[str] = []

    def read(self, text: str) -> Any:
        result: Any = None
        documents = 0
        stack: list[tuple[Any, Any, str | None, int]] = []  # container, pending key, anchor, nodes before it
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    break
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._plain_tag(event)
                if len(stack) >= MAX_DEPTH:
                    raise ValueError("exceeded max depth")
                container: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
                stack.append((container, _NO_KEY, event.anchor, self._count.values))
                if event.anchor:
                    self._anchors[event.anchor] = (_OPEN, 0)
                self._count.add()
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                container, _, anchor, before = stack.pop()
                if anchor:
                    self._anchors[anchor] = (container, self._count.values - before)
                result = self._put(stack, container, _line_of(event))
            elif isinstance(event, yaml.ScalarEvent):
                merges = event.value == "<<" and event.implicit[0] and stack and stack[-1][1] is _NO_KEY
                scalar = _MERGE if merges and type(stack[-1][0]) is dict else self._scalar(event)
                self._count.add()
                if event.anchor:
                    self._anchors[event.anchor] = (scalar, 1)
                result = self._put(stack, scalar, _line_of(event))
            elif isinstance(event, yaml.AliasEvent):
                if event.anchor not in self._anchors:
                    raise ValueError(f"unknown anchor '{event.anchor}' referenced")
                value, size = self._anchors[event.anchor]
                if value is _OPEN:
                    raise ValueError(f"anchor '{event.anchor}' value contains itself")
                self._count.add(size)
                result = self._put(stack, _copy(value), _line_of(event))
        return result

    @staticmethod
    def _plain_tag(event: Any) -> None:
        if event.tag is not None and event.tag not in ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"):
            raise ValueError(f"unsupported tag {event.tag}")

    def _put(self, stack: list[tuple[Any, Any, str | None, int]], value: Any, line: int) -> Any:
        if not stack:
            return value
        container, key, anchor, before = stack[-1]
        if type(container) is list:
            container.append(value)
        elif key is _NO_KEY:
            name = value if value is _MERGE else _key(value)
            if name in container:
                self.duplicates.append(f'line {line + 1}: key "{name}" already set in map')
            stack[-1] = (container, name, anchor, before)
        elif key is _MERGE:
            _merge(container, value)
            stack[-1] = (container, _NO_KEY, anchor, before)
        else:
            container[key] = value
            stack[-1] = (container, _NO_KEY, anchor, before)
        return value

    @staticmethod
    def _scalar(event: Any) -> Any:
        text: str = event.value
        if event.tag == "tag:yaml.org,2002:str" or (event.tag is None and not event.implicit[0]) or event.tag == "!":
            return text
        value = _resolve(text)
        if event.tag is not None and type(value) not in _TAGS.get(event.tag, ()):
            short = event.tag.replace("tag:yaml.org,2002:", "!!")
            raise ValueError(f"cannot decode !!{_TAG_OF.get(type(value), 'str')} `{text[:40]}` as a {short}")
        return value


def _line_of(event: yaml.Event) -> int:
    return event.start_mark.line if event.start_mark is not None else 0


_NO_KEY: Final = object()
_MERGE: Final = object()
_OPEN: Final = object()
_TAG_OF: Final = {bool: "bool", int: "int", float: "float", type(None): "null"}
_TAGS: Final[dict[str, tuple[type, ...]]] = {
    "tag:yaml.org,2002:null": (type(None),),
    "tag:yaml.org,2002:bool": (bool,),
    "tag:yaml.org,2002:int": (int,),
    "tag:yaml.org,2002:float": (int, float),
}


def _resolve(text: str) -> Any:
    """A plain scalar as Kubernetes' YAML reader types it."""
    if text in _NULLS:
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    digits = text.replace("_", "") if text[:1].isdigit() or text[:1] in "+-" else text
    if len(digits) <= _MAX_DIGITS and _INTEGER.fullmatch(digits):
        number = _integer(digits)
        if -(2**63) <= number < 2**64:
            return number
    if _FLOAT.fullmatch(digits):
        value = float(digits)
        if value in (float("inf"), float("-inf")):
            raise ValueError(f"number {text[:40]} is out of range")
        return value
    if text.lower() in (".inf", "+.inf", "-.inf", ".nan"):
        shown = "NaN" if text.lower() == ".nan" else "-Inf" if text[0] == "-" else "+Inf"
        raise BadRequest(f"json: unsupported value: {shown}")
    return text


_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ][0-9]{1,2}:[0-9]{2}:[0-9]{2}.*)?", re.ASCII)
_BASE_60: Final = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", re.ASCII)


def is_plain_text(text: str) -> bool:
    """Whether YAML readers, Go's and older ones, take an unquoted ``text`` for text."""
    try:
        return isinstance(_resolve(text), str) and not _TIME.fullmatch(text) and not _BASE_60.fullmatch(text)
    except (BadRequest, ValueError):
        return False


def _integer(digits: str) -> int:
    sign = -1 if digits[0] == "-" else 1
    body = digits.lstrip("+-")
    if len(body) > 1 and body[0] == "0":
        return sign * (int(body, 0) if body[1] in "bxo" else int(body, 8))
    return sign * int(body)


def _key(value: Any) -> str:
    """A mapping key as a JSON object's name, as sigs.k8s.io/yaml converts it."""
    if type(value) is bool:
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ValueError("invalid map key")


def _merge(container: dict[str, Any], value: Any) -> None:
    """What ``<<`` stands for: the members of one mapping, or of several of which the first ones count."""
    mappings = value if type(value) is list else [value]
    if not all(type(each) is dict for each in mappings):
        raise ValueError("map merge requires map or sequence of maps as the value")
    for each in reversed(mappings):
        container.update(_copy(each))


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(child) for key, child in value.items()}
    if type(value) is list:
        return [_copy(child) for child in value]
    return value
