"""Who a certificate, a subject, a line of a token file or a token's claims would be, and by which rule.

For people who wonder why they are refused, or are somebody else than they thought (issue: identity inspector). Nothing
is verified here and nothing is kept: the answer says what the rules make of the text, not that anybody may use it. No
reason repeats a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson
from cryptography import x509

from kube.authentication import authfiles, idtokens
from kube.authentication.authenticationconfig import JwtIssuer
from kube.authentication.identity import SERVICE_ACCOUNT_PREFIX, without_virtual_groups
from kube.authentication.oidcclaims import ClaimError, identify
from kube.authentication.pki import is_valid_at, load_certificates
from kube.authentication.subjects import Identity, InvalidSubject, identity_of_certificate, identity_of_subject
from kube.requests.logicalclusters import is_valid, tenant_of

TEXT_MAX: Final = 64 * 1024

NEW_FORM: Final = "certificate, new form: O=tenant:<tenant>, groups in OU"
OLD_FORM: Final = "certificate, old form: CN=<tenant>:<name>, groups in O"
TENANT_LINE: Final = "file line with a tenant: …,,<tenant>"
PLAIN_LINE: Final = "file line without a tenant: a user of the system tenant"
SERVICE_ACCOUNT: Final = "service account token"

_PEM: Final = "-----BEGIN "
_SLASHED: Final = re.compile(r"/(?=[A-Za-z]+=)")
_COMMAED: Final = re.compile(r"(?<!\\)[,+]\s*(?=[A-Za-z]+\s*=)")
_SUBJECT: Final = re.compile(r"(?:subject\s*=\s*)?/?\s*(?:CN|O|OU)\s*=", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Step:
    """One rule, whether it matched, and why not."""

    rule: str
    matched: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Inspection:
    """What the text is, who it would be (``None``: nobody, 401), and every rule that was looked at, in order.

    ``tenant`` of the identity is empty for a user of no tenant.
    """

    kind: str
    identity: Identity | None
    steps: tuple[Step, ...]

    @property
    def rule(self) -> str:
        """The rule that matched, empty when none did."""
        return next((step.rule for step in self.steps if step.matched), "")


def inspect(
    text: str,
    *,
    now: float,
    issuers: Sequence[JwtIssuer] = (),
    service_account_issuers: Sequence[str] = (),
    default_tenant: str = "",
) -> Inspection:
    """What the rules make of the text at ``now`` (Unix seconds). Never raises for any text."""
    found = _inspected(text, now, issuers, service_account_issuers)
    if found.identity is None:
        return found
    groups, tenant = without_virtual_groups(tuple(found.identity.groups)), found.identity.tenant or default_tenant
    return replace(found, identity=replace(found.identity, groups=groups, tenant=tenant))


def _inspected(
    text: str, now: float, issuers: Sequence[JwtIssuer], service_account_issuers: Sequence[str]
) -> Inspection:
    stripped = text.strip()
    if not stripped or len(text) > TEXT_MAX:
        return Inspection("nothing", None, (Step("any", False, "paste one certificate, subject, line or token"),))
    if _PEM in stripped:
        return _certificate(stripped, now)
    claims = _claims(stripped)
    if claims is not None:
        return _token(claims, now, issuers, service_account_issuers)
    if _SUBJECT.match(stripped):
        return _subject(stripped)
    return _line(text.strip("\r\n"))


def _certificate(text: str, now: float) -> Inspection:
    if "PRIVATE KEY" in text:
        step = Step("certificate", False, "this is a private key: whoever has seen it can be its owner; replace it")
        return Inspection("private key", None, (step,))
    try:
        certificate = load_certificates(text.encode())[0]
        organizations = [
            str(attribute.value)
            for attribute in certificate.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)
        ]
    except (ValueError, IndexError):
        return Inspection("certificate", None, (Step("certificate", False, "it cannot be read"),))
    valid = is_valid_at(certificate, datetime.fromtimestamp(now, UTC))
    steps = () if valid else (Step("certificate", False, "it is not valid at this time"),)
    # Whether the authority may name operators is the server's to say; here the names alone are read.
    found = _read(organizations, lambda: identity_of_certificate(certificate, system=True))
    return Inspection("certificate", found.identity if valid else None, (*steps, *found.steps))


def _subject(text: str) -> Inspection:
    body = re.sub(r"^subject\s*=\s*", "", text, flags=re.IGNORECASE)
    parts = _SLASHED.split(body)[1:] if body.startswith("/") else _COMMAED.split(body)
    attributes = []
    for part in parts:
        kind, _, value = part.partition("=")
        attributes.append((kind.strip().upper(), value.strip().replace("\\", "")))
    organizations = [value for kind, value in attributes if kind == "O"]
    found = _read(organizations, lambda: identity_of_subject(attributes, system=True))
    return Inspection("subject", found.identity, found.steps)


def _read(organizations: Sequence[str], read: Callable[[], Identity]) -> Inspection:
    """Both forms: which one the subject is of, and why it is nobody's."""
    is_new = any(value == "tenant" or value.startswith("tenant:") for value in organizations)
    rule, other = (NEW_FORM, OLD_FORM) if is_new else (OLD_FORM, NEW_FORM)
    why = "an O says tenant, so CN names no tenant" if is_new else "no O begins with tenant:"
    try:
        identity = read()
    except InvalidSubject as error:
        return Inspection("", None, _ordered(is_new, Step(rule, False, str(error)), Step(other, False, why)))
    return Inspection("", identity, _ordered(is_new, Step(rule, True), Step(other, False, why)))


