"""The attribute-based policy file of the cluster's admins, with tenants (AZ3, AZ6)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from access.authorization.base import RuleSet
from access.reloading import ReloadedFile
from kube.authentication.identity import Principal
from kube.authorization import abac
from kube.authorization.abac import InvalidPolicy, Policy
from kube.authorization.decisions import Decision
from kube.authorization.rbac import Attributes, Rule
from kube.requests.logicalclusters import tenant_of
from kube.requests.requestinfo import RequestInfo
from store.supervision import Supervised

logger = logging.getLogger(__name__)


class PolicyFile:
    """``--authorization-policy-file``, read again within a second of a change.

    Made, it reads the file or raises ``UnusableFile`` naming the line. A change that is not understood is logged, and
    what was read last stays in force. ``on_change`` is called after each change, so that open streams are looked at.
    """

    def __init__(self, path: Path, on_change: Callable[[], None] = lambda: None) -> None:
        self._path = path
        self._file = ReloadedFile(path, _parse)
        self._on_change = on_change
        self._task = Supervised("policy-file", lambda: self._file.follow(self._changed))

    @property
    def policies(self) -> tuple[Policy, ...]:
        """What the file says."""
        return self._file.value

    def report(self) -> None:
        """Name in the log every line that opens all spaces, or the operators', to tenants' users."""
        for policy in self.policies:
            if policy.crosses:
                logger.warning(
                    "%s, line %d: opens %s to users of %s",
                    self._path,
                    policy.number,
                    "every space" if policy.space == abac.ANY else "the system space",
                    "any tenant" if policy.tenant == abac.ANY else f"tenant {policy.tenant!r}",
                )

    async def start(self) -> None:
        """Follow the file from now on."""
        self._task.start()

    def _changed(self) -> None:
        self.report()
        self._on_change()

    async def stop(self) -> None:
        """Stop following the file; what was read last stays in force."""
        await self._task.stop()


class AbacAuthorizer:
    """ALLOW by a line of the policy file for a user in its own tenant's space, and for operators in any."""

    name = abac.STEP

    def __init__(self, file: PolicyFile) -> None:
        self._file = file

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """ALLOW with the line that allowed, or no opinion."""
        return self.decide(principal, request)

    def decide(self, principal: Principal, request: RequestInfo) -> Decision:
        """The same, without waiting."""
        return abac.authorize(principal, Attributes.of(request), request.cluster, self._file.policies)

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """What the lines about this user in its own space allow; the gate names those across tenants."""
        if principal.tenant != tenant_of(cluster):
            return RuleSet()
        return RuleSet(rules_of(self._file.policies, principal, cluster, namespace))


def rules_of(policies: tuple[Policy, ...], principal: Principal, cluster: str, namespace: str) -> tuple[Rule, ...]:
    """The rules of the policies that mean this principal in a namespace of a logical cluster."""
    return tuple(
        rule
        for policy in policies
        if policy.opens(cluster) and policy.means(principal)
        for rule in policy.rules(namespace)
    )


def _parse(data: bytes) -> tuple[Policy, ...]:
    try:
        return abac.parse_policy_file(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidPolicy("it is not UTF-8") from None
