"""The authorizers in order: the first ALLOW or DENY decides, and silence is a denial (AZ11)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from access.authorization.base import Authorizer, Enumerable, Holdings, Immediate, Joining, deny
from kube.identity import Principal
from kube.rbac import Rule
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision, Explanation, Verdict

logger = logging.getLogger(__name__)

BROKEN: Final = "the authorizer failed"
_PASS: Final = Verdict.NO_OPINION


class AuthorizationChain:
    """Asks each authorizer in turn."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)
        self._steps = tuple(
            (
                authorizer,
                authorizer.decide if isinstance(authorizer, Immediate) else None,
                authorizer if isinstance(authorizer, Joining) else None,
            )
            for authorizer in authorizers
        )

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the authorizers in the order in which they are asked."""
        return tuple(authorizer.name for authorizer in self._authorizers)

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """The decision. An authorizer that breaks denies."""
        decision: Decision | None = None
        for authorizer, decide, joining in self._steps:
            try:
                decision = decide(principal, request) if decide is not None else None
                if decision is None:
                    decision = await authorizer.authorize(principal, request)
                if joining is not None and decision.verdict is _PASS:
                    principal = await joining.joined(principal, request.cluster)
            except Exception:
                logger.exception("authorizer %s failed", authorizer.name)
                decision = deny(authorizer.name, BROKEN)
            if decision.verdict is not _PASS:
                return decision
        return _nobody_allowed(decision)

    async def explain(self, principal: Principal, request: RequestInfo) -> Explanation:
        """The decision with every step up to the one that decided, in order (AZ11)."""
        trace: list[Decision] = []
        for authorizer, _, joining in self._steps:
            try:
                decision = await authorizer.authorize(principal, request)
                if joining is not None and decision.verdict is _PASS:
                    principal = await joining.joined(principal, request.cluster)
            except Exception:
                logger.exception("authorizer %s failed", authorizer.name)
                decision = deny(authorizer.name, BROKEN)
            trace.append(decision)
            if decision.verdict is not _PASS:
                return Explanation(decision, tuple(trace))
        return Explanation(_nobody_allowed(trace[-1] if trace else None), tuple(trace))

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> tuple[tuple[Rule, ...], bool]:
        """What the principal may do in a namespace, and whether that is all (SelfSubjectRulesReview, AZ10).

        An authorizer that cannot list what it allows, such as a webhook, makes the answer incomplete.
        """
        rules: dict[Rule, None] = {}
        complete = True
        for authorizer, _, joining in self._steps:
            if not isinstance(authorizer, Enumerable):
                complete = False
                continue
            try:
                held = await authorizer.holdings(principal, cluster, namespace)
                if joining is not None and not held.final:
                    principal = await joining.joined(principal, cluster)
            except Exception:
                logger.exception("authorizer %s failed", authorizer.name)
                held = Holdings(complete=False, final=True)
            rules.update(dict.fromkeys(held.rules))
            complete = complete and held.complete
            if held.final:
                break
        return tuple(rules), complete


def _nobody_allowed(last: Decision | None) -> Decision:
    return Decision(Verdict.NO_OPINION, last.step if last else "", last.reason if last else "")
