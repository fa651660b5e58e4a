"""What a request is made of: the processor time of GET, LIST, CREATE and review, stage by stage.

``python -m bench.budget [SECONDS]``, 3 a path unless told. How much a request costs is measured without the profiler; with
it, how that is shared among the stages, for a profiler makes everything slower, and small functions most. What the
interpreter and libraries do is counted with the stage that asked for it.
"""

from __future__ import annotations

import os
import pstats
import signal
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.apiserver import Target, served, tenanted
from bench.compare import asked_for, fill
from bench.measuring.load import drive
from bench.measuring.processes import processor_seconds
from tests.story.product import ROOT, eventually

PATHS: Final = ("GET", "LIST of 500", "CREATE", "SubjectAccessReview", "… of a new user each")

STAGES: Final = (
    ("connection, TLS", ("gateway/http/", "OpenSSL/")),
    ("authentication", ("access/authentication/", "kube/authentication/")),
    (
        "limits",
        ("access/requestlimits", "access/tenantlimits", "kube/requests/rateshares", "kube/requests/tokenbuckets"),
    ),
    ("authorization", ("access/authorization/", "kube/authorization/")),
    ("admission", ("access/admission/", "gateway/server/admission", "kube/policies/", "kube/quota/")),
    ("body and schema", ("kube/requests/decoding", "kube/objects/", "kube/customresources/", "kube/kinds/")),
    ("validation", ("kube/validation/",)),
    ("audit", ("audit/", "gateway/filters/auditing", "gateway/process/metrics")),
    ("store", ("store/",)),
    ("handlers", ("gateway/handlers/", "gateway/resources/", "gateway/upstream/", "gateway/controllers/")),
    ("the way between", ("gateway/", "access/", "kube/", "tenants/")),
)
"""Where the time goes, by the paths of our modules; the first that fits counts."""

OUTSIDE: Final = "event loop and others"

_Function = tuple[str, int, str]
_Timings = tuple[int, int, float, float]


def stage_of(file: str) -> str:
    """The stage that a module is part of; ``OUTSIDE`` for what is none of ours."""
    path = file.removeprefix(f"{ROOT}/")
    ours = "site-packages" not in path and not path.startswith(("/", "~"))
    return next((name for name, parts in STAGES if ours and path.startswith(parts)), OUTSIDE)


def by_stage(
    found: Mapping[_Function, tuple[int, int, float, float, Mapping[_Function, _Timings]]],
) -> dict[str, float]:
    """The time of each stage, of what ``pstats`` holds: what is none of ours is its callers', as each has called it."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for (file, _, _), (_, _, own, _, callers) in found.items():
        stage = stage_of(file)
        shares = {} if stage != OUTSIDE else callers
        for (caller, _, _), (_, _, asked, _) in shares.items():
            seconds[stage_of(caller)] += asked
        seconds[stage] += own - sum(asked for _, _, asked, _ in shares.values())
    return dict(seconds)


def _profiled(target: Target, file: Path, how: Mapping[str, Any]) -> tuple[Mapping[Any, Any], float]:
    """What the profiler has found, and how many requests it has met."""
    assert target.pid is not None
    file.unlink(missing_ok=True)
    os.kill(target.pid, signal.SIGUSR1)
    figures = drive(**how)
    os.kill(target.pid, signal.SIGUSR2)
    eventually(file.exists, within=10, every=0.1)
    return pstats.Stats(str(file)).stats, figures.rate * how["seconds"]  # type: ignore[attr-defined]


def budget(target: Target, label: str, file: Path, seconds: int) -> None:
    """Print what one path costs."""
    how = {**asked_for(target, label), "seconds": seconds}
    drive(**{**how, "seconds": 1})
    before = processor_seconds(target.pid)
    figures = drive(**how)
    whole = (processor_seconds(target.pid) - before) / (figures.rate * seconds) * 1e6
    found, requests = _profiled(target, file, how)
    calls = sum(timings[1] for timings in found.values()) / requests
    print(f"  {label}: {whole:,.0f} µs of processor time, {calls:,.0f} calls", flush=True)
    shares = by_stage(found)
    for stage, time in sorted(shares.items(), key=lambda share: -share[1]):
        part = time / sum(shares.values())
        print(f"    {stage:<22} {part * whole:7.1f} µs  {part:4.0%}", flush=True)


def main() -> None:
    """Serve, and look at each path."""
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    with tempfile.TemporaryDirectory(prefix="tenantry-budget-") as folder:
        file = Path(folder) / "found"
        program = ("-m", "bench.measuring.profiled", str(file))
        with tenanted() as (product, token), served(product, token, program=program) as target:
            fill(target)
            for label in PATHS:
                budget(target, label, file, seconds)


if __name__ == "__main__":
    main()
