"""A service account's token of a cluster, bound to an anchor: what a ``direct`` credential holds (GW3, GW9).

Intent committed → anchor → token → checked → outcome. A token whose workspace was closed in the meantime dies with its
anchor, unseen.
"""

from __future__ import annotations

import base64
import contextlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.db import DatabaseError, transaction
from django.views.decorators.debug import sensitive_variables

from access.credentials.records import CREDENTIAL_SECONDS, allows, issue_record
from access.models import Credential
from audit.models import Outcome as AuditOutcome
from audit.recorder import Actor
from kube.authentication.kubeconfig import Access, InvalidKubeconfig, write_kubeconfig
from kube.requests.status import Conflict, Forbidden, ServiceUnavailable, StatusError
from tenants.clusters import objects
from tenants.clusters.anchors import AnchorState, anchor_end
from tenants.clusters.client import Answer, ClusterClient, ClusterUnusable, Outcome, client_for
from tenants.models import Phase, Status, Workspace
from tenants.rights import role_of

_LEEWAY: Final = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class _Token:
    """What the cluster issued."""

    text: str = field(repr=False)
    jti: str | None
    expires_at: datetime


class _Broken(Exception):
    """The cluster did not do as agreed; the text is for people and holds nothing secret."""


@sensitive_variables()
def cluster_access(actor: Actor, workspace: Workspace, credential: Credential, now: datetime) -> Access:
    """Turn the intent into a token that opens the workspace, or into a failure that leaves nothing behind."""
    account = objects.ACCOUNTS[credential.role]
    client = None
    try:
        client = client_for(workspace.cluster, workspace.tenant_id)
        credential.anchor_uid = _anchor(client, workspace, credential, account)
        token = _request(client, workspace, credential, account=account, now=now)
        access = _access(workspace, credential, token)
        _conclude(actor, workspace, credential, token)
    except StatusError as error:
        # Closed in the meantime: the token, if there is one, must not outlive its anchor.
        _undo(actor, client, workspace, credential, reason=error.message, now=now)
        raise
    except (_Broken, ClusterUnusable) as error:
        _undo(actor, client, workspace, credential, reason=str(error), now=now)
        raise ServiceUnavailable(str(error), retry_after=5) from None
    except DatabaseError:
        _undo(actor, client, workspace, credential, reason="The issue could not be recorded.", now=now)
        raise ServiceUnavailable("The issue could not be recorded, so nothing was issued.", retry_after=5) from None
    return access


def _anchor(client: ClusterClient, workspace: Workspace, credential: Credential, account: str) -> str:
    """Create the Secret that the token is bound to; its uid."""
    body = objects.anchor(workspace, credential.anchor, account, workspace.service_accounts.get(account, ""))
    answer = _done(client.create(objects.path(workspace, "secrets"), body))
    return str(answer.metadata.get("uid") or "")[:64]


@sensitive_variables()
def _request(
    client: ClusterClient,
    workspace: Workspace,
    credential: Credential,
    *,
    account: str,
    now: datetime,
) -> _Token:
    """Ask for the token and look at it: whose it is, how long it lives, what it is called."""
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        # With the uid a replaced account answers 409 instead of issuing (P5).
        "metadata": {
            "name": account,
            "namespace": workspace.k8s_namespace,
            "uid": workspace.service_accounts.get(account, ""),
        },
        "spec": {
            "expirationSeconds": CREDENTIAL_SECONDS,
            "boundObjectRef": {
                "apiVersion": "v1",
                "kind": "Secret",
                "name": credential.anchor,
                "uid": credential.anchor_uid,
            },
        },
    }
    path = objects.path(workspace, "serviceaccounts", account, sub="token")
    status = _done(client.create(path, body)).body.get("status")
    text = status.get("token") if isinstance(status, dict) else None
    stamp = status.get("expirationTimestamp") if isinstance(status, dict) else None
    claims = _claims(text)
    try:
        expires_at = datetime.fromisoformat(str(stamp)).astimezone(UTC)
        lasts = datetime.fromtimestamp(int(claims["exp"]), UTC)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise _Broken("The cluster's token does not say when it ends.") from None
    if not now < expires_at <= now + timedelta(seconds=CREDENTIAL_SECONDS) + _LEEWAY or lasts > expires_at + _LEEWAY:
        raise _Broken("The cluster's token does not end within two hours.")
    if claims.get("sub") != f"system:serviceaccount:{workspace.k8s_namespace}:{account}":
        raise _Broken("The cluster issued somebody else's token.")
    jti = claims.get("jti")
    return _Token(
        str(text), jti if isinstance(jti, str) and 0 < len(jti) <= 64 and jti.isprintable() else None, expires_at
    )


