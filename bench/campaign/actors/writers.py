"""Change objects by what is known of them, and read them: one of a few that all writers share, or one's own."""

from __future__ import annotations

import asyncio
import itertools
import random

from bench.campaign.actors.speaking import Answer, Speaker
from bench.campaign.history import History, Outcome, Read, Write, identity_of, told

SHARED = 5
_OWN_SHARE, _DELETE_SHARE = 0.15, 0.12


async def write(speaker: Speaker, history: History, space: str, number: int, chance: random.Random) -> None:
    """Write in a space until cancelled."""
    for count in itertools.count():
        identity = f"{number}-{count}"
        own = chance.random() < _OWN_SHARE
        name = f"campaign-{identity}" if own else f"campaign-{chance.randrange(SHARED)}"
        await _change(speaker, history, space, name, identity, chance)
        await asyncio.sleep(0.1 + chance.random() * 0.2)


async def _change(
    speaker: Speaker, history: History, space: str, name: str, identity: str, chance: random.Random
) -> None:
    path = f"/clusters/{space}/api/v1/namespaces/default/configmaps"
    answer = await speaker.kube("GET", f"{path}/{name}")
    if answer.status not in (200, 404) or (answer.status == 404 and not _is_absent(answer)):
        return
    there = answer.body if answer.status == 200 else None
    version = ((there or {}).get("metadata") or {}).get("resourceVersion", "")
    base = identity_of(there)
    history.reads.append(Read(answer.begun, answer.ended, space, name, base, int(version or 0)))
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": {"identity": identity, "base": base},
    }
    if there is None:
        verb, answer = "create", await speaker.kube("POST", path, body)
    elif chance.random() < _DELETE_SHARE:
        verb, options = "delete", {"preconditions": {"resourceVersion": version}}
        answer = await speaker.kube("DELETE", f"{path}/{name}", options)
    else:
        body["metadata"]["resourceVersion"] = version  # type: ignore[index]
        verb, answer = "update", await speaker.kube("PUT", f"{path}/{name}", body)
    outcome: Outcome = told(answer.status)
    revision = 0
    if outcome == "kept" and verb != "delete":
        revision = int((answer.body or {})["metadata"]["resourceVersion"])
    history.writes.append(
        Write(answer.begun, answer.ended, space, name, verb, identity, base, outcome, revision)  # type: ignore[arg-type]
    )


def _is_absent(answer: Answer) -> bool:
    """Whether it is this object that is not there, and not the space or the path."""
    return ((answer.body or {}).get("details") or {}).get("kind") == "configmaps"
