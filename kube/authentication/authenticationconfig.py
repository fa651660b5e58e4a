"""The file of ``--authentication-config``: several OpenID Connect issuers (``AuthenticationConfiguration``, AN8).

The structure is Kubernetes' own, with ``claimMappings.tenant`` beside ``username`` and ``groups``: either ``claim``
and ``prefix``, or the ``name`` of the one tenant that the issuer's users belong to. Expressions are refused, not left
out: an expression that is not evaluated would let more users in than its author meant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kube.authentication.oidcclaims import NO_PREFIX, ClaimRules
from kube.authentication.userinfo import is_strings, tenant_reasons

FILE_MAX: Final = 1024 * 1024
ISSUERS_MAX: Final = 64

_VERSIONS: Final = tuple(f"apiserver.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))


class AuthenticationConfigError(ValueError):
    """A file that cannot be used; the message names the field."""


@dataclass(frozen=True, slots=True)
class JwtIssuer:
    """One entry of ``jwt``: the rules, the accepted audiences, and the CA bundle as PEM (empty: the system's)."""

    rules: ClaimRules
    audiences: tuple[str, ...]
    certificate_authority: str


def parse(data: bytes) -> tuple[JwtIssuer, ...]:
    """Every issuer of the file. Raises ``AuthenticationConfigError``."""
    if len(data) > FILE_MAX:
        raise AuthenticationConfigError(f"larger than {FILE_MAX} bytes")
    try:
        config = yaml.safe_load(data.decode("utf-8"))
    except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError):
        raise AuthenticationConfigError("not YAML") from None
    if not isinstance(config, dict) or config.get("kind") != "AuthenticationConfiguration":
        raise AuthenticationConfigError("not of kind AuthenticationConfiguration")
    if config.get("apiVersion") not in _VERSIONS:
        raise AuthenticationConfigError(f"apiVersion must be {_VERSIONS[0]}")
    _only(config, "", {"apiVersion", "kind", "jwt"})
    entries = config.get("jwt")
    if not isinstance(entries, list) or len(entries) > ISSUERS_MAX:
        raise AuthenticationConfigError(f"jwt must be a list of at most {ISSUERS_MAX} issuers")
    issuers = tuple(_issuer(entry, f"jwt[{index}]") for index, entry in enumerate(entries))
    urls = [issuer.rules.issuer for issuer in issuers]
    if len(set(urls)) != len(urls):
        raise AuthenticationConfigError("jwt names one issuer twice")
    return issuers


def _issuer(entry: Any, at: str) -> JwtIssuer:
    entry = _only(entry, at, {"issuer", "claimMappings", "claimValidationRules"})
    issuer = _only(
        entry.get("issuer"), f"{at}.issuer", {"url", "audiences", "audienceMatchPolicy", "certificateAuthority"}
    )
    url, audiences = _text(issuer, "url", f"{at}.issuer"), issuer.get("audiences")
    if not url.startswith("https://"):
        raise AuthenticationConfigError(f"{at}.issuer.url must start with https://")
    if not is_strings(audiences) or not audiences or not all(audiences):
        raise AuthenticationConfigError(f"{at}.issuer.audiences must be a list of names")
    if issuer.get("audienceMatchPolicy", "MatchAny") not in ("", "MatchAny"):
        raise AuthenticationConfigError(f"{at}.issuer.audienceMatchPolicy must be MatchAny")
    mappings = _only(entry.get("claimMappings"), f"{at}.claimMappings", {"username", "groups", "tenant"})
    username = _mapping(mappings, "username", at)
    if not username.get("claim") or "prefix" not in username:
        raise AuthenticationConfigError(f"{at}.claimMappings.username needs claim and prefix")
    groups, tenant = _mapping(mappings, "groups", at), _mapping(mappings, "tenant", at, {"name"})
    if bool(tenant.get("claim")) == bool(tenant.get("name")) and tenant:
        raise AuthenticationConfigError(f"{at}.claimMappings.tenant needs either claim or name")
    if tenant.get("name") and (reasons := tenant_reasons(tenant["name"])):
        raise AuthenticationConfigError(f"{at}.claimMappings.tenant.name {reasons[0]}")
    rules = ClaimRules(
        issuer=url,
        username_claim=username["claim"],
        username_prefix=username["prefix"] or NO_PREFIX,
        groups_claim=groups.get("claim", ""),
        groups_prefix=groups.get("prefix", ""),
        tenant_claim=tenant.get("claim", ""),
        tenant_prefix=tenant.get("prefix", ""),
        tenant=tenant.get("name", ""),
        required=_required(entry.get("claimValidationRules"), at),
    )
    return JwtIssuer(rules, tuple(audiences), _text(issuer, "certificateAuthority", f"{at}.issuer"))


def _required(rules: Any, at: str) -> dict[str, str]:
    required: dict[str, str] = {}
    if rules is not None and not isinstance(rules, list):
        raise AuthenticationConfigError(f"{at}.claimValidationRules must be a list")
    for index, rule in enumerate(rules or ()):
        place = f"{at}.claimValidationRules[{index}]"
        rule = _only(rule, place, {"claim", "requiredValue"})  # noqa: PLW2901
        required[_text(rule, "claim", place)] = _text(rule, "requiredValue", place)
    return required


def _mapping(mappings: Mapping[str, Any], name: str, at: str, more: frozenset[str] | set[str] = frozenset()) -> Any:
    value = mappings.get(name)
    if value is None:
        return {}
    place = f"{at}.claimMappings.{name}"
    value = _only(value, place, {"claim", "prefix", *more})
    return {key: _text(value, key, place) for key in value}


def _only(value: Any, at: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise AuthenticationConfigError(f"{at} must be an object")
    for key in value:
        if key not in known:
            raise AuthenticationConfigError(f"{at}.{key} is not supported".lstrip("."))
    return value


def _text(of: Mapping[str, Any], key: str, at: str) -> str:
    value = of.get(key, "")
    if not isinstance(value, str):
        raise AuthenticationConfigError(f"{at}.{key} must be text")
    return value
