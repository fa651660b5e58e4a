"""What actors asked for and were told, by the clock that all of this machine share, and what the log said."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import psycopg

if TYPE_CHECKING:
    from bench.campaign.house import House

Outcome = Literal["kept", "refused", "unknown"]
"""What somebody knows of what was asked for: told yes, told no, or not told."""

_LOG = """
SELECT revision, type, space, name, data, previous FROM store_event
WHERE resource = 'configmaps' AND "group" = '' AND namespace = 'default' AND name LIKE 'campaign-%' ORDER BY revision
"""


@dataclass(slots=True)
class Write:
    """One change of one object. ``base`` is the identity of the write that it was built on, empty for a new object."""

    begun: float
    ended: float
    space: str
    name: str
    verb: Literal["create", "update", "delete"]
    identity: str
    base: str
    outcome: Outcome
    revision: int = 0


@dataclass(slots=True)
class Read:
    """One object as it was read: the identity of what was there, empty when nothing was."""

    begun: float
    ended: float
    space: str
    name: str
    identity: str
    revision: int


@dataclass(slots=True)
class Segment:
    """A watch from one list on, for as long as nobody said that it has to begin anew."""

    space: str
    since: int
    begun: float
    events: list[tuple[int, str, str, str]] = field(default_factory=list)
    """Revision, type, name, identity."""
    gone: bool = False


@dataclass(slots=True)
class Wish:
    """What somebody wanted of a workspace; ``key`` is its name in ``tenant``."""

    begun: float
    ended: float
    verb: Literal["make", "delete", "suspend", "resume"]
    tenant: str
    name: str
    outcome: Outcome
    workspace: str = ""


@dataclass(slots=True)
class Issue:
    """A credential that was asked for."""

    begun: float
    ended: float
    workspace: str
    tenant: str
    namespace: str
    outcome: Outcome
    token: str = field(default="", repr=False)
    lifetime: float = 0


@dataclass(slots=True)
class Use:
    """A credential that was shown at the door."""

    begun: float
    ended: float
    issue: int
    status: int


@dataclass(slots=True)
class Event:
    """An entry of the change log."""

    revision: int
    type: str
    space: str
    name: str
    data: bytes
    previous: bytes | None


@dataclass(slots=True)
class Era:
    """A history of the store: from a restore, or the beginning, to the next one, or the end."""

    log: list[Event]
    until: float
    """When the log was read: what was acknowledged before is in it."""


@dataclass(slots=True)
class Restore:
    """When the backup was begun, at which revision it was taken, and when its restore began and ended."""

    taken: float
    revision: int
    begun: float
    ended: float
    opened: float = 0


@dataclass(slots=True)
class Hurt:
    """A fault, and the time until the next one."""

    kind: str
    begun: float
    ended: float


@dataclass
class History:
    """Everything that was told in a round."""

    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    wishes: list[Wish] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    restores: list[Restore] = field(default_factory=list)
    hurts: list[Hurt] = field(default_factory=list)
    eras: list[Era] = field(default_factory=list)
    closed: bool = False
    """Whether a restore is on its way, or is not opened yet."""
    _backup: tuple[float, int, Path] | None = None

    def lost_by_a_restore(self, begun: float, ended: float) -> bool:
        """Whether what was done then may be undone by what was put back."""
        return any(ended > each.taken and begun < each.ended for each in self.restores)

    async def back_up(self, house: House, file: Path) -> None:
        """Take a backup, beside all that goes on. One that a fault prevents is none."""
        from bench.campaign.house import NotReady

        taken = time.monotonic()
        try:
            said = await house.command("backup", str(file))
        except NotReady:
            return
        found = re.search(r"at revision (\d+)", said)
        assert found is not None, said
        self._backup = taken, int(found[1]), file

    async def restore(self, house: House) -> None:
        """Put the backup back over what runs, and open it when the clusters have confirmed."""
        from bench.campaign.house import NotReady

        if self._backup is None:
            await self.back_up(house, house.folder / "late.backup")
        if self._backup is None:
            return
        taken, revision, file = self._backup
        # From here on nobody is asked for an account of what he was told, until it is put back.
        until = time.monotonic()
        log = self.read_log(house)
        self.closed = True
        begun = time.monotonic()  # the first attempt may have closed the doors
        for attempt in range(10):
            try:
                await house.command("restore", str(file), "--replace")
            except NotReady:
                if attempt == 9:
                    raise
                continue
            break
        self.eras.append(Era(log, until))
        self.restores.append(Restore(taken, revision, begun, time.monotonic()))

    async def open(self, house: House) -> None:
        """Open what was restored, once the clusters have confirmed: the command refuses until then."""
        import asyncio

        from bench.campaign.house import NotReady

        for attempt in range(120):
            try:
                await house.command("restore", "--open")
            except NotReady:
                if attempt == 119:
                    raise
                await asyncio.sleep(1)
            else:
                break
        await house.run("sign_in", tokens=str(house.folder / "tokens.json"))
        self.restores[-1].opened = time.monotonic()
        self.closed = False

    def read_log(self, house: House) -> list[Event]:
        """The change log of what actors write to, as it is now."""
        with psycopg.connect(house.owner_url) as connection:
            return [Event(*row) for row in connection.execute(_LOG).fetchall()]

    def finish(self, house: House) -> None:
        """Read the last era's log, when nobody writes any more."""
        self.eras.append(Era(self.read_log(house), time.monotonic()))

    def figures(self) -> dict[str, int]:
        """How much was judged."""
        return {
            "acknowledged writes": sum(each.outcome == "kept" for each in self.writes),
            "reads": len(self.reads),
            "watch events": sum(len(each.events) for each in self.segments),
            "wishes for workspaces": sum(each.outcome == "kept" for each in self.wishes),
            "credentials issued": sum(each.outcome == "kept" for each in self.issues),
            "credentials shown at the door": len(self.uses),
            "restores": len(self.restores),
        }

    def silence(self) -> float:
        """The longest time without an acknowledged write, of those that no restore had closed."""
        return max((gap for earlier, later, gap in self._gaps() if not self._restores_in(earlier, later)), default=0.0)

    def closed_by(self) -> dict[str, float]:
        """The longest time without an acknowledged write by what went on meanwhile; of a restore, until it was opened.

        Where several faults went on, it is told of each of them. Those who write are operators, whom a restore lets in
        first: tenants are shut out until the end.
        """
        longest: dict[str, float] = {}
        for restore in self.restores:
            until = restore.opened or max((each.until for each in self.eras), default=restore.ended)
            longest["restore"] = max(until - restore.begun, longest.get("restore", 0.0))
        for earlier, later, gap in self._gaps():
            if self._restores_in(earlier, later):
                continue
            for kind in {each.kind for each in self.hurts if earlier < each.ended and later > each.begun} - {"restore"}:
                longest[kind] = max(gap, longest.get(kind, 0.0))
        return longest

    def _gaps(self) -> Iterator[tuple[float, float, float]]:
        """From one acknowledged write to the next."""
        ends = sorted(each.ended for each in self.writes if each.outcome == "kept")
        for earlier, later in itertools.pairwise(ends):
            yield earlier, later, later - earlier

    def _restores_in(self, earlier: float, later: float) -> bool:
        return any(earlier < each.ended and later > each.begun for each in self.restores)


def told(status: int) -> Outcome:
    """What an answer's status says: success, a refusal before anything was done, or nothing."""
    if 200 <= status < 300:
        return "kept"
    return "refused" if 400 <= status < 500 else "unknown"


def identity_of(body: dict[str, Any] | None) -> str:
    """Of which write an object is."""
    return str(((body or {}).get("data") or {}).get("identity", ""))
