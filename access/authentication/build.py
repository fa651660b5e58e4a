"""The authenticators of a server, made from its options in the order in which they are asked (AN9)."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from access.authentication.anonymous import AnonymousAuthenticator
from access.authentication.base import Authenticator, ChangeNotifier
from access.authentication.basicfile import BasicFileAuthenticator
from access.authentication.keystone import KeystoneAuthenticator
from access.authentication.keystoneclient import Domains, Keystone
from access.authentication.oidc import ALGORITHMS, OidcAuthenticator, OidcIssuer
from access.authentication.options import AuthenticationOptions
from access.authentication.tokenfile import TokenFileAuthenticator
from access.authentication.webhook import WebhookAuthenticator
from access.httpclient import HttpClient, service_url, verifying, webhook_of_file
from access.reloading import UnusableFile
from kube.authentication import authenticationconfig, portaltokens
from kube.authentication.oidcclaims import ClaimRules
from kube.requests.names import tenant_name
from store.supervision import Supervised

logger = logging.getLogger(__name__)


class UnusableOptions(Exception):
    """Options that no server can start with; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Authentication:
    """The authenticators in order, and what else of them a server needs.

    ``keystone`` is for ``KeystoneAuthorizer``; ``None`` where Keystone is not configured.
    """

    authenticators: tuple[Authenticator, ...]
    keystone: tuple[Keystone, Domains] | None
    closing: tuple[Callable[[], Awaitable[None]], ...]

    @asynccontextmanager
    async def running(self, on_change: Callable[[str], None]) -> AsyncIterator[None]:
        """Follow what the authenticators know; at the end give every outside connection back.

        ``on_change`` is called with the name of an authenticator that may know somebody no longer.
        """
        following = [
            Supervised(
                f"authenticator-{authenticator.name}",
                partial(authenticator.follow, partial(on_change, authenticator.name)),
            )
            for authenticator in self.authenticators
            if isinstance(authenticator, ChangeNotifier)
        ]
        for task in following:
            task.start()
        try:
            yield
        finally:
            for task in following:
                await task.stop()
            for close in self.closing:
                await close()


def build_authenticators(
    options: AuthenticationOptions,
    *,
    certificates: Authenticator | None = None,
    service_accounts: Authenticator | None = None,
    portal: Authenticator | None = None,
    clusters: Authenticator | None = None,
    service_account_issuers: Sequence[str] = (),
    audiences: Sequence[str] = (),
    anonymous: bool = False,
    data_folder: Path | None = None,
    tenant_uid: Callable[[str], Awaitable[str]] | None = None,
) -> Authentication:
    """Certificates, token file, basic file, clusters, service accounts, people, OpenID Connect, webhook, Keystone, anonymous.

    People are the portal's, clusters those that ask the webhooks. What needs nothing but memory comes before what asks
    others; and a token of our own issuer, or of a configured provider, is never shown to a webhook or to Keystone.
    Raises ``UnusableOptions``.
    """
    for number, issuer in enumerate(service_account_issuers):
        if not issuer or issuer in service_account_issuers[:number]:
            raise UnusableOptions(f"--service-account-issuer={issuer}: every issuer has a name, and is given once")
    with usable():
        if problems := options.default_tenant and tenant_name(options.default_tenant):
            raise UnusableOptions(
                f"--default-tenant={options.default_tenant}: {'; '.join(problems)}; name a tenant for the users without one"
            )
        providers = _providers(options)
        own = frozenset(provider.issuer for provider in providers)
        if not own.isdisjoint(service_account_issuers):
            raise UnusableOptions("an OpenID Connect issuer has the name of the service accounts' issuer")
        own |= {*service_account_issuers, portaltokens.ISSUER}
        webhook = _webhook(options, audiences, own)
        keystone = _keystone(options, data_folder, tenant_uid)
        files: list[Authenticator] = []
        if options.token_auth_file is not None:
            files.append(TokenFileAuthenticator(options.token_auth_file))
        if options.basic_auth_file is not None:
            files.append(BasicFileAuthenticator(options.basic_auth_file))
    keystone_users = KeystoneAuthenticator(*keystone, own_issuers=own) if keystone is not None else None
    in_order = (
        certificates,
        *files,
        clusters,
        service_accounts,
        portal,
        *providers,
        webhook,
        keystone_users,
        AnonymousAuthenticator() if anonymous else None,
    )
    outside = (*providers, webhook, keystone_users)
    return Authentication(
        authenticators=tuple(authenticator for authenticator in in_order if authenticator is not None),
        keystone=keystone,
        closing=tuple(authenticator.close for authenticator in outside if authenticator is not None),
    )


