"""Hold a watch as an informer does: go on where it was, and begin anew only when told so."""

from __future__ import annotations

import asyncio
import json

import aiohttp

from bench.campaign.actors.speaking import Speaker
from bench.campaign.history import History, Segment, identity_of
from bench.campaign.house import House

_GONE = 410


async def watch(house: House, speaker: Speaker, history: History, space: str) -> None:
    """Watch a space until cancelled."""
    path = f"/clusters/{space}/api/v1/namespaces/default/configmaps"
    while True:
        answer = await speaker.kube("GET", path)
        if answer.status != 200:
            await asyncio.sleep(0.2)
            continue
        segment = Segment(space, int((answer.body or {})["metadata"]["resourceVersion"]), answer.begun)
        history.segments.append(segment)
        while not segment.gone:
            await _follow(house.apiserver_url + path, speaker, segment)
            await asyncio.sleep(0.05)


async def _follow(url: str, speaker: Speaker, segment: Segment) -> None:
    position = segment.events[-1][0] if segment.events else segment.since
    ways = {"watch": "true", "resourceVersion": str(position), "timeoutSeconds": "15"}
    patience = aiohttp.ClientTimeout(total=None, connect=4, sock_read=20)
    try:
        async with speaker.session.get(url, params=ways, ssl=speaker.administrator, timeout=patience) as answer:
            if answer.status != 200:
                segment.gone = answer.status == _GONE
                return
            async for line in answer.content:
                if not line.endswith(b"\n"):
                    return  # the connection was cut in its midst: it counts as not told
                if _is_end(segment, json.loads(line)):
                    return
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return


def _is_end(segment: Segment, event: dict) -> bool:  # type: ignore[type-arg]
    if event["type"] == "ERROR":
        segment.gone = event["object"].get("code") == _GONE
        return True
    metadata = event["object"]["metadata"]
    if metadata["name"].startswith("campaign-"):
        segment.events.append(
            (int(metadata["resourceVersion"]), event["type"], metadata["name"], identity_of(event["object"]))
        )
    return False
