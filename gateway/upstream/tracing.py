"""The way to a cluster as spans, where the process is traced (``audit.tracing``)."""

from __future__ import annotations

from typing import Any

from audit import tracing
from gateway.http.messages import Headers
from gateway.upstream.client import Answer, Upstream
from gateway.upstream.tunnel import Tunnel


class TracedUpstream(Upstream):
    """The connections to one cluster; a question is over with the head of its answer."""

    async def request(self, method: str, target: bytes, headers: Headers, body: bytes, **options: Any) -> Answer:
        """See ``Upstream``."""
        with self._asked(method) as span:
            answer = await super().request(method, target, headers, body, **options)
            if span is not None:
                span.set_attribute("http.response.status_code", answer.status)
            return answer

    async def upgrade(self, method: str, target: bytes, headers: Headers, **options: Any) -> Answer | Tunnel:
        """See ``Upstream``."""
        with self._asked(method) as span:
            answer = await super().upgrade(method, target, headers, **options)
            if span is not None:
                span.set_attribute("http.response.status_code", answer.status if isinstance(answer, Answer) else 101)
            return answer

    def _asked(self, method: str) -> Any:
        return tracing.span(
            method,
            calls=True,
            http__request__method=method,
            server__address=self._address[0],
            server__port=self._address[1],
            tenantry__cluster=self.cluster.name,
        )
