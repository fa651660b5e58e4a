"""Puts the parts of an API server together, in the order in which they need each other, and takes them apart."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress

import django
import orjson

from access.admission import configuration
from access.admission.kubernetes.namespacelifecycle import IMMORTAL
from access.authentication.build import Authentication, build_authenticators
from access.authentication.chain import AuthenticationChain
from access.authentication.clusterwebhooks import ClusterWebhookAuthenticator
from access.authentication.keyfiles import KeyFiles
from access.authentication.portal import PortalAuthenticator, StandingCredentials
from access.authentication.serviceaccount import ServiceAccountAuthenticator
from access.authentication.x509 import X509Authenticator
from access.authorization.build import build_authorization
from access.authorization.modes.keystone import KeystoneAuthorizer
from access.reloading import ReloadedFile
from access.requestlimits import TenantThrottle
from access.tenantlimits import LIMITING, StoredBounds, TenantLimits, TenantTiers
from audit import tracing
from audit.requestlog.records import RequestLog
from gateway.controllers import manager
from gateway.http.certificates import Certificates
from gateway.options import Options
from gateway.process.askingclusters import AskingClusters
from gateway.process.auditlog import AuditLog, read_policy_file
from gateway.process.fairexecutor import shorten_switch_interval
from gateway.process.heavyrequests import HeavyRequests
from gateway.process.keyedlocks import KeyedLocks
from gateway.process.ratereports import RateReports
from gateway.process.runtime import Runtime
from gateway.process.streamreports import StreamReports
from gateway.process.streams import OpenStreams
from gateway.process.suspensions import SuspensionCache
from gateway.process.tenantservices import Caller, TenantServices
from gateway.process.tracing import TracedEngine, trace
from gateway.resources.consumers import Consumers
from gateway.resources.customresources import CustomResources
from gateway.resources.kinds import Catalogs, definitions
from gateway.resources.objects import timestamp
from gateway.server.admission import build_admission
from gateway.upstream.admission import PlacedPolicies, PlacedScope
from gateway.upstream.clusternamespaces import ClusterNamespaces
from gateway.upstream.clusters import Clusters
from gateway.upstream.openedobjects import OpenedObjects
from gateway.upstream.placed.copies import PlacedCopies
from gateway.upstream.placed.hosts import IngressReader, PlacedHosts
from gateway.upstream.placed.quota import NamespaceQuotaReader, PlacedQuota, PlacedUsageController
from gateway.upstream.placed.rights import PlacedRights
from gateway.upstream.placements import Placements
from gateway.upstream.recording.registry import Recordings
from gateway.upstream.tokens import WorkspaceTokens
from kube.authentication.serviceaccounttokens import load_verifying_keys
from kube.customresources.definitions import CRDS
from kube.objects.publications import NAMESPACES, PLACED_COPIES
from kube.requests.logicalclusters import ROOT
from kube.requests.rateshares import RateShares
from kube.requests.status import AlreadyExists
from kube.workspaces.objects import root_objects
from store.engine import Engine
from store.engine import Options as StoreOptions
from store.supervision import Supervised
from store.types import Create, Key, PreconditionFailed


@asynccontextmanager
async def build_runtime(
    options: Options,
    certificates: Certificates,
    *,
    background: bool = True,
    heavy: bool = False,
    throttled: bool = True,
    store_options: StoreOptions | None = None,
) -> AsyncIterator[Runtime]:
    """A running API server's parts; everything is stopped on leaving.

    ``background``: take part in the workers. ``heavy``: leave requests that would hold the loop to a process beside it.
    ``throttled``: have a part in the rates of tenants, as every process into which requests come.
    """
    # Worker processes are spawned: none of the command's own preparations have happened there.
    django.setup()
    definitions()
    traced = tracing.running() is not None
    async with (TracedEngine if traced else Engine)(options.database_url, store_options) as store:
        configured = configuration.read(options.admission_control_config_file)
        open_streams, write_locks, catalogs = OpenStreams(), KeyedLocks(), Catalogs()
        suspensions = SuspensionCache(options.database_url, open_streams.reauthorize)
        custom = CustomResources(
            store, catalogs, lambda changed: open_streams.end_redefined(changed, custom.definition)
        )
        keys = KeyFiles(certificates.verifying_keys, certificates.signing_key)
        accounts = ServiceAccountAuthenticator(
            store, keys=keys, issuers=options.service_account_issuers, audiences=options.audiences
        )
        people = PortalAuthenticator(
            ReloadedFile(certificates.portal_token_key, load_verifying_keys),
            StandingCredentials(options.database_url, open_streams.credentials),
        )
        authentication = _authentication(options, certificates, store, accounts, people)
        authorization = build_authorization(
            options.authorization,
            store,
            locks=suspensions,
            system_only=catalogs.is_system_only,
            on_change=lambda: open_streams.reauthorize(None),
            further=lambda policies: (
                [KeystoneAuthorizer(*authentication.keystone, policies.of)] if authentication.keystone else []
            ),
        )

        clusters, placements, tokens = Clusters(options.database_url), Placements(store), WorkspaceTokens()
        placements.on_come = open_streams.reauthorize
        tiers = TenantTiers(store)
        stored_bounds = StoredBounds(tiers, options.stored_mebibytes)
        admission = build_admission(
            store,
            authorization,
            configured,
            catalogs=catalogs,
            ensure=custom.ensure,
            locks=write_locks,
            namespace_quotas=NamespaceQuotaReader(placements, clusters, tokens).quotas,
            hosts=IngressReader(placements, clusters, tokens).hosts,
            room=stored_bounds.room,
            workspace_depth=options.workspace_depth,
            disabled=options.disable_admission_plugins,
        )
        requests = RequestLog(
            options.database_url, reads_in_full=options.reads_in_full, day_bytes=options.requests_day_bytes
        )
        written = Supervised("request-log", requests.run)
        reports = StreamReports(options.database_url, open_streams)
        audit_log, asking = _audit_log(options), AskingClusters(options.database_url)
        shares = RateShares(str(uuid.uuid4()), options.workers)
        throttle = TenantThrottle(options.tenant_limits, open_streams.of, shares.part)
        rates = RateReports(options.database_url, throttle, shares)
        tenant_limits = TenantLimits(tiers, throttle, options.tenant_limits)
        runtime = Runtime(
            options=options,
            store=store,
            catalogs=catalogs,
            custom=custom,
            consumers=(consumers := Consumers(store)),
            suspensions=suspensions,
            authentication=AuthenticationChain(
                authentication.authenticators,
                not_before=suspensions.not_before,
                default_tenant=options.authentication.default_tenant,
            ),
            people=people,
            authorization=authorization.chain,
            maximal_permission=authorization.maximal_permission,
            throttle=throttle,
            tenant_limits=tenant_limits,
            admission=admission.stored,
            part_admission=admission.parts,
            cluster_admission=admission.placed,
            cluster_namespace_admission=admission.placed_namespaces,
            placed_admission=(
                PlacedScope(configured.refused_to_tenants),
                PlacedPolicies(admission.policies),
                PlacedHosts(store, admission.claims, admission.placed_quotas.explained),
                PlacedQuota(admission.placed_quotas),
            ),
            audit=requests,
            asking_clusters=asking,
            audit_log=audit_log,
            tenants=TenantServices(),
            placements=placements,
            cluster_namespaces=(cluster_namespaces := ClusterNamespaces(store)),
            clusters=clusters,
            workspace_tokens=tokens,
            recordings=(recordings := Recordings(store)),
            service_account_keys=keys,
            accounts=accounts,
            open_streams=open_streams,
            write_locks=write_locks,
            heavy=HeavyRequests(options, certificates) if heavy else None,
        )
        if traced:
            trace(runtime)
        store.subscribe(custom.on_events, lost=custom.on_lost, resources=[CRDS])
        # What decides is kept right before open streams are looked at again.
        store.subscribe(authorization.on_events, lost=authorization.forget, resources=authorization.resources)
        store.subscribe(admission.on_events, lost=admission.forget, resources=admission.resources)
        store.subscribe(write_locks.on_events, lost=write_locks.forget, resources=write_locks.resources)
        store.subscribe(consumers.on_events, lost=consumers.forget, resources=consumers.resources)
        store.subscribe(cluster_namespaces.on_events, lost=cluster_namespaces.forget, resources=[NAMESPACES])
        store.subscribe(tenant_limits.on_events, lost=tenant_limits.forget, resources=LIMITING)
        store.subscribe(stored_bounds.on_events, lost=stored_bounds.forget, resources=LIMITING)
        rights = PlacedRights(store, clusters, options.database_url)
        opened = OpenedObjects(store, clusters, options.database_url)
        counting = PlacedUsageController(store, admission.placed_quotas, clusters, tokens, options.database_url)
        copies = PlacedCopies(store, clusters, tokens, options.database_url)
        store.subscribe(rights.on_events, resources=[NAMESPACES])
        store.subscribe(opened.on_events, resources=[NAMESPACES])
        store.subscribe(counting.on_events, resources=counting.resources)
        store.subscribe(copies.on_events, resources=[NAMESPACES, PLACED_COPIES])
        store.subscribe(runtime.on_events, lost=lambda: open_streams.reauthorize(None))
        await custom.load()
        await _first_objects(runtime)
        await suspensions.start()
        await clusters.start()
        written.start()
        reports.start()
        if throttled:
            rates.start()
        asking.start()
        if audit_log is not None:
            audit_log.start()
        try:
            url = options.url
            work = (
                manager.run_controllers(
                    store,
                    options.database_url,
                    url,
                    certificates.bundle(),
                    custom,
                    admission.quotas,
                    admission.tenant_quotas,
                    configured.refused_to_tenants,
                    suspensions,
                    stored_bounds.room,
                    [
                        ("rights", rights.run),
                        ("opened", opened.run),
                        ("placed quota", counting.run),
                        ("copies", copies.run),
                    ],
                )
                if background
                else nullcontext()
            )
            shorten_switch_interval()
            # Beside a server, in the portal and for heavy requests, nobody asks how long this loop is held.
            watched = runtime.watchdog.watching() if background else nullcontext()
            async with (
                authentication.running(open_streams.recheck_known_by),
                authorization.running(),
                work,
                watched,
            ):
                yield runtime
        finally:
            await runtime.compression.close()
            if runtime.heavy is not None:
                await runtime.heavy.close()
            await recordings.stop()
            await asking.stop()
            await rates.stop()
            await reports.stop()
            await requests.stop(written.stop)
            if audit_log is not None:
                await audit_log.stop()
            await clusters.stop()
            await admission.webhooks.close()
            await suspensions.stop()


def _audit_log(options: Options) -> AuditLog | None:
    if options.audit_policy_file is None or options.audit_log_path is None:
        return None
    return AuditLog(read_policy_file(options.audit_policy_file), options.audit_log_path)


def _authentication(
    options: Options,
    certificates: Certificates,
    store: Engine,
    accounts: ServiceAccountAuthenticator,
    people: PortalAuthenticator,
) -> Authentication:
    async def tenant_uid(name: str) -> str:
        stored = await store.get(Key(ROOT, "", "tenants", "", name), cached=True)
        return str(orjson.loads(stored.data)["metadata"]["uid"]) if stored else ""

    return build_authenticators(
        options.authentication,
        certificates=X509Authenticator(certificates.authorities()),
        service_accounts=accounts,
        portal=people,
        clusters=ClusterWebhookAuthenticator(options.database_url),
        service_account_issuers=options.service_account_issuers,
        audiences=options.audiences,
        anonymous=options.anonymous_auth,
        data_folder=options.data_folder,
        tenant_uid=tenant_uid,
    )


async def _first_objects(runtime: Runtime) -> None:
    """The first objects of the system space, and the default tenant (TS8), where they are missing."""
    for place, made in root_objects(now=timestamp(time.time()), uid=lambda: str(uuid.uuid4())):
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
    tenant = runtime.options.authentication.default_tenant
    if tenant and await runtime.store.get(Key(ROOT, "", "tenants", "", tenant)) is None:
        try:
            await asyncio.to_thread(
                runtime.tenants.create, caller=Caller(name="system:apiserver", operator=True), name=tenant
            )
        except AlreadyExists:
            return
