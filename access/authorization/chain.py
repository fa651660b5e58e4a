"""The authorizers in order: the first ALLOW or DENY decides, and silence is a denial (AZ11)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from access.authorization.base import Authorizer, Enumerable, Holdings, Immediate, Joining, Limiting, Selective, deny
from kube.identity import SYSTEM_TENANT, Principal
from kube.logicalclusters import Terrain, terrain_of
from kube.rbac import Rule
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision, Verdict

logger = logging.getLogger(__name__)

BROKEN: Final = "the authorizer failed"
_PASS: Final = Verdict.NO_OPINION
_SILENCE: Final = Decision(_PASS, "")


class _Step(NamedTuple):
    """An authorizer, and what of it need not be waited for."""

    authorizer: Authorizer
    decide: Callable[[Principal, RequestInfo], Decision | None] | None
    joining: Joining | None


class AuthorizationChain:
    """Asks each authorizer in turn, as far as it can have something to say at all."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._steps = tuple(
            _Step(
                authorizer,
                authorizer.decide if isinstance(authorizer, Immediate) else None,
                authorizer if isinstance(authorizer, Joining) else None,
            )
            for authorizer in authorizers
        )
        self._plans = tuple(
            tuple(tuple(step for step in self._steps if _concerns(step, operator, terrain)) for terrain in Terrain)
            for operator in (False, True)
        )

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the authorizers in the order in which they are asked."""
        return tuple(step.authorizer.name for step in self._steps)

    async def authorize(
        self, principal: Principal, request: RequestInfo, trace: list[Decision] | None = None
    ) -> Decision:
        """The decision; into ``trace`` go the answers that led to it, in order. An authorizer that breaks denies."""
        decision: Decision | None = None
        for authorizer, decide, joining in self._plans[principal.tenant == SYSTEM_TENANT][terrain_of(request.cluster)]:
            try:
                decision = decide(principal, request) if decide is not None else None
                if decision is None:
                    decision = await authorizer.authorize(principal, request)
                if joining is not None and decision.verdict is _PASS:
                    principal = await joining.joined(principal, request.cluster)
            except Exception:
                logger.exception("authorizer %s failed", authorizer.name)
                decision = deny(authorizer.name, BROKEN)
            if trace is not None:
                trace.append(decision)
            if decision.verdict is not _PASS:
                return decision
        return decision or _SILENCE

    async def explain(self, principal: Principal, request: RequestInfo) -> Decision:
        """The decision with the trace of every step up to the one that decided, in order (AZ11).

        Steps that do not concern the principal there are in the trace as well, and say so themselves.
        """
        asked = self._plans[principal.tenant == SYSTEM_TENANT][terrain_of(request.cluster)]
        decision = _SILENCE
        trace: list[Decision] = []
        for step in self._steps:
            authorizer, _, joining = step
            try:
                said = await authorizer.authorize(principal, request)
                if joining is not None and said.verdict is _PASS:
                    principal = await joining.joined(principal, request.cluster)
            except Exception:
                logger.exception("authorizer %s failed", authorizer.name)
                said = deny(authorizer.name, BROKEN)
            trace.append(said)
            if step in asked:
                decision = said
            if decision.verdict is not _PASS:
                break
        return replace(decision, trace=tuple(trace))

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> tuple[tuple[Rule, ...], bool]:
        """What the principal may do in a namespace, and whether that is all (SelfSubjectRulesReview, AZ10).

        An authorizer that cannot list what it allows, such as a webhook, makes the answer incomplete.
        """
        rules: dict[Rule, None] = {}
        limits: list[Limiting] = []
        complete = True
        for authorizer, _, joining in self._steps:
            if not isinstance(authorizer, Enumerable):
                complete = False
                continue
            try:
                held = await authorizer.holdings(principal, cluster, namespace)
                for limit in limits if held.rules else ():
                    held = await limit.limited(held, principal, cluster, namespace)
                if joining is not None and not held.final:
                    principal = await joining.joined(principal, cluster)
            except Exception:
                logger.exception("authorizer %s failed", authorizer.name)
                held = Holdings(complete=False, final=True)
            if isinstance(authorizer, Limiting):
                limits.append(authorizer)
            rules.update(dict.fromkeys(held.rules))
            complete = complete and held.complete
            if held.final:
                break
        return tuple(rules), complete


def _concerns(step: _Step, operator: bool, terrain: Terrain) -> bool:
    authorizer = step.authorizer
    return not isinstance(authorizer, Selective) or authorizer.concerns(operator=operator, terrain=terrain)
