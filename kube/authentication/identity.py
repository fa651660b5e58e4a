"""Who a request comes from, once an authenticator has said so.

Only an authenticator sets the tenant; nothing downstream derives it from a name (ACCESS, authentication).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from kube.requests.names import SYSTEM_TENANT

TENANT_EXTRA: Final = "multi-tenancy.k8s.io/tenant"
"""The key of ``extra`` that names the user's tenant in reviews."""

CREDENTIAL_EXTRA: Final = "authentication.kubernetes.io/credential-id"
"""The key of ``extra`` that ties a request to one credential: ``JTI=<uuid>`` or ``X509SHA256=<hex>``."""

AUTHENTICATOR_EXTRA: Final = "multi-tenancy.k8s.io/authenticator"
"""The key of ``extra`` that names the authenticator that knew the user (AN9)."""

HOME_EXTRA: Final = "authentication.kcp.io/cluster-name"
"""The key of ``extra`` that names the logical cluster that a service account lives in."""

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
MEMBERS: Final = "tenantry:"
"""Members of a tenant act in its space as the group ``tenantry:<role>``. Whoever is trusted to say who a tenant's users are
is trusted with these groups as with its others: they count in that tenant alone."""

ANONYMOUS: Final = "system:anonymous"
MASTERS: Final = "system:masters"
NODES: Final = "system:nodes"
NODE_PREFIX: Final = "system:node:"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
SERVICE_ACCOUNT_PREFIX: Final = "system:serviceaccount:"
FOREIGN_ACCOUNT_PREFIX: Final = "system:kcp:serviceaccount:"
"""What a service account is called outside of its logical cluster: the path of that follows, then namespace and name."""

_VIRTUAL: Final = ("system:kcp:", "system:cluster:")

ACCESS_GROUPS: Final = ("system:kcp:workspace:access", "system:kcp:clusterworkspace:access")
"""What whoever is let into a workspace is a member of, for that request (KC2). The second is kcp's older name of the first."""

ADMIN_GROUPS: Final = ("system:kcp:workspace:admin", "system:kcp:clusterworkspace:admin")
"""What an administrator of a workspace is a member of besides."""

_NO_EXTRA: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A verified identity.

    ``tenant`` is ``None`` only for whoever belongs to no tenant (anonymous); ``None`` equals nothing.
    ``cluster`` is the logical cluster that a service account lives in, ``None`` for everybody else.
    ``scope`` is the only logical cluster in which the identity counts, ``None`` where it counts everywhere.
    ``namespace`` is the only namespace of the tenant's space that the credential opens; empty: it is not for one alone.
    ``issued_at`` is the moment (Unix seconds) at which the credential was made out, ``None`` where it does not say.
    ``not_after`` is the moment at which it ends, so that streams end with it.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NO_EXTRA)
    tenant: str | None
    authenticator: str
    cluster: str | None = None
    scope: str | None = None
    namespace: str = ""
    credential_id: str = ""
    issued_at: float | None = None
    not_after: float | None = None
    is_system: bool = field(init=False)
    """Whether this is a user of the system tenant."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_system", self.tenant == SYSTEM_TENANT)

    def seen_from(self, cluster: str) -> Principal:
        """The principal by names that mean nobody else in a logical cluster.

        There a service account of another one has a name of its own and no group of accounts: a namesake may live there.
        """
        if self.cluster is None or self.cluster == cluster or not self.name.startswith(SERVICE_ACCOUNT_PREFIX):
            return self
        return replace(
            self,
            name=f"{FOREIGN_ACCOUNT_PREFIX}{self.cluster}:{self.name[len(SERVICE_ACCOUNT_PREFIX) :]}",
            groups=tuple(
                group
                for group in self.groups
                if group != SERVICE_ACCOUNTS and not group.startswith(f"{SERVICE_ACCOUNTS}:")
            ),
        )

    def user_info(self) -> dict[str, object]:
        """The ``UserInfo`` of reviews: username, uid, groups, and extra.

        In ``extra`` are the tenant, the authenticator, and the logical cluster of a service account.
        """
        extra = {key: list(values) for key, values in self.extra.items()}
        extra[AUTHENTICATOR_EXTRA] = [self.authenticator]
        if self.tenant is not None:
            extra[TENANT_EXTRA] = [self.tenant]
        if self.cluster is not None:
            extra[HOME_EXTRA] = [self.cluster]
        if self.credential_id:
            extra[CREDENTIAL_EXTRA] = [self.credential_id]
        info: dict[str, object] = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        info["extra"] = extra
        return info


def local_service_account(name: str, homes: Sequence[str]) -> tuple[str, str]:
    """The name of a service account at home, and the logical cluster where that is, as far as it is said (KC9).

    ``homes`` are the values of ``HOME_EXTRA``. Any other name is its own. Raises ``ValueError`` where they name two.
    """
    home = homes[0] if homes else ""
    if name.startswith(FOREIGN_ACCOUNT_PREFIX):
        path, _, account = name[len(FOREIGN_ACCOUNT_PREFIX) :].rpartition(":")
        home, _, namespace = path.rpartition(":")
        name = f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{account}"
    if len(homes) > 1 or (homes and homes[0] != home):
        raise ValueError("the user and its logical cluster do not agree")
    return name, home


def account_groups(name: str) -> tuple[str, ...]:
    """The groups that a service account of this name is in; none for any other name."""
    if not name.startswith(SERVICE_ACCOUNT_PREFIX):
        return ()
    namespace = name[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")[0]
    return SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}"


@lru_cache(maxsize=1024)
def without_virtual_groups(groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups that somebody can bring along; virtual ones are given for single requests, by this server (KC2, KC10)."""
    for group in groups:
        if group.startswith(_VIRTUAL):
            return tuple(group for group in groups if not group.startswith(_VIRTUAL))
    return groups


def is_masters(principal: Principal) -> bool:
    """Whether this is one of the operators' own masters, whom no rule binds."""
    return principal.is_system and MASTERS in principal.groups
