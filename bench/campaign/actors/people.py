"""People of tenants, who make workspaces and are given credentials, and an operator, who closes and opens them."""

from __future__ import annotations

import asyncio
import itertools
import random
from typing import Any

import jwt
import yaml

from bench.campaign.actors.speaking import NO_ANSWER, Answer, Speaker
from bench.campaign.history import History, Issue, Outcome, Use, Wish, told

_MOST = 3
"""Workspaces that a person has at once."""


async def live(speaker: Speaker, history: History, tenant: str, chance: random.Random) -> None:
    """A tenant's owner: makes workspaces, deletes them, asks for credentials."""
    mine: dict[str, str] = {}
    """Namespaces of the workspaces that are thought to be there, by name; the workspaces' ids are in ``wishes``."""
    ids: dict[str, str] = {}
    for count in itertools.count():
        await asyncio.sleep(0.5 + chance.random())
        if len(mine) < _MOST and chance.random() < 0.5:
            name = f"w{count}"
            body = await _make(speaker, history, tenant, name)
            if body is not None:
                mine[name], ids[name] = body["namespace"], body["id"]
        elif mine and chance.random() < 0.12:
            name = chance.choice(list(mine))
            answer = await speaker.rest("DELETE", f"/api/v1/workspaces/{ids[name]}/", who=tenant)
            _note(history, answer, "delete", tenant, name, ids[name])
            if told(answer.status) != "refused" or answer.status == 404:
                mine.pop(name)
        elif mine:
            name = chance.choice(list(mine))
            await _ask_for_credential(speaker, history, tenant, ids[name], mine[name])


async def _make(speaker: Speaker, history: History, tenant: str, name: str) -> dict[str, Any] | None:
    """Ask until somebody answers, always for the same one."""
    wanted = {"tier": "basic", "tenant": tenant, "name": name}
    begun: float | None = None
    for _ in range(20):
        answer = await speaker.rest("POST", "/api/v1/workspaces/init", wanted, who=tenant)
        begun = answer.begun if begun is None else begun
        if answer.status != NO_ANSWER and answer.status < 500 and answer.status != 429:
            break
        await asyncio.sleep(0.5)
    body = answer.body if told(answer.status) == "kept" else None
    # Whoever was not answered once does not know whether a refusal is about what he has made himself.
    outcome: Outcome = "kept" if body is not None else "unknown"
    history.wishes.append(
        Wish(begun or answer.begun, answer.ended, "make", tenant, name, outcome, (body or {}).get("id", ""))
    )
    return body


def _note(history: History, answer: Answer, verb: Any, tenant: str, name: str, workspace: str) -> None:
    history.wishes.append(Wish(answer.begun, answer.ended, verb, tenant, name, told(answer.status), workspace))


async def _ask_for_credential(speaker: Speaker, history: History, tenant: str, workspace: str, namespace: str) -> None:
    answer = await speaker.rest("POST", f"/api/v1/workspaces/{workspace}/credentials", {}, who=tenant)
    issue = Issue(answer.begun, answer.ended, workspace, tenant, namespace, told(answer.status))
    if issue.outcome == "kept":
        config = yaml.safe_load((answer.body or {})["kubeconfig"])
        issue.token = config["users"][0]["user"]["token"]
        claims = jwt.decode(issue.token, options={"verify_signature": False})
        issue.lifetime = claims["exp"] - claims["iat"]
    history.issues.append(issue)


async def show_credentials(speaker: Speaker, history: History, chance: random.Random) -> None:
    """Show credentials at the door, old ones and new ones, whether they should open it or not."""
    while True:
        await asyncio.sleep(0.1 + chance.random() * 0.2)
        issued = [number for number, each in enumerate(history.issues) if each.token]
        if not issued:
            continue
        number = chance.choice(issued[-12:] if chance.random() < 0.7 else issued)
        issue = history.issues[number]
        path = f"/clusters/root:{issue.tenant}/api/v1/namespaces/{issue.namespace}/configmaps"
        answer = await speaker.kube("GET", path, token=issue.token)
        history.uses.append(Use(answer.begun, answer.ended, number, answer.status))


async def operate(speaker: Speaker, history: History, chance: random.Random) -> None:
    """An operator: suspends workspaces, and resumes them some time later."""
    closed: list[Wish] = []
    while True:
        await asyncio.sleep(1 + chance.random() * 2)
        known = [wish for wish in history.wishes if wish.verb == "make" and wish.workspace]
        if closed and (len(closed) > 2 or chance.random() < 0.4):
            wish = closed.pop(chance.randrange(len(closed)))
            answer = await speaker.rest("POST", f"/api/v1/workspaces/{wish.workspace}/resume")
            _note(history, answer, "resume", wish.tenant, wish.name, wish.workspace)
        elif known:
            wish = chance.choice(known[-9:])
            answer = await speaker.rest("POST", f"/api/v1/workspaces/{wish.workspace}/suspend", {"reason": "campaign"})
            _note(history, answer, "suspend", wish.tenant, wish.name, wish.workspace)
            if told(answer.status) != "refused":
                closed.append(wish)
