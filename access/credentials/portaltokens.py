"""A token of the portal for the product's own API server: what a ``gateway`` credential holds, and a login gets (D9, GW9).

The row is committed, and recorded, before the token is made; the token is made here, and kept nowhere. It ends with the
row: ``access.authentication.portal``.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final
from uuid import UUID

from django.conf import settings
from django.views.decorators.debug import sensitive_variables

from access.models import Credential
from kube.authentication import portaltokens
from kube.authentication.kubeconfig import Access
from kube.authentication.portaltokens import PortalClaims
from kube.authentication.serviceaccounttokens import load_signing_key
from kube.requests.status import Conflict, ServiceUnavailable
from tenants.models import Cluster, CredentialKind

FIRST_NAMESPACE: Final = "default"


def find_own_apiserver() -> Cluster | None:
    """Where the product's own API server is, and its CA; ``None`` where it is not registered."""
    rows = Cluster.objects.defer("sealed_credential").filter(kind=Cluster.Kind.EMBEDDED)
    return rows.order_by("created_at").first()


def own_apiserver() -> Cluster:
    """The same. Raises ``Conflict`` where none is registered."""
    found = find_own_apiserver()
    if found is None:
        raise Conflict(
            "The product's own API server is not registered: manage.py bootstrap registers it.", kind="clusters"
        )
    return found


@sensitive_variables()
def portal_token(
    credential: Credential, *, now: datetime, expires_at: datetime, audience: str = portaltokens.AUDIENCE
) -> str:
    """A token of a credential that is committed. Raises ``ServiceUnavailable`` without a key."""
    try:
        key = load_signing_key(Path(settings.PORTAL_TOKEN_KEY_FILE).read_bytes())
    except (OSError, ValueError):
        raise ServiceUnavailable(
            "The portal's key for tokens cannot be read: PORTAL_TOKEN_KEY_FILE names it.", retry_after=60
        ) from None
    claims = PortalClaims(
        token_id=str(credential.jti),
        user=str(credential.issued_to_id),
        issued_at=int(now.timestamp()),
        expires_at=int(expires_at.timestamp()),
        audience=audience,
    )
    return portaltokens.sign(claims, key)


def portal_access(
    credential: Credential, server: Cluster, token: str, *, place: str = "", namespace: str = FIRST_NAMESPACE
) -> Access:
    """The context of a kubeconfig by a token of the portal; ``place`` says what of the tenant's, nothing its space."""
    names = (credential.tenant_id, place, credential.role, credential.kind)
    return Access(
        name=".".join(name for name in names if name),
        server=server.client_url or server.server,
        certificate_authority=server.ca_data.encode(),
        namespace=namespace,
        token=token,
    )


def signing_in_access(
    server: Cluster,
    tenant: str,
    role: str,
    *,
    place: str = "",
    namespace: str = FIRST_NAMESPACE,
    workspace: UUID | None = None,
) -> Access:
    """The same without a secret: for the ``workspace`` alone, and without one for the tenant's space.

    The plugin asks for a token for the place that it is given by its URL in the portal.
    """
    resource = f"workspaces/{workspace}" if workspace is not None else f"tenants/{tenant}"
    said = ["--portal", settings.PORTAL_URL, "--resource", f"{settings.PORTAL_URL}/{resource}"]
    names = (tenant, place, role, CredentialKind.EXEC)
    return Access(
        name=".".join(name for name in names if name),
        server=server.client_url or server.server,
        certificate_authority=server.ca_data.encode(),
        namespace=namespace,
        plugin=("tenantry-login", *said, *(("--role", role) if role else ())),
        install=f"Install it: {plugin_installation()}",
    )


def plugin_installation() -> str:
    """The command that installs the plugin from the portal."""
    return (
        f"mkdir -p ~/.local/bin && curl -fsSo ~/.local/bin/tenantry-login {settings.PORTAL_URL}/tenantry-login && "
        "chmod +x ~/.local/bin/tenantry-login"
    )
