"""Whatever stands in a body, the answer is never a crash (P9, API-26)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any

import yaml

from tests.gateway.callers import Caller

BODIES: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
REQUESTS = 800
NAMES = 6
CREATED_ONLY = ("token", "eviction", "binding", "bindings", "reviews")
WRONG: list[Any] = [
    None,
    [],
    {},
    "",
    "x",
    "\0",
    "a" * 300,
    0,
    1,
    -1,
    1.5,
    2**63,
    -(2**63),
    True,
    [None],
    [1],
    ["x"],
    [[]],
    {"a": 1},
    {"": ""},
    {"x": {"y": {}}},
    [{"name": 1}],
    [{"name": "a"}, {"name": "a"}],
]
METADATA = {
    "labels": {"a": "b"},
    "annotations": {"a": "b"},
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "y"}],
    "finalizers": ["a/b"],
    "managedFields": [
        {
            "manager": "x",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:metadata": {}},
        }
    ],
}
STATUS = {"conditions": [{"type": "x", "status": "True"}], "phase": "x", "replicas": 1, "hard": {"cpu": "1"}}
SCALE = {
    "kind": "Scale",
    "apiVersion": "autoscaling/v1",
    "metadata": {"name": "h0", "resourceVersion": "1"},
    "spec": {"replicas": 1},
}
OPTIONS = {
    "preconditions": {"uid": "x", "resourceVersion": "1"},
    "propagationPolicy": "Background",
    "gracePeriodSeconds": 0,
    "dryRun": ["All"],
}
POINTERS = ["", "/metadata", "/metadata/name", "/metadata/labels/a", "/spec", "/spec/containers/0", "/status", "/kind"]

Asked = tuple[str, str, Any, str]


class Hostile:
    """Makes requests that are wrong somewhere, the same ones in every run."""

    def __init__(self, namespace: str) -> None:
        self._random = random.Random(7)
        self._namespace = namespace

    def spoiled(self, value: Any) -> Any:
        """The value with one place of it replaced."""
        if isinstance(value, dict | list) and value and self._random.random() < 0.85:
            copied: Any = value.copy()
            place = self._random.choice(list(value) if isinstance(value, dict) else range(len(value)))
            copied[place] = self.spoiled(value[place])
            return copied
        return self._random.choice(WRONG)

    def victims(self) -> Iterator[Asked]:
        """Good objects, for the others to be put to."""
        for path, body in BODIES.items():
            for number in range(NAMES):
                good = {**body, "metadata": {"name": f"h{number}"}}
                yield "POST", path.format(namespace=self._namespace), good, "application/json"

    def request(self) -> Asked:
        """Method, path, body and media type."""
        choose = self._random.choice
        path = choose(list(BODIES))
        body = {**BODIES[path], "metadata": {"name": f"h{self._random.randrange(NAMES)}"}}
        if self._random.random() < 0.3:
            body["metadata"] |= METADATA
        path = path.format(namespace=self._namespace)
        if path.endswith(CREATED_ONLY):
            return "POST", path, self.spoiled(body), "application/json"
        one = f"{path}/h{self._random.randrange(NAMES)}"
        merge = "application/merge-patch+json"
        match choose(
            ["create", "create", "update", "merge", "strategic", "apply", "json", "scale", "status", "delete"]
        ):
            case "create":
                return "POST", path, self.spoiled(body), "application/json"
            case "update":
                return "PUT", one, self.spoiled(body), "application/json"
            case "merge":
                return "PATCH", one, self.spoiled(body), merge
            case "strategic":
                return "PATCH", one, self.spoiled(body), "application/strategic-merge-patch+json"
            case "apply":
                target = f"{one}?fieldManager=h&force=true"
                return "PATCH", target, self.spoiled(body), "application/apply-patch+yaml"
            case "json":
                operation = {
                    "op": choose(["add", "replace", "remove", "copy", "move", "test"]),
                    "path": choose(POINTERS),
                    "from": choose(POINTERS),
                    "value": choose(WRONG),
                }
                return "PATCH", one, [operation], "application/json-patch+json"
            case "scale":
                method, media = choose([("PUT", "application/json"), ("PATCH", merge)])
                return method, f"{one}/scale", self.spoiled(SCALE), media
            case "status":
                method, media = choose([("PUT", "application/json"), ("PATCH", merge)])
                return method, f"{one}/status", self.spoiled({**body, "status": STATUS}), media
            case _:
                return "DELETE", one, self.spoiled(OPTIONS), "application/json"


class Connected:
    """One connection, opened again when the server has closed it."""

    def __init__(self, caller: Caller) -> None:
        self._connection = HTTPSConnection(caller.host, context=caller.context, timeout=300)

    def send(self, asked: Asked) -> tuple[int, bytes]:
        method, path, body, media = asked
        try:
            self._connection.request(method, path, json.dumps(body).encode(), {"Content-Type": media})
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except (OSError, HTTPException):
            self._connection.close()
            return 0, b""

    def close(self) -> None:
        self._connection.close()


def test_no_body_makes_the_server_fail(alice: Caller, namespace: str) -> None:
    """P9: a 4xx with a reason, whatever is wrong and wherever."""
    hostile, connected = Hostile(namespace), Connected(alice)
    failed = []
    statuses: set[int] = set()
    for asked in hostile.victims():
        connected.send(asked)
    for _ in range(REQUESTS):
        asked = hostile.request()
        status, answer = connected.send(asked)
        statuses.add(status)
        if not 200 <= status < 500:
            failed.append((status, *asked, answer[:300]))
    connected.close()
    assert failed == []
    assert {200, 201, 400, 404, 422} <= statuses
