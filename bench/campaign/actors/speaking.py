"""How actors ask: over HTTP, with a bounded patience, and with the truth about what they do not know."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from dataclasses import dataclass
from typing import Any

import aiohttp

from bench.campaign.house import House
from bench.campaign.inhabitants import OPERATOR

PATIENCE = aiohttp.ClientTimeout(total=8, connect=4)
NO_ANSWER = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, and when it was asked for; ``status`` is ``NO_ANSWER`` when nothing did."""

    begun: float
    ended: float
    status: int
    body: dict[str, Any] | None = None


class Speaker:
    """A client of the API servers and of the portals, by their common addresses."""

    def __init__(self, house: House) -> None:
        self._house = house
        self._as_admin, self._with_token = house.trust, house.bearers
        self.session = aiohttp.ClientSession(timeout=PATIENCE, connector=aiohttp.TCPConnector(limit=0))
        # A PUT or DELETE whose connection was cut is not known to be undone: asked again unseen, it is refused as the
        # conflict with itself, and whoever asked would take that for the answer.
        self.session._retry_connection = False

    async def close(self) -> None:
        """Let go of every connection."""
        await self.session.close()

    async def kube(self, method: str, path: str, body: Any = None, *, token: str = "") -> Answer:
        """Ask an API server: as the installation's administrator, or with a token."""
        trust = self._with_token if token else self._as_admin
        return await self._ask(method, self._house.apiserver_url + path, body, token, trust)

    async def rest(self, method: str, path: str, body: Any = None, *, who: str = OPERATOR) -> Answer:
        """Ask a portal, as the owner of a tenant or the operator."""
        return await self._ask(method, self._house.portal_url + path, body, self._house.tokens()[who], None)

    @property
    def administrator(self) -> ssl.SSLContext:
        """For who keeps a connection open."""
        return self._as_admin

    async def _ask(self, method: str, url: str, body: Any, token: str, trust: ssl.SSLContext | None) -> Answer:
        asked = asyncio.ensure_future(self._exchange(method, url, body, token, trust))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            # A round that is over ends nobody in the middle of a question: it may still be done, and its asker would
            # not have noted it. So the answer is waited for, and the asker ends with its next step.
            answer = await asked
            if (asker := asyncio.current_task()) is not None:
                asker.cancel()
            return answer

    async def _exchange(self, method: str, url: str, body: Any, token: str, trust: ssl.SSLContext | None) -> Answer:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        begun = time.monotonic()
        try:
            async with self.session.request(method, url, json=body, headers=headers, ssl=trust or True) as answer:
                data = await answer.read()
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError, asyncio.IncompleteReadError):
            return Answer(begun, time.monotonic(), NO_ANSWER)
        try:
            parsed = json.loads(data)
        except ValueError:
            parsed = None
        return Answer(begun, time.monotonic(), status, parsed if isinstance(parsed, dict) else None)
