"""Puts the parts of an API server together, in the order in which they need each other, and takes them apart."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cryptography import x509

from access.admission.chain import AdmissionChain
from access.admission.defaults import Defaults
from access.admission.namespacelifecycle import NamespaceLifecycle
from access.admission.tenantscope import TenantScope
from access.authentication.anonymous import AnonymousAuthenticator
from access.authentication.base import Authenticator
from access.authentication.chain import AuthenticationChain
from access.authentication.x509 import X509Authenticator
from access.authorization.chain import AuthorizationChain
from access.authorization.isolation import SystemMasters, TenantIsolation
from access.authorization.lock import LockAuthorizer
from access.authorization.rbac import PolicyCache, RbacAuthorizer
from gateway.auditing import NoAudit
from gateway.certificates import Certificates
from gateway.kinds import Catalogs, definitions
from gateway.locks import LockTable
from gateway.options import Options
from gateway.runtime import Runtime
from gateway.streams import Streams
from store.engine import Engine


@asynccontextmanager
async def assembled(options: Options, certificates: Certificates) -> AsyncIterator[Runtime]:
    """A running API server's parts; everything is stopped on leaving."""
    definitions()
    async with Engine(options.database_url) as store:
        streams = Streams()
        locks = LockTable(options.database_url, streams.reconsider)
        policies = PolicyCache(store)
        rbac = RbacAuthorizer(policies)
        catalogs = Catalogs()
        authenticators: list[Authenticator] = [
            X509Authenticator([x509.load_pem_x509_certificate(certificates.own_client_ca.read_bytes())])
        ]
        if options.anonymous_auth:
            authenticators.append(AnonymousAuthenticator())
        runtime = Runtime(
            options=options,
            store=store,
            catalogs=catalogs,
            locks=locks,
            policies=policies,
            rbac=rbac,
            authentication=AuthenticationChain(authenticators),
            authorization=AuthorizationChain(
                [LockAuthorizer(locks), TenantIsolation(catalogs.is_system_only), SystemMasters(), rbac]
            ),
            admission=AdmissionChain([TenantScope(), Defaults(), NamespaceLifecycle(store)]),
            audit=NoAudit(),
            streams=streams,
        )
        store.subscribe(policies.on_events)
        store.subscribe(runtime.on_events)
        await locks.start()
        try:
            yield runtime
        finally:
            await locks.stop()
