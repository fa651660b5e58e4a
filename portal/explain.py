"""Why a request would be allowed or refused, step by step, without sending it (AZ11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from audit.recorder import Actor
from kube.identity import AUTHENTICATED, SYSTEM_TENANT, Principal
from kube.requestinfo import RequestInfo
from kube.status import BadRequest, Forbidden, ServiceUnavailable
from kube.verdicts import Decision, Explanation, Verdict
from portal import wording
from tenants.models import Membership, Role
from tenants.rights import GROUP_PREFIX, role_at_least

Explainer = Callable[[Principal, str, str, str], tuple[RequestInfo, Explanation]]
"""(who, method, path with its query, logical cluster) → what was resolved, and the decision with its trace."""

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_WORDS: Final = {
    Verdict.ALLOW: (wording.ALLOW, "allows"),
    Verdict.DENY: (wording.DENY, "denies"),
    Verdict.NO_OPINION: (wording.PASS, "no opinion"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One stop on the way: the authorizer, its verdict as a colour and a word, why, and by which rule."""

    name: str
    verdict: str
    word: str
    reason: str
    rule: str
    milliseconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A decision as pages and the REST API show it."""

    resolved: RequestInfo
    allowed: bool
    decided_by: str
    reason: str
    steps: tuple[Step, ...]

    @property
    def verdict(self) -> str:
        """The colour of the whole."""
        return wording.ALLOW if self.allowed else wording.DENY

    @property
    def headline(self) -> str:
        """The decision in two words."""
        return "Allowed" if self.allowed else "403 Forbidden"

    @property
    def verb(self) -> str:
        """Kubernetes' verb of the request."""
        return self.resolved.verb

    @property
    def path(self) -> str:
        """The full path that was decided about."""
        return self.resolved.path

    @property
    def needed(self) -> str:
        """What would have been needed, empty when it was allowed."""
        if self.allowed:
            return ""
        info = self.resolved
        what = f"{info.resource}/{info.subresource}" if info.subresource else info.resource or info.path
        where = f"namespace {info.namespace}" if info.namespace else f"{info.cluster}"
        if any(step.verdict == wording.DENY for step in self.steps):
            return f"{self.decided_by} must stop denying: {self.reason}"
        return f"A role in {where} that allows “{info.verb}” on “{what}”, and a binding to the person or a group."


def explain_request(
    *,
    actor: Actor,
    name: str,
    groups: Sequence[str] = (),
    tenant: str = "",
    extra: Mapping[str, Sequence[str]] | None = None,
    method: str = "GET",
    path: str,
    cluster: str = "",
) -> Explained:
    """The decision about a request of ``name``, who need not exist.

    Operators ask about anybody, admins of a tenant about its users in its space, everybody about themselves.
    Raises ``Forbidden``, ``BadRequest`` for what is no request, ``ServiceUnavailable`` without the API server's rules.
    """
    if method not in _METHODS:
        raise BadRequest("The method is one of GET, HEAD, POST, PUT, PATCH, DELETE.")
    if not path.startswith("/") or not path.isascii():
        raise BadRequest("The path begins with a slash, as kubectl sends it.")
    tenant, groups = _permitted(actor, name, tenant, groups, cluster)
    principal = Principal(
        name=name,
        groups=tuple(dict.fromkeys([*groups, AUTHENTICATED])),
        extra={key: tuple(values) for key, values in (extra or {}).items()},
        tenant=tenant,
        authenticator="explain",
    )
    space = cluster or ("root" if tenant == SYSTEM_TENANT else f"root:{tenant}")
    resolved, explanation = _explainer()(principal, method, path, space)
    return explained(resolved, explanation)


def explained(resolved: RequestInfo, explanation: Explanation) -> Explained:
    """An explanation in words."""
    decision = explanation.decision
    return Explained(
        resolved=resolved,
        allowed=decision.allowed,
        decided_by=decision.step if decision.verdict is not Verdict.NO_OPINION else "default",
        reason=decision.reason or ("" if decision.allowed else "no rule allows it"),
        steps=tuple(_step(step) for step in explanation.trace),
    )


def own_facts(actor: Actor) -> dict[str, Any]:
    """How the person appears at the API server: name, tenant and groups, for filling in the form."""
    if actor.operator:
        return {"user": actor.name, "tenant": SYSTEM_TENANT, "groups": ""}
    first = Membership.objects.filter(user_id=actor.user_id).order_by("tenant_id").first()  # type: ignore[misc]
    if first is None:
        return {"user": actor.name}
    return {"user": actor.name, "tenant": first.tenant_id, "groups": f"{GROUP_PREFIX}{first.role}"}


def _permitted(actor: Actor, name: str, tenant: str, groups: Sequence[str], cluster: str) -> tuple[str, Sequence[str]]:
    """The tenant and groups to ask with, as far as the actor may."""
    if actor.operator:
        return tenant or SYSTEM_TENANT, groups
    roles = dict(Membership.objects.filter(user_id=actor.user_id).values_list("tenant_id", "role"))  # type: ignore[misc]
    tenant = tenant or (min(roles) if roles else "")
    if tenant not in roles:
        raise Forbidden("You may ask about users of your own tenants only.")
    space = f"root:{tenant}"
    if cluster and cluster != space and not cluster.startswith(f"{space}:"):
        raise Forbidden(f"You may ask about {space} and what is in it only.")
    if role_at_least(roles[tenant], Role.ADMIN):
        return tenant, groups
    if name != actor.name:
        raise Forbidden("You may ask about yourself; the tenant's admins may ask about its users.")
    # Groups are facts of the membership here, not of the form: nobody tries on other people's groups.
    return tenant, [f"{GROUP_PREFIX}{roles[tenant]}"]


def _step(decision: Decision) -> Step:
    verdict, word = _WORDS[decision.verdict]
    return Step(decision.step, verdict, word, decision.reason, decision.rule)


def _explainer() -> Explainer:
    """The API server's own rules, in this process."""
    try:
        from gateway.explaining import explain  # type: ignore[import-not-found]
    except ImportError:
        raise ServiceUnavailable("The API server's rules are not available in this process.") from None
    return explain  # type: ignore[no-any-return]