def _ordered(is_new: bool, tried: Step, other: Step) -> tuple[Step, Step]:
    return (tried, other) if is_new else (other, tried)


def _line(text: str) -> Inspection:
    try:
        entry = authfiles.entry(text)
    except authfiles.AuthFileError as error:
        return Inspection(
            "file line", None, tuple(Step(rule, False, error.reason) for rule in (TENANT_LINE, PLAIN_LINE))
        )
    plain = Step(PLAIN_LINE, not entry.explicit, "the line names its tenant" if entry.explicit else "")
    named = Step(TENANT_LINE, entry.explicit, "" if entry.explicit else "the last column but one is not empty")
    return Inspection("file line", Identity(entry.name, entry.groups, entry.tenant), (named, plain))


def _claims(text: str) -> Mapping[str, Any] | None:
    said = idtokens.parse_unverified(text)
    if said is not None:
        return said.claims
    if not text.startswith("{"):
        return None
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _token(
    claims: Mapping[str, Any], now: float, issuers: Sequence[JwtIssuer], service_account_issuers: Sequence[str]
) -> Inspection:
    steps: list[Step] = []
    identity: Identity | None = None
    issuer = claims.get("iss")
    if service_account_issuers:
        found = _account(claims) if issuer in service_account_issuers else "iss is another issuer"
        reason = found if isinstance(found, str) else idtokens.time_reason(claims, now=now, leeway=0.0) or ""
        identity = found if isinstance(found, Identity) and not reason else None
        steps.append(Step(SERVICE_ACCOUNT, identity is not None, reason))
    for provider in issuers:
        reason = _why_not(claims, provider, now)
        if not reason:
            try:
                user = identify(claims, provider.rules)
                identity = Identity(user.name, user.groups, user.tenant or "")
            except ClaimError as error:
                reason = str(error)
        steps.append(Step(f"OpenID Connect, {provider.rules.issuer}", not reason, reason))
    if not steps:
        steps.append(Step("token", False, "no issuer is configured"))
    return Inspection("token", identity, tuple(steps))


def _why_not(claims: Mapping[str, Any], provider: JwtIssuer, now: float) -> str:
    if claims.get("iss") != provider.rules.issuer:
        return "iss is another issuer"
    if idtokens.audiences(claims).isdisjoint(provider.audiences):
        return "aud is another audience"
    if claims.get("azp") is not None and claims["azp"] not in provider.audiences:
        return "azp is another party"
    return idtokens.time_reason(claims, now=now, leeway=0.0) or ""


def _account(claims: Mapping[str, Any]) -> Identity | str:
    bound = claims.get("kubernetes.io")
    account = bound.get("serviceaccount") if isinstance(bound, dict) else None
    if not isinstance(bound, dict) or not isinstance(account, dict):
        return "there is no kubernetes.io claim of a service account"
    tenant, cluster, namespace = (bound.get(name) for name in ("tenant", "cluster", "namespace"))
    if not isinstance(tenant, str) or not isinstance(cluster, str):
        return "the tenant is missing"
    if not is_valid(cluster) or tenant_of(cluster) != tenant:
        return "tenant and cluster do not agree"
    user = f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{account.get('name')}"
    if claims.get("sub") != user:
        return "sub does not name the service account"
    return Identity(user, ("system:serviceaccounts", f"system:serviceaccounts:{namespace}"), tenant)
