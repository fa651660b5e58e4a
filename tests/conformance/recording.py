"""Write down what a real kube-apiserver answers to the script.

``KUBEBUILDER_ASSETS=… python -m tests.conformance.recording [section…]``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from tests import kubeapiserver
from tests.conformance.conversation import Conversation, Exchange, comparable
from tests.conformance.script import sections
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
    with kubeapiserver.running(controllers=True) as server:
        for name, section, _ in sections():
            if wanted and name not in wanted:
                continue
            lines = [
                json.dumps(
                    {"request": exchange.request, "answer": exchange.answer}, separators=(",", ":"), sort_keys=True
                )
                for exchange in hold(server.admin, name, section)
            ]
            (FOLDER / f"{name}.json").write_text("\n".join(lines) + "\n")
            print(name, len(lines))


if __name__ == "__main__":
    record(sys.argv[1:])