def oidc_issuers(options: AuthenticationOptions) -> list[tuple[OidcIssuer, ssl.SSLContext]]:
    """The configured providers, each with the TLS that it is asked by; raises what ``build_authenticators`` words."""
    if options.authentication_config is not None:
        if options.oidc_issuer_url:
            raise UnusableOptions("--authentication-config and --oidc-issuer-url exclude each other")
        return [
            (
                OidcIssuer(rules=entry.rules, audiences=entry.audiences, leeway=options.oidc_leeway),
                ssl.create_default_context(cadata=entry.certificate_authority or None),
            )
            for entry in authenticationconfig.parse(options.authentication_config.read_bytes())
        ]
    if not options.oidc_issuer_url:
        return []
    issuer = OidcIssuer(
        rules=ClaimRules(
            issuer=options.oidc_issuer_url,
            username_claim=options.oidc_username_claim,
            username_prefix=options.oidc_username_prefix,
            groups_claim=options.oidc_groups_claim,
            groups_prefix=options.oidc_groups_prefix,
            tenant_claim=options.oidc_tenant_claim,
            tenant_prefix=options.oidc_tenant_prefix,
            required=dict(options.oidc_required_claim),
        ),
        audiences=(options.oidc_client_id,) if options.oidc_client_id else (),
        algorithms=frozenset(options.oidc_signing_algs) or ALGORITHMS,
        leeway=options.oidc_leeway,
    )
    return [(issuer, verifying(options.oidc_ca_file))]


def _providers(options: AuthenticationOptions) -> list[OidcAuthenticator]:
    providers = [OidcAuthenticator(issuer, HttpClient(tls=tls)) for issuer, tls in oidc_issuers(options)]
    for provider in providers:
        if not provider.gives_tenants:
            logger.warning(
                "users of %s belong to %s: no tenant claim is configured",
                provider.issuer,
                f"the tenant {options.default_tenant}" if options.default_tenant else "no tenant",
            )
    return providers


def _webhook(
    options: AuthenticationOptions, audiences: Sequence[str], own: frozenset[str]
) -> WebhookAuthenticator | None:
    if options.authentication_token_webhook_config_file is None:
        return None
    return WebhookAuthenticator(
        webhook_of_file(options.authentication_token_webhook_config_file),
        audiences=audiences,
        version=options.authentication_token_webhook_version,
        success_ttl=options.authentication_token_webhook_cache_ttl,
        own_issuers=own,
        trusted=options.authentication_token_webhook_trusted,
    )


def _keystone(
    options: AuthenticationOptions, data_folder: Path | None, tenant_uid: Callable[[str], Awaitable[str]] | None
) -> tuple[Keystone, Domains] | None:
    if not options.keystone_url:
        return None
    pins = data_folder / "keystone-domains.json" if data_folder is not None else None
    transport = HttpClient(tls=verifying(options.keystone_ca_file))
    return (
        Keystone(service_url(options.keystone_url), transport, ttl=options.keystone_cache_ttl),
        Domains(dict(options.keystone_domain_tenant), pins=pins, tenant_uid=tenant_uid),
    )


@contextmanager
def usable() -> Iterator[None]:
    """Turn what a wrong option raises into ``UnusableOptions``."""
    try:
        yield
    except (UnusableFile, ssl.SSLError, ValueError) as error:
        raise UnusableOptions(str(error)) from None
    except OSError as error:
        raise UnusableOptions(f"{error.filename}, {error.strerror}") from None
