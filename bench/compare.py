"""Two versions of the API server in turns: what a request costs each of them, path by path.

``python -m bench.compare FOLDER [ROUNDS [PATH...]]`` (30 rounds, 2 at least): FOLDER is a checkout of the other version in which
``make .venv/.development`` was run. Both servers run all the time, each with its own database on one core, and are asked
one after the other, a second each, in the reverse order every second round, so that what else the machine does meets both.
The figure is the server's own processor time a request, which a neighbour disturbs less than the rate; the median of the
rounds, and the median of their ratios with its quartiles, over 1 where this version costs more.
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
from typing import Any, Final

from bench.apiserver import BASE, CONFIGMAP, REVIEW, Target
from bench.measuring.load import drive
from bench.measuring.processes import processor_seconds
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
_NEW = json.dumps({**CONFIGMAP, "metadata": {"name": "new-@N@"}})
_WHOLE = json.dumps({**CONFIGMAP, "metadata": {"name": "one"}, "data": {"word": "@N@"}})
_ASKED = {**REVIEW, "spec": {**REVIEW["spec"], "user": "jane-@N@"}}  # type: ignore[dict-item]

PATHS: Final[Mapping[str, tuple[int, str, Mapping[str, Any]]]] = {
    "GET": (32, f"{BASE}/one", {}),
    "GET, one connection": (1, f"{BASE}/one", {}),
    "GET from the cache": (32, f"{BASE}/one?resourceVersion=0", {}),
    "LIST of 500": (1, _LIST, {}),
    "CREATE": (32, BASE, {"method": "POST", "body": _NEW}),
    "UPDATE": (1, f"{BASE}/one", {"method": "PUT", "body": _WHOLE}),
    "PATCH": (1, f"{BASE}/one", {"method": "PATCH", "body": json.dumps({"data": {"word": "@N@"}})}),
    "SubjectAccessReview": (32, _REVIEWS, {"method": "POST", "body": json.dumps(REVIEW)}),
    "… of a new user each": (32, _REVIEWS, {"method": "POST", "body": json.dumps(_ASKED)}),
}
"""What is asked: by how many connections, where, and with what."""


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
        fill(target)
        try:
            yield target
        finally:
            process.stdin.close()


def fill(target: Target) -> None:
    """Make what is asked for."""
    connection = target.connect()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "list"}}
    target.call(connection, "POST", "/api/v1/namespaces", namespace)
    for name in (f"item-{number}" for number in range(500)):
        target.call(connection, "POST", _LIST, {**CONFIGMAP, "metadata": {"name": name}})
    target.call(connection, "POST", BASE, {**CONFIGMAP, "metadata": {"name": "one"}})


def asked_for(target: Target, label: str) -> dict[str, Any]:
    """What ``drive`` is told for a path of this name."""
    connections, path, how = PATHS[label]
    patch = how.get("method") == "PATCH"
    headers = target.headers | ({"Content-Type": "application/merge-patch+json"} if patch else {})
    return {"url": target.url + path, "connections": connections, "headers": headers, **how}


def _cost(target: Target, label: str) -> float:
    """Microseconds of the server's processor time a request."""
    before = processor_seconds(target.pid)
    figures = drive(**asked_for(target, label), seconds=1)
    if figures.errors:
        raise RuntimeError(f"{label}: {figures}")
    return (processor_seconds(target.pid) - before) / figures.rate * 1e6


def main() -> None:
    """Ask both in turns and print what a request costs each."""
    other, rounds = Path(sys.argv[1]).resolve(), max(2, int(sys.argv[2])) if len(sys.argv) > 2 else 30
    with _served(ROOT) as mine, _served(other) as theirs:
        for label in sys.argv[3:] or PATHS:
            costs: dict[str, list[float]] = {mine.name: [], theirs.name: []}
            for number in range(rounds):
                for target in (mine, theirs) if number % 2 else (theirs, mine):
                    costs[target.name].append(_cost(target, label))
            this, that = (statistics.median(costs[target.name]) for target in (mine, theirs))
            low, ratio, high = statistics.quantiles((a / b for a, b in zip(*costs.values(), strict=True)), n=4)
            figures = f"{this:7.0f} µs a request, the other {that:7.0f}: {ratio:.2f}x ({low:.2f} to {high:.2f})"
            print(f"  {label:<22} {figures}", flush=True)


if __name__ == "__main__":
    main()
