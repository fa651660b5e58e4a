"""What may become of an object, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.conformance.conversation import Conversation
from tests.conformance.script.kinds import home, let_go, placed
from tests.conformance.script.media import MERGE

ROWS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parents[1] / "becoming.yaml").read_text())


def becoming(say: Conversation) -> None:
    """Of what every space serves."""
    _change(say, system=False)


def becomingsystem(say: Conversation) -> None:
    """Of what the system space alone serves."""
    _change(say, system=True)


def _change(say: Conversation, *, system: bool) -> None:
    say.set_up()
    for row in ROWS:
        if bool(row.get("system")) is not system:
            continue
        body = placed(say, row["object"])
        at = home(say, body)
        one = f"{at}/{body['metadata']['name']}"
        say.verdict("POST", at, body)
        for step in row["steps"]:
            path = f"{one}/{step['part']}" if "part" in step else one
            if step.get("shown", True):
                say.verdict("PATCH", path, step["change"], MERGE)
            else:
                # The real server shows what was with the names of its own code.
                say.refused("PATCH", path, step["change"], MERGE)
        say.speaker.send("DELETE", f"{one}?gracePeriodSeconds=0")
        let_go(say, one)
