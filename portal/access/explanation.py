"""Why a request would be allowed or refused, step by step, without sending it (AZ11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from http.client import responses
from typing import Any, Final

import yaml

from access.authorization.tenancy.placednamespaces import STEP as PLACED
from audit.models import ApiRequest
from audit.recorder import Actor
from gateway.server import explanation, judging
from gateway.server.judging import ELSEWHERE, Sent
from gateway.server.questiondeadlines import heed
from kube.authentication.identity import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    MEMBERS,
    SERVICE_ACCOUNT_PREFIX,
    UNAUTHENTICATED,
    Principal,
)
from kube.authorization import recommendations
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.rbac import Attributes
from kube.authorization.recommendations import Recommendation
from kube.requests.logicalclusters import is_valid, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import BadRequest, Forbidden
from portal.access.dryruns import Doors, rehearse
from portal.access.questionlimits import question
from portal.database.scopes import everything
from portal.pages import labels
from tenants.models import Membership, Role, User
from tenants.rights import role_at_least, role_of

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_WORDS: Final = {
    Verdict.ALLOW: (labels.ALLOW, "allows"),
    Verdict.DENY: (labels.DENY, "denies"),
    Verdict.NO_OPINION: (labels.PASS, "no opinion"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """One stop on the way: the authorizer, its verdict as a colour and a word, why, and by which rule."""

    name: str
    verdict: str
    word: str
    reason: str
    rule: str

    @property
    def decision(self) -> str:
        """``allow``, ``deny`` or ``no opinion``, as the REST API says it."""
        return "no opinion" if self.verdict == labels.PASS else self.verdict


@dataclass(frozen=True, slots=True)
class SuggestedGrant:
    """A grant that would allow a refused request."""

    recommendation: Recommendation

    @property
    def text(self) -> str:
        """In a sentence."""
        return self.recommendation.text

    @property
    def manifest(self) -> str:
        """The objects as YAML, for ``kubectl create -f -``."""
        return yaml.safe_dump_all(map(dict, self.recommendation.objects), sort_keys=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A decision as pages and the REST API show it; ``allowing`` is what would allow it, for who may grant that."""

    resolved: RequestInfo
    allowed: bool
    decided_by: str
    reason: str
    steps: tuple[Step, ...]
    allowing: tuple[SuggestedGrant, ...] = ()
    principal: Principal | None = None

    @property
    def verdict(self) -> str:
        """The colour of the whole."""
        return labels.ALLOW if self.allowed else labels.DENY

    @property
    def decision(self) -> str:
        """``allow`` or ``deny``, as the REST API says it."""
        return "allow" if self.allowed else "deny"

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
        """The full path that was decided about, or the thing in words where no single path is meant."""
        return self.resolved.path or _thing(self.resolved)

    @property
    def needed(self) -> str:
        """What would have been needed, empty when it was allowed."""
        if self.allowed:
            return ""
        if self.decided_by.partition("/")[0] == judging.STEP:
            return "The person may send it; the object itself has to be another one, or a bound has to be raised."
        info = self.resolved
        what = _what(info)
        where = f"namespace {info.namespace}" if info.namespace else f"{info.cluster}"
        if self.decided_by == PLACED:
            return f"{self.reason[:1].upper()}{self.reason[1:]}."
        if any(step.verdict == labels.DENY for step in self.steps):
            return f"{self.decided_by} must stop denying: {self.reason}"
        return f"A role in {where} that allows “{info.verb}” on “{what}”, and a binding to the person or a group."


@question
@everything()  # as the API server decides, which sees every space
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
    sent: Sent | None = None,
    doors: Doors | None = None,
    now: datetime,
) -> Explanation:
    """The decision about a request of ``name``, who need not exist.

    With what it sends, and of a deletion, also what the admission would say: its step, rule and amounts; of changes to what a cluster has,
    where ``doors`` leads the actor there.
    Operators ask about anybody, admins of a tenant about its users in its space, everybody about themselves.
    Raises ``Forbidden``, ``BadRequest`` for what is no request.
    """
    if method not in _METHODS:
        raise BadRequest("The method is one of GET, HEAD, POST, PUT, PATCH, DELETE.")
    if not path.startswith("/") or not path.isascii():
        raise BadRequest("The path begins with a slash, as kubectl sends it.")
    tenant, groups = _require_permitted(actor, name, tenant, groups, cluster)
    principal = _principal(name, groups, tenant, extra)
    said = explanation.explain(principal, method, path, cluster)
    return _explained(actor, tenant, said, _judge(actor, sent, doors, now))


@question
@everything()
def explain_access(
    *,
    actor: Actor,
    name: str,
    groups: Sequence[str] = (),
    cluster: str,
    attributes: Attributes,
    sent: Sent | None = None,
    doors: Doors | None = None,
    now: datetime,
) -> Explanation:
    """The decision about a verb on a thing in a logical cluster, for a person as they would come there.

    The same people may ask, it says the same of what is sent, and raises the same, as ``explain_request``.
    """
    home = _home_of(actor, name, cluster)
    tenant, groups = _require_permitted(actor, name, home, groups, cluster)
    said = explanation.ask(_principal(name, groups, tenant), cluster, attributes)
    return _explained(actor, tenant, said, _judge(actor, sent, doors, now))


