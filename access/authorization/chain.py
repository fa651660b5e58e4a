"""The authorizers in order: the first ALLOW or DENY decides, and silence is a denial (AZ11)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from access.authorization.base import Authorizer
from kube.identity import Principal
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision, Explanation, Verdict

logger = logging.getLogger(__name__)


class AuthorizationChain:
    """Asks each authorizer in turn."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """The decision. An authorizer that breaks denies."""
        last: Decision | None = None
        for authorizer in self._authorizers:
            decision = await _ask(authorizer, principal, request)
            if decision.verdict is not Verdict.NO_OPINION:
                return decision
            last = decision
        return _nobody_allowed(last)

    async def explain(self, principal: Principal, request: RequestInfo) -> Explanation:
        """The decision with every step up to the one that decided, in order (AZ11)."""
        trace: list[Decision] = []
        for authorizer in self._authorizers:
            trace.append(await _ask(authorizer, principal, request))
            if trace[-1].verdict is not Verdict.NO_OPINION:
                return Explanation(trace[-1], tuple(trace))
        return Explanation(_nobody_allowed(trace[-1] if trace else None), tuple(trace))


async def _ask(authorizer: Authorizer, principal: Principal, request: RequestInfo) -> Decision:
    try:
        return await authorizer.authorize(principal, request)
    except Exception:
        logger.exception("authorizer %s failed", authorizer.name)
        return Decision(Verdict.DENY, authorizer.name, "the authorizer failed")


def _nobody_allowed(last: Decision | None) -> Decision:
    return Decision(Verdict.NO_OPINION, last.step if last else "", last.reason if last else "")
