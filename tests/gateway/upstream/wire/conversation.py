"""A conversation over one upgraded connection, as it was heard: who said what, in turns."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent / "recorded"
CLIENT, CLUSTER = ">", "<"


@dataclass
class Turn:
    """What one side said before the other did; ``None`` is its end."""

    side: str
    said: bytes | None


@dataclass
class Conversation:
    """All that was said, the requests' and the answers' heads included; the client's credential is not kept."""

    command: str
    turns: list[Turn] = field(default_factory=list)

    def hear(self, side: str, said: bytes | None) -> None:
        """The next bytes of a side, or its end."""
        last = self.turns[-1] if self.turns else None
        if said is not None and last is not None and last.side == side and last.said is not None:
            last.said += said
        else:
            self.turns.append(Turn(side, said))

    @property
    def request(self) -> bytes:
        """The head of the request."""
        return self._head(0)

    @property
    def answer(self) -> bytes:
        """The head of the answer."""
        return self._head(1)

    @property
    def switched(self) -> bool:
        """Whether the cluster has agreed to speak another protocol."""
        return self.answer.startswith(b"HTTP/1.1 101 ")

    def after_heads(self) -> list[Turn]:
        """The turns without the two heads."""
        request, answer, *rest = self.turns
        assert (request.side, answer.side) == (CLIENT, CLUSTER)
        said = [Turn(turn.side, (turn.said or b"").partition(b"\r\n\r\n")[2]) for turn in (request, answer)]
        return [*(turn for turn in said if turn.said), *rest]

    def _head(self, place: int) -> bytes:
        return (self.turns[place].said or b"").partition(b"\r\n\r\n")[0]

    def keep(self, path: Path) -> None:
        """Write it: a line a turn, bytes as the characters of their numbers."""
        lines = [json.dumps(self.command)]
        for turn in self.turns:
            lines.append(turn.side + ("" if turn.said is None else json.dumps(turn.said.decode("latin-1"))))
        path.write_text("\n".join(lines) + "\n")


def kept(path: Path) -> Conversation:
    """A conversation from its file."""
    command, *lines = path.read_text().splitlines()
    found = Conversation(json.loads(command))
    for line in lines:
        found.turns.append(Turn(line[0], json.loads(line[1:]).encode("latin-1") if line[1:] else None))
    return found


def headers_of(head: bytes) -> dict[bytes, bytes]:
    """The headers of a head, their names in lower case."""
    pairs = (line.split(b":", 1) for line in head.split(b"\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, value in pairs}