@question
@everything()
def explain_own_write(
    *,
    actor: Actor,
    cluster: str,
    attributes: Attributes,
    sent: Sent | None,
    doors: Doors | None = None,
    now: datetime,
) -> Explanation:
    """The decision about what the actor would write in a logical cluster where they hand out rights, as they come there.

    Operators come to a tenant as its owners, and to the system space as its masters. Raises ``BadRequest``.
    """
    tenant = tenant_of(cluster)
    said = explanation.ask(as_member(actor, tenant), cluster, attributes)
    return _explained(actor, tenant, said, _judge(actor, sent, doors, now))


def _judge(
    actor: Actor, sent: Sent | None, doors: Doors | None, now: datetime
) -> Callable[[Principal, RequestInfo], Decision | None]:
    """Asks the admission about what is sent, and about deletions, which send nothing.

    What it says of a change says something of what is there, if only whether a guess was right: that is for those alone
    who may read it, whoever is asked about.
    """

    def judge(who: Principal, what: RequestInfo) -> Decision | None:
        if sent is None and not (what.is_resource and what.verb in judging.DELETIONS and not what.subresource):
            return None
        asking = as_member(actor, what.tenant)
        if what.verb != "create" and not explanation.decide(asking, replace(what, verb="get")).allowed:
            return _UNREAD
        found = judging.judge(who, what, sent, now=now.timestamp())
        if found is ELSEWHERE and doors is not None:
            return rehearse(what, sent, doors) if explanation.decide(asking, what).allowed else _UNWRITTEN
        return found

    return judge


_UNREAD: Final = Decision(
    Verdict.NO_OPINION, judging.STEP, "a change is judged by what is there, which you may not read"
)
_UNWRITTEN: Final = Decision(
    Verdict.NO_OPINION, judging.STEP, "its cluster judges what is sent, and you may not send it yourself"
)


def _principal(
    name: str, groups: Sequence[str], tenant: str, extra: Mapping[str, Sequence[str]] | None = None
) -> Principal:
    signed_in = name != ANONYMOUS
    return Principal(
        name=name,
        groups=tuple(dict.fromkeys([*groups, AUTHENTICATED if signed_in else UNAUTHENTICATED])),
        extra={key: tuple(values) for key, values in (extra or {}).items()},
        tenant=tenant if signed_in else None,
        authenticator="explain",
    )


def _home_of(actor: Actor, name: str, cluster: str) -> str:
    """Of which tenant somebody comes to a logical cluster: its own, where they are a member or an account of it.

    Only operators learn who is whose elsewhere; to others everybody is one of the tenant that they ask about.
    """
    tenant = tenant_of(cluster) if is_valid(cluster) else ""
    if not actor.sees_all or tenant == SYSTEM_TENANT or name.startswith(SERVICE_ACCOUNT_PREFIX):
        return tenant
    tenants = list(
        Membership.objects.filter(user__email__same=name).order_by("tenant_id").values_list("tenant_id", flat=True)
    )
    if tenant in tenants:
        return tenant
    if User.objects.filter(email__same=name, is_staff=True).exists():
        return SYSTEM_TENANT
    return tenants[0] if tenants else tenant


def _explained(
    actor: Actor,
    tenant: str,
    said: tuple[Principal, RequestInfo, Decision],
    judge: Callable[[Principal, RequestInfo], Decision | None],
) -> Explanation:
    """A decision with what would allow it, for whoever may grant that; of what is allowed also what ``judge`` says."""
    principal, resolved, decision = said
    if not actor.sees_all and resolved.tenant not in {tenant, SYSTEM_TENANT}:
        raise Forbidden(f"You may ask about {space_of(tenant)} and what is in it only.")
    allowing: tuple[Recommendation, ...] = ()
    if not decision.allowed and may_grant(actor, resolved.cluster):
        policies = explanation.state_of(resolved.cluster).policies
        heed()
        allowing = tuple(
            recommendation
            for recommendation in recommendations.recommend_grants(
                principal, Attributes.of(resolved), policies, decision
            )
            if actor.operator or recommendations.may_create(as_member(actor, resolved.tenant), recommendation, policies)
        )
    judged = judge(principal, resolved) if decision.allowed else None
    if judged is not None:
        refused = judged.verdict is Verdict.DENY
        decision = replace(judged if refused else decision, trace=(*decision.trace, judged))
    return explanation_of(resolved, decision, allowing, principal)


