"""The authorizers in order: the first ALLOW or DENY decides, and silence is a denial (AZ11)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from access.authorization.base import (
    Authorizer,
    PrincipalMapper,
    RuleFilter,
    RuleResolver,
    RuleSet,
    ScopedAuthorizer,
    SyncAuthorizer,
    deny,
    no_opinion,
)
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.rbac import Rule
from kube.requests.logicalclusters import ClusterKind, cluster_kind_of
from kube.requests.requestinfo import RequestInfo

logger = logging.getLogger(__name__)

BROKEN: Final = "the authorizer failed"
_PASS: Final = Verdict.NO_OPINION
_NOBODY: Final = no_opinion("")
"""Where nobody is asked."""


class _Step(NamedTuple):
    """An authorizer, and what of it need not be waited for."""

    authorizer: Authorizer
    decide: Callable[[Principal, RequestInfo], Decision | None] | None
    mapper: PrincipalMapper | None


class AuthorizationChain:
    """Asks each authorizer in turn, as far as it can have something to say at all."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._steps = tuple(
            _Step(
                authorizer,
                authorizer.decide if isinstance(authorizer, SyncAuthorizer) else None,
                authorizer if isinstance(authorizer, PrincipalMapper) else None,
            )
            for authorizer in authorizers
        )
        # Who asks where is known before anybody is asked: for operators and others, and each kind of logical cluster, the
        # steps that can say anything are chosen once. A step is left out only where ``applies_to`` promises silence.
        self._plans = tuple(
            tuple(
                tuple(step for step in self._steps if _concerns(step, operator, cluster_kind))
                for cluster_kind in ClusterKind
            )
            for operator in (False, True)
        )
        self._ready = tuple(tuple(_ready(plan) for plan in plans) for plans in self._plans)

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the authorizers in the order in which they are asked."""
        return tuple(step.authorizer.name for step in self._steps)

    def after(self, step: str) -> AuthorizationChain:
        """The steps behind the one of this name."""
        return AuthorizationChain([each.authorizer for each in self._steps[self.steps.index(step) + 1 :]])

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:
        """What ``authorize`` would say, or ``None`` where only that can tell: somebody is to be waited for, or is broken.

        Nearly every request is decided here, in half the time.
        """
        reasons: list[Decision] = []
        last = _NOBODY
        try:
            for decide in self._ready[principal.is_system][cluster_kind_of(request.cluster)]:
                decision = decide(principal, request)
                if decision is None or decision.verdict is not _PASS:
                    return decision
                # Nearly every step has nothing against the request: nothing more is done for it.
                if not decision.aside and decision.reason:
                    reasons.append(decision)
                last = decision
        except Exception:  # noqa: BLE001 - ``authorize`` meets it as well, and says whose it is
            return None
        return _silence(reasons, last)

    async def authorize(
        self, principal: Principal, request: RequestInfo, trace: list[Decision] | None = None
    ) -> Decision:
        """The decision; into ``trace`` go the answers that led to it, in order. An authorizer that breaks denies."""
        if trace is None and (decided := self.decide(principal, request)) is not None:
            return decided
        # 1. Ask in order; a step that need not wait is asked without a coroutine.
        # 2. A mapper that has not refused gives the steps after it the principal with its further groups; steps before it
        #    never see those.
        # 3. Whatever breaks, the mapper too, is a DENY: the steps after a broken one could only allow.
        # 4. The first ALLOW or DENY ends it; silence of all is no opinion, which callers treat as a refusal.
        reasons: list[Decision] = []
        last = _NOBODY
        for authorizer, decide, mapper in self._plans[principal.is_system][cluster_kind_of(request.cluster)]:
            try:
                if decide is None or (decision := decide(principal, request)) is None:
                    decision = await authorizer.authorize(principal, request)
                if mapper is not None and decision.verdict is _PASS:
                    principal = await mapper.map_principal(principal, request.cluster)
            except Exception:
                logger.exception("authorizer %s failed", authorizer.name)
                decision = deny(authorizer.name, BROKEN)
            if trace is not None:
                trace.append(decision)
            if decision.verdict is not _PASS:
                return decision
            if not decision.aside and decision.reason:
                reasons.append(decision)
            last = decision
        return _silence(reasons, last)

    async def explain(self, principal: Principal, request: RequestInfo) -> Decision:
        """The decision with the trace of every step up to the one that decided, in order (AZ11).

        Steps that do not concern the principal there are in the trace as well, and say so themselves.
        """
        asked = self._plans[principal.is_system][cluster_kind_of(request.cluster)]
        # As ``authorize``, but every step speaks for itself; only those that ``authorize`` would have asked can decide, so
        # that the explanation and the decision never differ.
        reasons: list[Decision] = []
        last = _NOBODY
        trace: list[Decision] = []
        for step in self._steps:
            authorizer, _, mapper = step
            try:
                said = await authorizer.authorize(principal, request)
                if mapper is not None and said.verdict is _PASS:
                    principal = await mapper.map_principal(principal, request.cluster)
            except Exception:
                logger.exception("authorizer %s failed", authorizer.name)
                said = deny(authorizer.name, BROKEN)
            trace.append(said)
            if step in asked:
                last = said
                if said.verdict is not _PASS:
                    return replace(said, trace=tuple(trace))
                if not said.aside and said.reason:
                    reasons.append(said)
        return replace(_silence(reasons, last), trace=tuple(trace))

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """What the principal may do in a namespace, and whether that is all (SelfSubjectRulesReview, AZ10).

        An authorizer that cannot list what it allows, such as a webhook, makes the answer incomplete.
        """
        # Filters limit what comes after them, as their DENY would; a step that ends the way (``final``) ends the list;
        # one that breaks ends it too, and is never shown as "nothing more".
        rules: dict[Rule, None] = {}
        limits: list[RuleFilter] = []
        complete, error = True, ""
        for authorizer, _, mapper in self._steps:
            if not isinstance(authorizer, RuleResolver):
                complete = False
                continue
            try:
                held = await authorizer.rules_for(principal, cluster, namespace)
                for limit in limits if held.rules else ():
                    held = await limit.filter_rules(held, principal, cluster, namespace)
                if mapper is not None and not held.final:
                    principal = await mapper.map_principal(principal, cluster)
            except Exception:
                logger.exception("authorizer %s failed", authorizer.name)
                held = RuleSet(complete=False, final=True)
            if isinstance(authorizer, RuleFilter):
                limits.append(authorizer)
            rules.update(dict.fromkeys(held.rules))
            complete = complete and held.complete
            error = error or held.error
            if held.final:
                break
        return RuleSet(tuple(rules), complete, error=error)


def _silence(reasons: Sequence[Decision], last: Decision) -> Decision:
    """No opinion of all who were asked, with every reason to refuse that one of them gives, a line each as in Kubernetes.

    It is in the name of the first who gives one, or else of the ``last`` who was asked.
    """
    if len(reasons) == 1:
        return reasons[0]
    if not reasons:
        return no_opinion(last.step)
    return Decision(_PASS, reasons[0].step, "\n".join(decision.reason for decision in reasons))


def _ready(plan: Sequence[_Step]) -> tuple[Callable[[Principal, RequestInfo], Decision | None], ...]:
    """How the steps are asked without waiting; where a mapper has to be waited for in any case, not at all."""
    if any(step.mapper is not None for step in plan):
        return (_waits,)
    return tuple(step.decide or _waits for step in plan)


def _waits(_principal: Principal, _request: RequestInfo) -> None:
    """Of what has to be waited for nothing is known before."""


def _concerns(step: _Step, operator: bool, cluster_kind: ClusterKind) -> bool:
    authorizer = step.authorizer
    return not isinstance(authorizer, ScopedAuthorizer) or authorizer.applies_to(
        operator=operator, cluster_kind=cluster_kind
    )
