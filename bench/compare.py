"""Two versions of the API server in turns: what a request costs each of them, path by path.

``python -m bench.compare FOLDER [ROUNDS]`` (5 rounds): FOLDER is a checkout of the other version in which
``make .venv/.development`` was run. Both servers run all the time, each with its own database on one core, and are asked
one after the other, in the reverse order every second round, so that what else the machine does meets both. The figure is
the server's own processor time a request, which a neighbour disturbs less than the rate; the median of the rounds, and the
ratio, over 1 where this version costs more.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.apiserver import BASE, CONFIGMAP, REVIEW, Target
from bench.load import drive
from bench.processes import processor_seconds
from tests.story.product import ROOT

_SERVE = """
import json, sys
from bench.apiserver import served, tenanted
with tenanted() as (product, token), served(product, token) as target:
    print(json.dumps([target.url, token, target.pid]), flush=True)
    sys.stdin.read()
"""
_LIST = "/api/v1/namespaces/list/configmaps"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def _paths() -> dict[str, tuple[int, str, Mapping[str, Any]]]:
    """What is asked: by how many connections, where, and with what."""
    new = json.dumps({**CONFIGMAP, "metadata": {"name": "new-@N@"}})
    whole = json.dumps({**CONFIGMAP, "metadata": {"name": "one"}, "data": {"word": "@N@"}})
    asked = {**REVIEW, "spec": {**REVIEW["spec"], "user": "jane-@N@"}}  # type: ignore[dict-item]
    return {
        "GET": (32, f"{BASE}/one", {}),
        "GET, one connection": (1, f"{BASE}/one", {}),
        "GET from the cache": (32, f"{BASE}/one?resourceVersion=0", {}),
        "LIST of 500": (1, _LIST, {}),
        "CREATE": (32, BASE, {"method": "POST", "body": new}),
        "UPDATE": (1, f"{BASE}/one", {"method": "PUT", "body": whole}),
        "PATCH": (1, f"{BASE}/one", {"method": "PATCH", "body": json.dumps({"data": {"word": "@N@"}})}),
        "SubjectAccessReview": (32, _REVIEWS, {"method": "POST", "body": json.dumps(REVIEW)}),
        "… of a new user each": (32, _REVIEWS, {"method": "POST", "body": json.dumps(asked)}),
    }


@contextlib.contextmanager
def _served(tree: Path) -> Iterator[Target]:
    """The API server of a checkout, with what is asked for in its space."""
    command = [tree / ".venv" / "bin" / "python", "-c", _SERVE]
    pipe, environment = subprocess.PIPE, {**os.environ, "PYTHONPATH": str(tree)}
    with subprocess.Popen(command, cwd=tree, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url, token, pid = json.loads(process.stdout.readline())
        target = Target(str(tree), url, token, pid)
        connection = target.connect()
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "list"}}
        target.call(connection, "POST", "/api/v1/namespaces", namespace)
        for name in (f"item-{number}" for number in range(500)):
            target.call(connection, "POST", _LIST, {**CONFIGMAP, "metadata": {"name": name}})
        target.call(connection, "POST", BASE, {**CONFIGMAP, "metadata": {"name": "one"}})
        try:
            yield target
        finally:
            process.stdin.close()


def _cost(target: Target, connections: int, path: str, how: Mapping[str, Any]) -> float:
    """Microseconds of the server's processor time a request."""
    patch = how.get("method") == "PATCH"
    headers = target.headers | ({"Content-Type": "application/merge-patch+json"} if patch else {})
    before = processor_seconds(target.pid)
    figures = drive(target.url + path, connections=connections, headers=headers, seconds=2, **how)
    if figures.errors:
        raise RuntimeError(f"{path}: {figures}")
    return (processor_seconds(target.pid) - before) / (figures.rate * 2) * 1e6


def main() -> None:
    """Ask both in turns and print what a request costs each."""
    other, rounds = Path(sys.argv[1]).resolve(), int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with _served(ROOT) as mine, _served(other) as theirs:
        for label, (connections, path, how) in _paths().items():
            costs: dict[str, list[float]] = {mine.name: [], theirs.name: []}
            for number in range(rounds):
                for target in (mine, theirs) if number % 2 else (theirs, mine):
                    costs[target.name].append(_cost(target, connections, path, how))
            this, that = (statistics.median(costs[target.name]) for target in (mine, theirs))
            ratio = statistics.median(a / b for a, b in zip(*costs.values(), strict=True))
            print(f"  {label:<22} {this:7.0f} µs a request, the other {that:7.0f}: {ratio:.2f}x", flush=True)


if __name__ == "__main__":
    main()
