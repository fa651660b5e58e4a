"""Write down what a real kube-apiserver answers to the script.

``KUBEBUILDER_ASSETS=… python -m tests.conformance.recording [section…]``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests import kubeapiserver
from tests.conformance.conversation import Conversation, Exchange, comparable
from tests.conformance.script import flagged, sections
from tests.conformance.script.auditing import AUDITED, audit_flags, log_of, story
from tests.conformance.script.flagged import MODES, flags
from tests.speaking import Speaker

FOLDER = Path(__file__).parent / "recorded"


def hold(speaker: Speaker, name: str, section: Callable[[Conversation], None]) -> list[Exchange]:
    """Put a section to a server."""
    conversation = Conversation(speaker, name)
    section(conversation)
    return conversation.exchanges


def recorded(name: str) -> list[Exchange]:
    """What the real server answered when it was last asked."""
    lines = (FOLDER / f"{name}.json").read_text().splitlines()
    exchanges = [Exchange(**json.loads(line)) for line in lines]
    for exchange in exchanges:
        exchange.answer["body"] = comparable(exchange.answer["body"])
    return exchanges


def record(wanted: list[str]) -> None:
    """Ask the real server, and keep its answers: one exchange a line."""
    FOLDER.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        for chosen, started in (
            ([*sections()], partial(kubeapiserver.running, controllers=True)),
            ([*flagged()], partial(kubeapiserver.running, authorization=[MODES], flags=[*flags(Path(folder))])),
        ):
            asked = [(name, section) for name, section, _ in chosen if not wanted or name in wanted]
            if asked:
                with started() as server:
                    for name, section in asked:
                        _write(name, [asdict(exchange) for exchange in hold(server.admin, name, section)])
        if not wanted or AUDITED in wanted:
            told = audit_flags(Path(folder))
            with kubeapiserver.running(flags=told) as server:
                _write(AUDITED, story(log_of(told), server.admin))


def _write(name: str, lines: list[dict[str, Any]]) -> None:
    texts = [json.dumps(line, separators=(",", ":"), sort_keys=True) for line in lines]
    (FOLDER / f"{name}.json").write_text("\n".join(texts) + "\n")
    print(name, len(texts))


if __name__ == "__main__":
    record(sys.argv[1:])
