"""Credentials: kubeconfigs issued and revoked (GW3), personal access tokens of the REST API.

No token is ever stored, logged or put into an error (GW9).
"""

from access.credentials.issuing import IssuedKubeconfig, kubeconfig_issue, login_token_issue
from access.credentials.records import credential_roles
from access.credentials.revoking import credential_revoke, credentials_expire
from access.credentials.tenantfiles import IssuedTenantKubeconfig, tenant_kinds, tenant_kubeconfig_issue
from access.credentials.tokens import CreatedToken, token_authenticate, token_create, token_revoke

__all__ = [
    "CreatedToken",
    "IssuedKubeconfig",
    "IssuedTenantKubeconfig",
    "credential_revoke",
    "credential_roles",
    "credentials_expire",
    "kubeconfig_issue",
    "login_token_issue",
    "tenant_kinds",
    "tenant_kubeconfig_issue",
    "token_authenticate",
    "token_create",
    "token_revoke",
]
