"""One script put to a server: what was asked, what was answered, and what of it is compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from kube.requests.names import LABEL_MAX
from tests.speaking import Answer, Speaker
from tests.story.product import eventually

VOLATILE = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "<time>"),
    (re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"), "<jwt>"),
    (re.compile(r"10\.0\.0\.\d+"), "<ip>"),
    (re.compile(r"(?<=X509SHA256=)[0-9a-f]{64}"), "<hash>"),
    (re.compile(r"(?<=current: )\d+"), "<revision>"),
    (re.compile(r"(?<=Bad_)[a-z0-9]{5}\b"), "<suffix>"),
    (re.compile(r"(?<=in record \()\d+"), "<revision>"),
    # It is called by the place in its source, as far as the build has kept that.
    (re.compile(r'(?<=in scheme ")[^"]+'), "<scheme>"),
)
_AGE = re.compile(r"\d+[smhd](\d+[smhd])?")
"""What a cell of a table says of how old something is; elsewhere ``500m`` is an amount."""

BY_NAME = {
    "resourceVersion": "<revision>",
    "continue": "<token>",
    "ca.crt": "<certificates>",
    "nodePort": "<port>",
    "healthCheckNodePort": "<port>",
}
MANAGERS = frozenset(("applier", "merger", "part", "poster", "putter"))
"""By these names the script writes where only its own fields count."""
_SUFFIX = 5
"""How many characters a server adds to ``generateName``."""


@dataclass(frozen=True)
class Exchange:
    """A request by its name in the script, and the comparable part of its answer."""

    request: str
    answer: dict[str, Any]


class Conversation:
    """What a section of the script speaks through. Every ``say`` is compared, nothing else is."""

    def __init__(self, speaker: Speaker, section: str) -> None:
        self.speaker = speaker
        self.section = section
        self.exchanges: list[Exchange] = []
        self.namespace = f"eq-{section}"[:LABEL_MAX].rstrip("-")
        self.core = f"/api/v1/namespaces/{self.namespace}"

    def say(self, method: str, path: str, body: Any = None, media: str = "application/json", **headers: str) -> Answer:
        """Ask and keep the answer for the comparison."""
        return self._keep(self.speaker.send(method, path, body, media, **headers), method, path, body)

    def note(self, path: str, part: Callable[[Answer], Any], **headers: str) -> Answer:
        """GET, and keep what ``part`` makes of the answer: what is compared of it."""
        answer = self.speaker.send("GET", path, **headers)
        return self._keep(replace(answer, body=part(answer)), "GET", " ".join((path, *headers.values())))

    def part(self, method: str, path: str, body: Any, part: Callable[[Answer], Any], **headers: str) -> Answer:
        """Ask, and keep what ``part`` makes of the answer: what is compared of it."""
        answer = self.speaker.send(method, path, body, **headers)
        return self._keep(replace(answer, body=part(answer)), method, " ".join((path, *headers.values())), body)

    def keep(self, question: str, said: Any) -> None:
        """Keep for the comparison what was found by several requests."""
        self.exchanges.append(Exchange(question, {"status": 200, "body": comparable(said)}))

    def verdict(self, method: str, path: str, body: Any, media: str = "application/json") -> Answer:
        """Ask, and keep for the comparison only whether it was refused, why, and what was warned of."""
        answer = self.speaker.send(method, path, body, media)
        said = {"message": answer["message"]} if answer.status >= 400 else {}
        warnings = tuple(sorted(answer.warnings))  # those about annotations come in any order
        return self._keep(Answer(answer.status, {"content-type": "application/json"}, warnings, said), method, path)

    def refused(self, method: str, path: str, body: Any, media: str = "application/json") -> Answer:
        """Ask, and keep for the comparison only how it was refused: the words tell of where the real server keeps it."""
        answer = self.speaker.send(method, path, body, media)
        said = Answer(answer.status, {"content-type": "application/json"}, (), {"reason": answer["reason"]})
        return self._keep(said, method, path, body)

    def owners(self, method: str, path: str, body: Any, media: str = "application/json") -> Answer:
        """Ask, and keep for the comparison only who of the script owns which fields afterwards, or why it was refused."""
        answer = self.speaker.send(method, path, body, media)
        while answer.status == 409 and method == "PUT":
            # A controller came between.
            live = self.speaker.send("GET", path.partition("?")[0])
            body["metadata"]["resourceVersion"] = live.revision
            answer = self.speaker.send(method, path, body, media)
        if answer.status >= 400:
            said = {"message": answer["message"]}
        else:
            entries = answer["metadata"].get("managedFields") or ()
            known = [entry for entry in entries if entry["manager"] in MANAGERS]
            # They come by the second of the write.
            said = {
                "owners": sorted(
                    known, key=lambda each: (each["manager"], each["operation"], each.get("subresource", ""))
                )
            }
        return self._keep(Answer(answer.status, {"content-type": "application/json"}, (), said), method, path)

    def hear(self, *questions: tuple[str, dict[str, str]]) -> None:
        """GET all of these paths, with these headers, at the same time: some answers take their seconds.

        Each has a connection of its own, and so maybe a process of the server that has not heard of the last writes yet:
        resource version 0 may be answered by that. Before such a question the same is read as it is now.
        """

        def ask(speaker: Speaker, question: tuple[str, dict[str, str]]) -> Answer:
            path, headers = question
            if "resourceVersion=0" in path:
                speaker.send("GET", path.partition("?")[0])
            return speaker.send("GET", path, **headers)

        speakers = [self.speaker.at(self.speaker.prefix) for _ in questions]
        with ThreadPoolExecutor(len(questions)) as threads:
            answers = threads.map(ask, speakers, questions)
            for (path, _), answer in zip(questions, answers, strict=True):
                self._keep(answer, "GET", path)
        for speaker in speakers:
            speaker.close()

    def _keep(self, answer: Answer, method: str, path: str, body: Any = None) -> Answer:
        request = stable(f"{method} {path}")
        if body is not None and not isinstance(body, dict):
            request += f" {str(body)[:60]!r}"
        kept: dict[str, Any] = {"status": answer.status, "body": comparable(answer.body)}
        media = answer.headers.get("content-type", "")
        if media != "application/json":
            kept["media"] = media
        if answer.warnings:
            kept["warnings"] = list(answer.warnings)
        self.exchanges.append(Exchange(request, kept))
        return answer

    def set_up(self, namespace: str = "") -> None:
        """Make the section's namespace, complete with what the servers put into it."""
        name = namespace or self.namespace
        self.speaker.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.until_complete(name)

    def until_complete(self, namespace: str) -> None:
        """Wait for what the servers put into a namespace."""
        for given in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            path = f"/api/v1/namespaces/{namespace}/{given}"
            self.until(lambda path=path: self.speaker.send("GET", path).status == 200)  # type: ignore[misc]

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for what a server does in its own time."""
        eventually(condition)


def stable(text: str) -> str:
    """``text`` without what differs from run to run."""
    for pattern, name in VOLATILE:
        text = pattern.sub(name, text)
    text = re.sub(r"(resourceVersion=)[1-9]\d*", r"\1<revision>", text)
    return re.sub(r"(continue=)[\w-]{20,}", r"\1<token>", text)


def comparable(body: Any) -> Any:
    """A body with volatile values replaced by their names; lines of a watch become a list."""
    if isinstance(body, str):
        lines = body.strip().splitlines()
        if lines and all(line.startswith("{") for line in lines):
            return [_plain(json.loads(line)) for line in lines]
        return stable(body)
    return _plain(body)


def _plain(node: Any, name: str = "") -> Any:
    if isinstance(node, dict):
        prefix, made = node.get("generateName"), str(node.get("name", ""))
        plain = {key: _plain(value, key) for key, value in sorted(node.items()) if value is not None}
        if prefix and len(made) > _SUFFIX and prefix.startswith(made[:-_SUFFIX]):
            plain["name"] = f"{prefix}<suffix>"
            if made in (node.get("labels") or {}).values():
                plain["labels"] = {
                    key: f"{prefix}<suffix>" if value == made else value for key, value in plain["labels"].items()
                }
        return plain
    if isinstance(node, list):
        items = [_plain(item) for item in node]
        if name == "cells":
            return ["<age>" if isinstance(item, str) and _AGE.fullmatch(item) else item for item in items]
        # Entries are kept by the second in which they were written.
        return sorted(items, key=_owner) if name == "managedFields" else items
    if name in BY_NAME and node not in ("", "0"):
        return BY_NAME[name]
    return stable(node) if isinstance(node, str) else node


def _owner(entry: Any) -> tuple[str, ...]:
    fields = ("operation", "manager", "apiVersion", "subresource")
    return tuple(str(entry.get(field, "")) for field in fields) if isinstance(entry, dict) else ()


def differences(ours: Any, theirs: Any, path: str = "") -> list[tuple[str, Any, Any]]:
    """Every place where two comparable values differ: (path, ours, theirs); absent is ``None``.

    The volume of a token, which one of them puts beside others, is a difference of its own.
    """
    if isinstance(theirs, list) and (given := [each for each in theirs if _is_of_a_token(each)]):
        rest = [each for each in theirs if each not in given]
        return [(path, None, given), *differences(ours, rest or None, path)]
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in sorted({*ours, *theirs}):
            found += differences(ours.get(key), theirs.get(key), f"{path}.{key}".lstrip("."))
        return found
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            entry
            for index, pair in enumerate(zip(ours, theirs, strict=True))
            for entry in differences(*pair, f"{path}[{index}]")
        ]
    return [] if ours == theirs else [(path, ours, theirs)]


def _is_of_a_token(node: Any) -> bool:
    return isinstance(node, dict) and str(node.get("name", "")).startswith("kube-api-access-")
