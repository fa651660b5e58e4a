"""The parts of one API server process, put together once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from access.admission.chain import AdmissionChain
from access.authentication.chain import AuthenticationChain
from access.authentication.keyfiles import KeyFiles
from access.authentication.portal import PortalAuthenticator
from access.authentication.serviceaccount import ServiceAccountAuthenticator
from access.authorization.chain import AuthorizationChain
from access.authorization.tenancy.placednamespaces import may_close_proxies
from access.authorization.workspaces.maximalpermission import MaximalPermissionPolicy
from access.requestlimits import TenantThrottle
from access.tenantlimits import TenantLimits
from audit.requestlog.records import RequestLog
from gateway.options import Options
from gateway.process.askingclusters import AskingClusters
from gateway.process.auditlog import AuditLog
from gateway.process.fairexecutor import FairExecutor
from gateway.process.heavyrequests import HeavyRequests
from gateway.process.keyedlocks import KeyedLocks
from gateway.process.metrics import Metrics
from gateway.process.siblings import Siblings
from gateway.process.streams import OpenStreams
from gateway.process.suspensions import SuspensionCache
from gateway.process.tenantservices import TenantServices
from gateway.process.watchdog import Watchdog
from gateway.resources.consumers import Consumers
from gateway.resources.customresources import CustomResources
from gateway.resources.kinds import Catalogs
from gateway.upstream.admission import PlacedAdmission
from gateway.upstream.answers import HeldAnswers
from gateway.upstream.clusternamespaces import ClusterNamespaces
from gateway.upstream.clusters import Clusters
from gateway.upstream.placements import Placements
from gateway.upstream.recording.registry import Recordings
from gateway.upstream.tokens import WorkspaceTokens
from gateway.upstream.versions import MergedVersions
from kube.requests.logicalclusters import ROOT
from kube.requests.status import ServiceUnavailable
from store.engine import Engine
from store.placethreads import PlaceThreads
from store.postgresql.connections import PATIENCE_SECONDS
from store.turns import Turns
from store.types import Event, EventType

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.02


@dataclass(slots=True, kw_only=True)
class Runtime:
    """What the stages and handlers work with."""

    options: Options
    store: Engine
    catalogs: Catalogs
    custom: CustomResources
    consumers: Consumers
    suspensions: SuspensionCache
    authentication: AuthenticationChain
    people: PortalAuthenticator
    throttle: TenantThrottle
    tenant_limits: TenantLimits
    authorization: AuthorizationChain
    maximal_permission: MaximalPermissionPolicy
    admission: AdmissionChain
    part_admission: AdmissionChain
    cluster_admission: AdmissionChain
    cluster_namespace_admission: AdmissionChain
    placed_admission: Sequence[PlacedAdmission]
    audit: RequestLog
    tenants: TenantServices
    placements: Placements
    cluster_namespaces: ClusterNamespaces
    clusters: Clusters
    workspace_tokens: WorkspaceTokens
    recordings: Recordings
    service_account_keys: KeyFiles
    accounts: ServiceAccountAuthenticator
    asking_clusters: AskingClusters
    audit_log: AuditLog | None = None
    heavy: HeavyRequests | None = None
    siblings: Siblings | None = None
    compression: FairExecutor = field(default_factory=FairExecutor)
    watchdog: Watchdog = field(default_factory=Watchdog)
    held_answers: HeldAnswers = field(default_factory=HeldAnswers)
    open_streams: OpenStreams = field(default_factory=OpenStreams)
    merged_versions: MergedVersions = field(default_factory=MergedVersions)
    order_threads: PlaceThreads = field(default_factory=partial(PlaceThreads, "orders"))
    write_locks: KeyedLocks = field(default_factory=KeyedLocks)
    conversions: Turns = field(default_factory=Turns)
    """Of those who wait for long objects of a resource in another version than they are kept in."""
    metrics: Metrics = field(default_factory=Metrics)
    latest_connection: int = 0
    """Where the last request came from."""
    stopping: bool = False

    @property
    def trustworthy(self) -> bool:
        """Whether this process knows of revocations: it follows the store's log and the locks."""
        return self.store.healthy and self.suspensions.healthy

    async def require_trustworthy(self) -> None:
        """Raise ``ServiceUnavailable`` while revocations may be missed: tenants' requests fail closed.

        A process that had no turn for a while, because the machine stood still or was busy with others, knows them
        again as soon as it has asked: that is waited for, ``PATIENCE_SECONDS`` at most, before anybody is refused.
        """
        given_up = time.monotonic() + PATIENCE_SECONDS
        while not self.trustworthy:
            if time.monotonic() > given_up:
                text = "the server cannot verify permissions right now, please try again"
                raise ServiceUnavailable(text, retry_after=1)
            await asyncio.sleep(_LOOK_SECONDS)

    def on_events(self, events: Sequence[Event]) -> None:
        """Look again at open streams when what their right rests on has changed."""
        if not len(self.open_streams):
            return
        clusters = {event.key.space for event in events if _concerns_access(event)}
        if (
            any(event.key.group == "apis.kcp.io" or _ends_a_tenant(event) for event in events)
            or clusters & self.maximal_permission.providers
        ):
            # What a provider limits or offers is used anywhere, and whom others have let in is there with its tenant.
            self.open_streams.reauthorize(None)
            return
        for cluster in clusters:
            self.open_streams.reauthorize(cluster)


def _ends_a_tenant(event: Event) -> bool:
    return event.type is EventType.DELETED and event.key[:3] == (ROOT, "", "tenants")


def _concerns_access(event: Event) -> bool:
    if event.key.group in ("rbac.authorization.k8s.io", "abac.authorization.kubernetes.io", "core.kcp.io"):
        return True
    if may_close_proxies(event):
        return True
    # Service accounts' tokens end with the account, and with the Secret or Pod that they are bound to.
    bearing = event.key.group == "" and event.key.resource in ("serviceaccounts", "secrets", "pods")
    return bearing and (event.type is EventType.DELETED or b'"deletionTimestamp"' in event.data)
