"""Two versions of the API server in turns: what a request costs each of them, path by path.

``python -m bench.compare FOLDER [STARTS [PATH...]]`` (6 starts, 2 at least): FOLDER is a checkout of the other version in which
``make .venv/.development`` was run. Both servers run at a time, each with its own database on one core, and are asked one
after the other, a second each, in the reverse order every second round, so that what else the machine does meets both. After
five rounds of every path both are started anew, the other one first: where a process and its database happen to lie in memory
stays with them for life, and makes more of a difference than most changes.

The figures are the server's own processor time a request, which a neighbour disturbs less than the rate, and the rate, in
which the database has its part: the medians of all rounds, and the ratios of both, over 1 where this version costs more, and
is slower. The ratio of a start is the median of its rounds; what is printed is the median of the starts, with their least and
greatest.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
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

ROUNDS: Final = 5
"""Of a path, between two starts."""

Costs = dict[str, dict[Path, list[list[tuple[float, float]]]]]
"""By path and checkout: the microseconds of processor time, and of time, that a request of every round took, start by start."""


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


def _cost(target: Target, label: str) -> tuple[float, float]:
    """Microseconds of the server's processor time a request, and from one answer to the next."""
    before = processor_seconds(target.pid)
    figures = drive(**asked_for(target, label), seconds=1)
    if figures.errors:
        raise RuntimeError(f"{label}: {figures}")
    return (processor_seconds(target.pid) - before) / figures.rate * 1e6, 1e6 / figures.rate


def _start(trees: Sequence[Path], labels: Sequence[str], costs: Costs) -> None:
    """One start of both servers: add the costs of every round."""
    with contextlib.ExitStack() as stack:
        targets = [stack.enter_context(_served(tree)) for tree in trees]
        for label in labels:
            for tree in trees:
                costs[label][tree].append([])
            for number in range(ROUNDS):
                for target in targets if number % 2 else reversed(targets):
                    costs[label][Path(target.name)][-1].append(_cost(target, label))


def main() -> None:
    """Ask both in turns and print what a request costs each."""
    mine, theirs = ROOT, Path(sys.argv[1]).resolve()
    starts, labels = max(2, int(sys.argv[2])) if len(sys.argv) > 2 else 6, sys.argv[3:] or list(PATHS)
    costs: Costs = {label: {mine: [], theirs: []} for label in labels}
    for number in range(starts):
        _start((mine, theirs) if number % 2 else (theirs, mine), labels, costs)
        print(f"start {number + 1} of {starts}", flush=True)
        for label, both in costs.items():
            print(f"  {label:<22} {_compared(both, mine, theirs)}", flush=True)


def _compared(both: dict[Path, list[list[tuple[float, float]]]], mine: Path, theirs: Path) -> str:
    """What is printed of one path."""
    said = []
    for column, unit in enumerate(("µs of processor", "µs in all")):
        this, that = ([[round_[column] for round_ in start] for start in both[tree]] for tree in (mine, theirs))
        ratios = [statistics.median(a / b for a, b in zip(*pair, strict=True)) for pair in zip(this, that, strict=True)]
        medians = [statistics.median(itertools.chain(*starts)) for starts in (this, that)]
        spread = f"{statistics.median(ratios):.2f}x ({min(ratios):.2f} to {max(ratios):.2f})"
        said.append(f"{medians[0]:5.0f} {unit}, the other {medians[1]:5.0f}: {spread}")
    return "; ".join(said)


if __name__ == "__main__":
    main()
