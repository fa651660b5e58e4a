"""Who a request comes from, once an authenticator has said so.

Only an authenticator sets the tenant; nothing downstream derives it from a name (ACCESS, authentication).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

SYSTEM_TENANT: Final = "system"
"""The operators' tenant. Its objects are those of the system space."""

TENANT_EXTRA: Final = "multi-tenancy.k8s.io/tenant"
"""The key of ``extra`` that names the user's tenant in reviews."""

CREDENTIAL_EXTRA: Final = "authentication.kubernetes.io/credential-id"
"""The key of ``extra`` that ties a request to one credential: ``JTI=<uuid>`` or ``X509SHA256=<hex>``."""

AUTHENTICATOR_EXTRA: Final = "multi-tenancy.k8s.io/authenticator"
"""The key of ``extra`` that names the authenticator that knew the user (AN9)."""

AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"
ANONYMOUS: Final = "system:anonymous"
MASTERS: Final = "system:masters"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"
SERVICE_ACCOUNT_PREFIX: Final = "system:serviceaccount:"

_NO_EXTRA: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A verified identity.

    ``tenant`` is ``None`` only for whoever belongs to no tenant (anonymous); ``None`` equals nothing.
    ``cluster`` is the logical cluster that a service account lives in, ``None`` for everybody else.
    ``not_after`` is the moment (Unix seconds) at which the credential ends, so that streams end with it.
    """

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NO_EXTRA)
    tenant: str | None
    authenticator: str
    cluster: str | None = None
    credential_id: str = ""
    not_after: float | None = None

    @property
    def is_system(self) -> bool:
        """Whether this is a user of the system tenant."""
        return self.tenant == SYSTEM_TENANT

    def user_info(self) -> dict[str, object]:
        """The ``UserInfo`` of reviews: username, uid, groups, and extra with the tenant and the authenticator in it."""
        extra = {key: list(values) for key, values in self.extra.items()}
        extra[AUTHENTICATOR_EXTRA] = [self.authenticator]
        if self.tenant is not None:
            extra[TENANT_EXTRA] = [self.tenant]
        if self.credential_id:
            extra[CREDENTIAL_EXTRA] = [self.credential_id]
        info: dict[str, object] = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        info["extra"] = extra
        return info