def may_grant(actor: Actor, cluster: str) -> bool:
    """Whether the person hands out rights in a logical cluster: its tenant's admins and operators."""
    tenant = tenant_of(cluster)
    if actor.operator or tenant == SYSTEM_TENANT:
        return actor.operator
    role = role_of(actor, tenant)
    return role is not None and role_at_least(role, Role.ADMIN)


def as_member(actor: Actor, tenant: str) -> Principal:
    """How the person appears at the API server as a member of a tenant; operators as its owners, and the system's masters."""
    role = role_of(actor, tenant)
    groups = [] if role is None else [f"{MEMBERS}{role.value}"]
    if tenant == SYSTEM_TENANT:
        groups = [MASTERS] if actor.operator else []
    return _principal(actor.name, groups, tenant)


def explanation_of(
    resolved: RequestInfo,
    decision: Decision,
    allowing: tuple[Recommendation, ...] = (),
    principal: Principal | None = None,
) -> Explanation:
    """A decision with its trace, in words."""
    return Explanation(
        resolved=resolved,
        allowed=decision.allowed,
        decided_by=decision.step if decision.verdict is not Verdict.NO_OPINION else "default",
        reason=decision.reason or ("" if decision.allowed else "no rule allows it"),
        steps=tuple(_step(step) for step in decision.trace),
        allowing=tuple(map(SuggestedGrant, allowing)),
        principal=principal,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRequest:
    """A request of the audit whose trace was kept, for the same component that shows an explanation."""

    verb: str
    path: str
    headline: str
    steps: tuple[Step, ...]
    verdict: str
    title: str


def traced_request(row: ApiRequest) -> TracedRequest | None:
    """What decided a request, authorization and admission, or ``None`` where no trace was kept."""
    if not row.trace:
        return None
    steps = [Step(said["step"], *_WORDS[Verdict(said["decision"])], said["reason"], said["rule"]) for said in row.trace]
    return TracedRequest(
        verb=row.verb,
        path=row.path,
        headline=f"{row.code} {responses.get(row.code, '')}",
        steps=tuple(steps),
        verdict=labels.ALLOW if row.code < HTTPStatus.BAD_REQUEST else labels.DENY,
        title="What was noted of it" if row.code < HTTPStatus.BAD_REQUEST else "Why it was refused",
    )


def own_identity(actor: Actor) -> dict[str, Any]:
    """How the person appears at the API server: name, tenant and groups, for filling in the form."""
    if actor.operator:
        return {"user": actor.name, "tenant": SYSTEM_TENANT, "groups": ""}
    first = Membership.objects.filter(user_id=actor.user_id).order_by("tenant_id").first()  # type: ignore[misc]
    if first is None:
        return {"user": actor.name}
    return {"user": actor.name, "tenant": first.tenant_id, "groups": f"{MEMBERS}{first.present_role}"}


def _require_permitted(
    actor: Actor, name: str, tenant: str, groups: Sequence[str], cluster: str
) -> tuple[str, Sequence[str]]:
    """The tenant and groups to ask with, as far as the actor may."""
    if actor.sees_all:
        return tenant or SYSTEM_TENANT, groups or _groups_of(name, tenant)
    own = Membership.objects.filter(user_id=actor.user_id)  # type: ignore[misc]
    roles = {membership.tenant_id: membership.present_role for membership in own}
    tenant = tenant or (min(roles) if roles else "")
    if tenant not in roles:
        raise Forbidden("You may ask about users of your own tenants only.")
    space = f"root:{tenant}"
    if cluster and cluster != space and not cluster.startswith(f"{space}:"):
        raise Forbidden(f"You may ask about {space} and what is in it only.")
    if role_at_least(roles[tenant], Role.ADMIN):
        return tenant, groups or _groups_of(name, tenant)
    if name != actor.name:
        raise Forbidden("You may ask about yourself; the tenant's admins may ask about its users.")
    # Groups are facts of the membership here, not of the form: nobody tries on other people's groups.
    return tenant, [f"{MEMBERS}{roles[tenant]}"]


def _groups_of(name: str, tenant: str) -> list[str]:
    """The groups that a person of the portal has in a tenant; none for anybody else."""
    found = Membership.objects.filter(user__email__same=name, tenant_id=tenant).first()
    return [] if found is None else [f"{MEMBERS}{found.present_role}"]


def _what(info: RequestInfo) -> str:
    return f"{info.resource}/{info.subresource}" if info.subresource else info.resource or info.path


def _thing(info: RequestInfo) -> str:
    """``deployments.apps/scale “web” in namespace team of root:acme``."""
    plural, slash, part = _what(info).partition("/")
    words = [f"{plural}.{info.group}{slash}{part}" if info.group else f"{plural}{slash}{part}"]
    if info.name:
        words.append(f"“{info.name}”")
    if info.namespace:
        words.append(f"in namespace {info.namespace}")
    return " ".join([*words, "of" if info.namespace else "in", info.cluster])


def _step(decision: Decision) -> Step:
    verdict, word = _WORDS[decision.verdict]
    return Step(decision.step, verdict, word, decision.reason, decision.rule)
