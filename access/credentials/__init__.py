"""Credentials: kubeconfigs issued and revoked (GW3), personal access tokens of the REST API.

No token is ever stored, logged or put into an error (GW9).
"""

from access.credentials.issuing import IssuedKubeconfig, kubeconfig_issue, roles_of_member
from access.credentials.revoking import credential_revoke, credentials_expire
from access.credentials.tokens import CreatedToken, token_authenticate, token_create, token_revoke

__all__ = [
    "CreatedToken",
    "IssuedKubeconfig",
    "credential_revoke",
    "credentials_expire",
    "kubeconfig_issue",
    "roles_of_member",
    "token_authenticate",
    "token_create",
    "token_revoke",
]
