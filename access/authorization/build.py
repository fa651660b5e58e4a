"""The order of authorization, written once (AZ1 to AZ7, KC12).

suspension → what the credential is for → system workspaces → what the server alone writes → tenant isolation, with
cross-tenant grants → what the accounts of placed namespaces hold → the operators' masters → the workspace gates
(top-level organisation, content, required groups, initializing, maximal permission policy; KC1 to KC8) → the configured
modes → Keystone's roles. The gates before the modes cannot be configured away, so that the order of the modes never
matters for isolation.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from access.authorization.base import Authorizer
from access.authorization.chain import AuthorizationChain
from access.authorization.modes import always
from access.authorization.modes.abac import AbacAuthorizer, PolicyFile
from access.authorization.modes.node import NodeAuthorizer, NodeGraphs
from access.authorization.modes.rbac import PolicyCache, RbacAuthorizer
from access.authorization.modes.webhook import WebhookAuthorizer
from access.authorization.options import NO_OPINION, AuthorizationOptions
from access.authorization.tenancy.credentialscope import CredentialScope
from access.authorization.tenancy.grants import CrossTenantGrants, TenantPolicies
from access.authorization.tenancy.isolation import SystemMasters, TenantIsolation
from access.authorization.tenancy.placednamespaces import GrantsWithinPlacements, KeptAccounts, PlacedNamespaces
from access.authorization.tenancy.serverowned import ServerOwned
from access.authorization.tenancy.suspension import SuspensionAuthorizer, Suspensions
from access.authorization.tenancy.systemworkspaces import SystemWorkspaces
from access.authorization.workspaces.initializing import InitializingWorkspaces
from access.authorization.workspaces.maximalpermission import MaximalPermissionPolicy
from access.authorization.workspaces.organization import TopLevelOrganization
from access.authorization.workspaces.requiredgroups import RequiredGroups
from access.authorization.workspaces.state import Workspaces
from access.authorization.workspaces.workspacecontent import WorkspaceContent
from access.httpclient import webhook_of_file
from access.reloading import UnusableFile
from store.interface import Reader
from store.types import Event

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Authorization:
    """The chain, and what stands behind it: tell it of every batch of the store's log by ``on_events``.

    ``forget`` is for a log that does not continue where this process stopped.
    """

    chain: AuthorizationChain
    policies: PolicyCache
    workspaces: Workspaces
    maximal_permission: MaximalPermissionPolicy
    rbac: RbacAuthorizer
    objects: TenantPolicies
    graphs: NodeGraphs
    file: PolicyFile | None
    webhook: WebhookAuthorizer | None

    @property
    def resources(self) -> Sequence[tuple[str, str]]:
        """What ``on_events`` looks at."""
        return [*self.policies.resources, *self.objects.resources, *self.graphs.resources]

    def on_events(self, events: Sequence[Event]) -> None:
        """Keep what is in memory right."""
        self.policies.on_events(events)
        self.objects.on_events(events)
        self.graphs.on_events(events)

    def forget(self) -> None:
        """Read everything anew."""
        self.policies.forget()
        self.objects.forget()
        self.graphs.forget()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the policy file, and give the webhook's connections back at the end."""
        if self.file is not None:
            await self.file.start()
        try:
            yield
        finally:
            if self.file is not None:
                await self.file.stop()
            if self.webhook is not None:
                await self.webhook.close()


def build_authorization(
    options: AuthorizationOptions,
    store: Reader,
    *,
    locks: Suspensions,
    system_only: Callable[[str, str], bool],
    on_change: Callable[[], None] = lambda: None,
    further: Callable[[PolicyCache], Sequence[Authorizer]] = lambda _: (),
) -> Authorization:
    """Put the authorizers together.

    ``on_change`` is called when the policy file has changed; ``further`` gives authorizers that come after the modes.
    Raises ``UnusableFile`` for a file that cannot be read, or a mode without its file.
    """
    _check_pairs(options)
    policies, objects, graphs = PolicyCache(store), TenantPolicies(store), NodeGraphs(store)
    workspaces = Workspaces(store, policies, options.required_groups_dialect)
    maximal_permission = MaximalPermissionPolicy(store, policies)
    file = PolicyFile(options.policy_file, on_change) if options.policy_file is not None else None
    webhook = _webhook(options)
    rbac = RbacAuthorizer(policies)
    modes: dict[str, Authorizer | None] = {
        "RBAC": rbac,
        "ABAC": AbacAuthorizer(file) if file is not None else None,
        "Node": NodeAuthorizer(graphs),
        "Webhook": webhook,
        **{authorizer.name: authorizer for authorizer in always.ALWAYS},
    }
    rest: list[Authorizer] = [
        SystemMasters(),
        TopLevelOrganization(),
        WorkspaceContent(workspaces),
        RequiredGroups(workspaces),
        InitializingWorkspaces(workspaces),
        maximal_permission,
        *(authorizer for name in options.mode if (authorizer := modes[name]) is not None),
        *further(policies),
    ]
    placed = PlacedNamespaces(KeptAccounts(store, policies), AuthorizationChain(rest))
    chain = AuthorizationChain(
        [
            SuspensionAuthorizer(locks),
            CredentialScope(),
            SystemWorkspaces(),
            ServerOwned(workspaces),
            TenantIsolation(system_only, GrantsWithinPlacements(CrossTenantGrants(objects, file), placed)),
            placed,
            *rest,
        ]
    )
    return Authorization(chain, policies, workspaces, maximal_permission, rbac, objects, graphs, file, webhook)


def check_options(options: AuthorizationOptions) -> None:
    """Each mode that needs a file has one that can be read, and no file is without its mode; or ``UnusableFile``.

    What a policy file opens across tenants is named in the log, and a mode that allows everything.
    """
    _check_pairs(options)
    if always.ALLOW in options.mode:
        logger.warning(
            "--authorization-mode=%s: everybody may do everything in a space that they may enter", always.ALLOW
        )
    if options.policy_file is not None:
        PolicyFile(options.policy_file).report()
    if options.webhook_config_file is not None:
        webhook_of_file(options.webhook_config_file)


def _check_pairs(options: AuthorizationOptions) -> None:
    for mode, flag, given in (
        ("ABAC", "--authorization-policy-file", options.policy_file),
        ("Webhook", "--authorization-webhook-config-file", options.webhook_config_file),
    ):
        if (mode in options.mode) != (given is not None):
            raise UnusableFile(f"{flag} and the mode {mode} in --authorization-mode go together")


def _webhook(options: AuthorizationOptions) -> WebhookAuthorizer | None:
    if options.webhook_config_file is None:
        return None
    return WebhookAuthorizer(
        webhook_of_file(options.webhook_config_file),
        authorized_ttl=options.webhook_cache_authorized_ttl,
        unauthorized_ttl=options.webhook_cache_unauthorized_ttl,
        fails_open=options.webhook_failure_policy == NO_OPINION,
    )
