"""Puts the parts of an API server together, in the order in which they need each other, and takes them apart."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress

import django
from cryptography import x509

from access.admission.apibindings import ApiBindings
from access.admission.certificaterequests import CertificateRequests
from access.admission.chain import AdmissionChain
from access.admission.customresourcedefinitions import CustomResourceDefinitions
from access.admission.escalation import EscalationPrevention
from access.admission.limitranger import LimitRanger
from access.admission.namespacelifecycle import IMMORTAL, NamespaceLifecycle
from access.admission.noderestriction import NodeRestriction
from access.admission.podclasses import PodClasses
from access.admission.resourcequota import ResourceQuota
from access.admission.serviceaccount import ServiceAccount
from access.admission.strategies import Strategies
from access.admission.tenantlifecycle import TenantLifecycle
from access.admission.tenantscope import TenantScope
from access.admission.validation import ObjectValidation
from access.admission.workspacelifecycle import WorkspaceLifecycle
from access.admission.workspaces import WorkspaceTree
from access.authentication.build import Authentication, build_authenticators
from access.authentication.chain import AuthenticationChain
from access.authentication.keyfiles import KeyFiles
from access.authentication.serviceaccount import ServiceAccountAuthenticator
from access.authentication.x509 import X509Authenticator
from access.authorization.build import build_authorization
from access.authorization.keystone import KeystoneAuthorizer
from access.throttling import TenantThrottle
from audit.requests import RequestLog
from gateway import workers
from gateway.certificates import Certificates
from gateway.customresources import CustomResources
from gateway.kinds import Catalogs, definitions
from gateway.locks import LockTable
from gateway.objects import timestamp
from gateway.options import Options
from gateway.runtime import Runtime
from gateway.streams import Streams
from gateway.tenantservices import TenantServices
from gateway.turns import Turns
from kube.logicalclusters import ROOT
from kube.status import AlreadyExists
from kube.workspaceobjects import root_objects
from store.engine import Engine
from store.types import Create, Key, PreconditionFailed


@asynccontextmanager
async def assembled(options: Options, certificates: Certificates, *, background: bool = True) -> AsyncIterator[Runtime]:
    """A running API server's parts; everything is stopped on leaving. ``background``: take part in the workers."""
    # Worker processes are spawned: none of the command's own preparations have happened there.
    django.setup()
    definitions()
    async with Engine(options.database_url) as store:
        streams, turns, catalogs = Streams(), Turns(), Catalogs()
        locks = LockTable(options.database_url, streams.reconsider)
        custom = CustomResources(store, catalogs, lambda changed: streams.redefine(changed, custom.definition))
        keys = KeyFiles(certificates.verifying_keys, certificates.signing_key)
        accounts = ServiceAccountAuthenticator(
            store, keys=keys, issuer=options.service_account_issuer, audiences=options.audiences
        )
        authentication = _authentication(options, certificates, store, accounts)
        authorization = build_authorization(
            options.authorization,
            store,
            locks=locks,
            system_only=catalogs.is_system_only,
            on_change=lambda: streams.reconsider(None),
            further=lambda policies: (
                [KeystoneAuthorizer(*authentication.keystone, policies.of)] if authentication.keystone else []
            ),
        )

        def namespaced(cluster: str) -> Sequence[tuple[str, str, str]]:
            found = {(*r.storage_key, r.place[1]) for r in catalogs.of(cluster) if r.namespaced and r.persistent}
            return sorted(found)

        quotas = ResourceQuota(
            store, namespaced, lambda space, namespace, wanted: turns.line_up(space, namespace, wanted=wanted)
        )
        # What changes objects first, then what judges them; quotas last, when nothing else can refuse.
        admission = AdmissionChain(
            [
                TenantScope(),
                TenantLifecycle(store),
                CertificateRequests(),
                WorkspaceTree(store, authorization.workspaces, options.workspace_depth),
                ApiBindings(store, authorization.workspaces, definitions),
                ServiceAccount(store),
                PodClasses(store),
                LimitRanger(store),
                Strategies(),
                CustomResourceDefinitions(store, definitions),
                ObjectValidation(definitions),
                EscalationPrevention(authorization.policies, authorization.chain),
                NodeRestriction(),
                NamespaceLifecycle(store),
                WorkspaceLifecycle(store),
                quotas,
            ]
        )
        requests = RequestLog(options.database_url)
        runtime = Runtime(
            options=options,
            store=store,
            catalogs=catalogs,
            custom=custom,
            locks=locks,
            authentication=AuthenticationChain(authentication.authenticators),
            authorization=authorization.chain,
            maximal_permission=authorization.maximal_permission,
            throttle=TenantThrottle(options.tenant_limits, streams.of),
            admission=admission,
            audit=requests,
            tenants=TenantServices(),
            service_account_keys=keys,
            accounts=accounts,
            streams=streams,
            turns=turns,
        )
        store.subscribe(custom.on_events, lost=custom.on_lost)
        # What decides is kept right before open streams are looked at again.
        store.subscribe(authorization.on_events, lost=authorization.forget)
        store.subscribe(runtime.on_events, lost=lambda: streams.reconsider(None))
        await custom.load()
        await _first_objects(runtime)
        await locks.start()
        requests.start()
        try:
            url = options.url
            work = workers.running(store, options.database_url, url, custom, quotas) if background else nullcontext()
            async with authentication.running(streams.reconsider_known_by), authorization.running(), work:
                yield runtime
        finally:
            await requests.stop()
            await locks.stop()


def _authentication(
    options: Options, certificates: Certificates, store: Engine, accounts: ServiceAccountAuthenticator
) -> Authentication:
    own = x509.load_pem_x509_certificate(certificates.own_client_ca.read_bytes())

    async def knows_tenant(name: str) -> bool:
        return await store.get(Key(ROOT, "", "tenants", "", name), cached=True) is not None

    return build_authenticators(
        options.authentication,
        certificates=X509Authenticator([own]),
        service_accounts=accounts,
        service_account_issuer=options.service_account_issuer,
        audiences=options.audiences,
        anonymous=options.anonymous_auth,
        data_folder=options.data_folder,
        knows_tenant=knows_tenant,
    )


async def _first_objects(runtime: Runtime) -> None:
    """The first objects of the system space, and the default tenant (TS8), where they are missing."""
    for place, made in root_objects(now=timestamp(time.time()), uids=[str(uuid.uuid4()) for _ in range(4)]):
        key = Key(ROOT, *place)
        if await runtime.store.get(key) is None:
            with suppress(PreconditionFailed):
                await runtime.store.commit(Create(key, made))
    for name in sorted(IMMORTAL):
        key = Key(ROOT, "", "namespaces", "", name)
        if await runtime.store.get(key) is not None:
            continue
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": name,
                "uid": str(uuid.uuid4()),
                "creationTimestamp": timestamp(time.time()),
                "labels": {"kubernetes.io/metadata.name": name},
                "selfLink": f"/api/v1/namespaces/{name}",
            },
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
        try:
            await runtime.store.commit(Create(key, body))
        except PreconditionFailed:
            continue
    tenant = runtime.options.default_tenant
    if tenant and await runtime.store.get(Key(ROOT, "", "tenants", "", tenant)) is None:
        try:
            await asyncio.to_thread(
                runtime.tenants.create,
                user="system:apiserver",
                name=tenant,
                display_name="",
                labels={},
                annotations={},
            )
        except AlreadyExists:
            return