@sensitive_variables()
def _access(workspace: Workspace, credential: Credential, token: _Token) -> Access:
    """The context of a kubeconfig, which is known to be writable: what the cluster said is in it."""
    access = Access(
        name=f"{workspace.tenant_id}.{workspace.name}.{credential.role}",
        server=workspace.cluster.client_url or workspace.cluster.server,
        certificate_authority=workspace.cluster.ca_data.encode(),
        namespace=workspace.k8s_namespace,
        token=token.text,
    )
    try:
        write_kubeconfig([access])
    except InvalidKubeconfig:
        raise _Broken("The cluster's answer held no token.") from None
    return access


def _conclude(actor: Actor, workspace: Workspace, credential: Credential, token: _Token) -> None:
    """Commit the outcome if the workspace is still as it was: after a suspension was answered no token comes out."""
    with transaction.atomic():
        current = Workspace.objects.select_for_update().get(pk=workspace.pk)
        # Another phase is a resume that has not yet come to the accounts: they are old ones.
        ready = current.status == Status.ACTIVE and current.phase == Phase.READY
        if not ready or current.service_accounts != workspace.service_accounts:
            raise Conflict("The workspace was closed while the credential was made.", kind="workspaces")
        revoked = Credential.objects.select_for_update().get(pk=credential.pk).revoked_at is not None
        member = role_of(actor, workspace.tenant_id)
        if revoked or member is None or not allows(member, credential.role):
            raise Forbidden("The right to the workspace ended while the credential was made.", kind="workspaces")
        credential.jti, credential.expires_at = token.jti, token.expires_at
        credential.save(update_fields=["jti", "expires_at", "anchor_uid"])
        detail = {
            "id": str(credential.id),
            "jti": token.jti,
            "expires": token.expires_at,
            "anchor": credential.anchor,
            "role": credential.role,
        }
        issue_record(actor, credential, AuditOutcome.SUCCESS, detail)


def _undo(
    actor: Actor,
    client: ClusterClient | None,
    workspace: Workspace,
    credential: Credential,
    *,
    reason: str,
    now: datetime,
) -> None:
    """Delete the anchor and write the failure down; what does not succeed here is left to ``credentials_expire``."""
    state = AnchorState.SILENT
    if client is not None:
        state = anchor_end(client, workspace, credential.anchor, credential.anchor_uid, now=now)
    with contextlib.suppress(DatabaseError), transaction.atomic():
        Credential.objects.filter(pk=credential.pk).update(
            jti=None,
            expires_at=None,
            failed_at=now,
            anchor_uid=credential.anchor_uid,
            revocation_confirmed_at=now if state is AnchorState.GONE else None,
        )
        issue_record(actor, credential, AuditOutcome.FAILURE, {"id": str(credential.id), "reason": reason})


def _done(answer: Answer) -> Answer:
    if answer.outcome is not Outcome.DONE:
        raise _Broken(answer.message or "The cluster's state changed in between.")
    return answer


@sensitive_variables()
def _claims(token: object) -> dict[str, Any]:
    """The claims of a JWT, unverified: the cluster that answered over TLS is the one that made it."""
    try:
        payload = str(token).split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (IndexError, ValueError, RecursionError):
        raise _Broken("The cluster's answer held no token.") from None
    if not isinstance(claims, dict) or not str(token).isascii() or len(str(token)) > 16_384:
        raise _Broken("The cluster's answer held no token.")
    return claims
