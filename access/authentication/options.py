"""How users from outside are known: the flags of ``manage.py apiserver`` about authentication, and what they mean."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from access.authentication.keystoneclient import TTL_SECONDS
from access.flags import Growing, add_switch, file, names, one, seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationOptions:
    """kube-apiserver's names and meanings where it has the flag; durations are seconds."""

    default_tenant: str = ""
    token_auth_file: Path | None = None
    basic_auth_file: Path | None = None
    oidc_issuer_url: str = ""
    oidc_client_id: str = ""
    oidc_ca_file: Path | None = None
    oidc_username_claim: str = "sub"
    oidc_username_prefix: str | None = None
    oidc_groups_claim: str = ""
    oidc_groups_prefix: str = ""
    oidc_tenant_claim: str = ""
    oidc_tenant_prefix: str = ""
    oidc_required_claim: tuple[tuple[str, str], ...] = ()
    oidc_signing_algs: tuple[str, ...] = ()
    oidc_leeway: float = 0.0
    authentication_config: Path | None = None
    authentication_token_webhook_config_file: Path | None = None
    authentication_token_webhook_cache_ttl: float = 120.0
    authentication_token_webhook_version: str = "v1"  # noqa: S105 - a version
    authentication_token_webhook_trusted: bool = False
    keystone_url: str = ""
    keystone_ca_file: Path | None = None
    keystone_cache_ttl: float = TTL_SECONDS
    keystone_domain_tenant: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_flags(cls, flags: Mapping[str, Any]) -> AuthenticationOptions:
        """The options in what ``add_flags`` made argparse read; other flags are left alone."""
        return cls(**{field.name: flags[field.name] for field in fields(cls)})


def add_flags(parser: ArgumentParser) -> None:
    """Declare the flags on the parser; ``AuthenticationOptions.of_flags`` reads what argparse makes of them."""
    add = parser.add_argument
    add("--default-tenant", default="", help="tenant of users without one")
    add("--token-auth-file", type=file, help="bearer tokens: token,user,uid,groups[,other],,tenant")
    add("--basic-auth-file", type=file, help="passwords: password,user,uid,groups[,other],,tenant")
    add("--oidc-issuer-url", default="", help="OpenID Connect provider, exactly as its tokens name it")
    add("--oidc-client-id", default="", help="client id that its tokens must be for")
    add("--oidc-ca-file", type=file, help="CA of the provider, the system's CAs by default")
    add("--oidc-username-claim", default="sub", help="claim with the user name")
    add("--oidc-username-prefix", help="before every user name; the issuer and # by default, - for none")
    add("--oidc-groups-claim", default="", help="claim with the groups")
    add("--oidc-groups-prefix", default="", help="before every group")
    add("--oidc-tenant-claim", default="", help="claim with the tenant")
    add("--oidc-tenant-prefix", default="", help="before every tenant")
    add(
        "--oidc-required-claim",
        type=one(_pair),
        action=Growing,
        default=(),
        help="claim=value that every token must have",
    )
    add(
        "--oidc-signing-algs",
        type=names,
        action=Growing,
        default=(),
        help="algorithms accepted, every RS, PS and ES by default",
    )
    add("--oidc-leeway", type=seconds, default=0.0, help="how wrong the provider's clock may be")
    add("--authentication-config", type=file, help="several providers, as kube-apiserver's AuthenticationConfiguration")
    add("--authentication-token-webhook-config-file", type=file, help="kubeconfig-format file of a TokenReview webhook")
    add("--authentication-token-webhook-cache-ttl", type=seconds, default=120.0, help="how long its answers count")
    add("--authentication-token-webhook-version", choices=("v1", "v1beta1"), default="v1", help="API version it speaks")
    add_switch(
        parser,
        "--authentication-token-webhook-trusted",
        meaning="let it name operators, and users and groups that begin with system:",
    )
    add("--keystone-url", default="", help="OpenStack Keystone")
    add("--keystone-ca-file", type=file, help="CA of Keystone, the system's CAs by default")
    add("--keystone-cache-ttl", type=seconds, default=TTL_SECONDS, help="how long its answers count")
    add(
        "--keystone-domain-tenant",
        type=one(_pair),
        action=Growing,
        default=(),
        help="domain id=tenant, to map a domain",
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise ArgumentTypeError("must be name=value")
    return name, value
