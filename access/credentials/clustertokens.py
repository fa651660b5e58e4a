"""A service account's token of a cluster, bound to an anchor: what a ``direct`` credential holds (GW3, GW9).

Intent committed → anchor → token → checked → outcome. A token whose workspace was closed in the meantime dies with its
anchor, unseen.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta

from django.db import DatabaseError, transaction
from django.views.decorators.debug import sensitive_variables

from access.credentials.records import allows, issue_record, require_direct
from access.credentials.tokenrequests import Anchor, BrokenPromise, ClusterToken, require_done, token_request
from access.models import Credential
from audit.models import Outcome as AuditOutcome
from audit.recorder import Actor
from kube.authentication.kubeconfig import Access, InvalidKubeconfig, write_kubeconfig
from kube.requests.status import Conflict, Forbidden, ServiceUnavailable, StatusError
from tenants.clusters import objects
from tenants.clusters.anchors import AnchorState, anchor_end
from tenants.clusters.client import ClusterClient, ClusterUnusable, client_for
from tenants.models import Phase, Status, Workspace
from tenants.rights import rights_locked, role_of


@sensitive_variables()
def cluster_access(
    actor: Actor, workspace: Workspace, credential: Credential, life: timedelta, now: datetime
) -> Access:
    """Turn the intent into a token that opens the workspace, or into a failure that leaves nothing behind."""
    account = objects.ACCOUNTS[credential.role]
    client = None
    try:
        client = client_for(workspace.cluster, workspace.tenant_id)
        credential.anchor_uid = _anchor(client, workspace, credential, account)
        anchor = Anchor(credential.anchor, credential.anchor_uid)
        token = token_request(client, workspace, account=account, now=now, anchor=anchor, life=life)
        access = _access(workspace, credential, token)
        _conclude(actor, workspace, credential, token)
    except StatusError as error:
        # Closed in the meantime: the token, if there is one, must not outlive its anchor.
        _undo(actor, client, workspace, credential, reason=error.message, now=now)
        raise
    except (BrokenPromise, ClusterUnusable) as error:
        _undo(actor, client, workspace, credential, reason=str(error), now=now)
        raise ServiceUnavailable(str(error), retry_after=5) from None
    except DatabaseError:
        _undo(actor, client, workspace, credential, reason="The issue could not be recorded.", now=now)
        raise ServiceUnavailable("The issue could not be recorded, so nothing was issued.", retry_after=5) from None
    return access


def _anchor(client: ClusterClient, workspace: Workspace, credential: Credential, account: str) -> str:
    """Create the Secret that the token is bound to; its uid."""
    body = objects.anchor(workspace, credential.anchor, account, workspace.service_accounts.get(account, ""))
    answer = require_done(client.create(objects.path(workspace, "secrets"), body))
    return str(answer.metadata.get("uid") or "")[:64]


@sensitive_variables()
def _access(workspace: Workspace, credential: Credential, token: ClusterToken) -> Access:
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
        raise BrokenPromise("The cluster's answer held no token.") from None
    return access


def _conclude(actor: Actor, workspace: Workspace, credential: Credential, token: ClusterToken) -> None:
    """Commit the outcome if the workspace is still as it was: after a suspension was answered no token comes out.

    Nor one that writes, after a freeze was. Nor any, once the membership, the rank or the account has ended by which it
    was asked for: what ends while this is under way waits, and finds a credential to end.
    """
    with transaction.atomic():
        present = rights_locked(actor, workspace.tenant_id)
        current = Workspace.objects.select_for_update(no_key=True).get(pk=workspace.pk)
        # Another phase is a resume that has not yet come to the accounts: they are old ones.
        ready = current.status == Status.ACTIVE and current.phase == Phase.READY
        if not ready or current.service_accounts != workspace.service_accounts:
            raise Conflict("The workspace was closed while the credential was made.", kind="workspaces")
        require_direct(current, credential.role)
        revoked = Credential.objects.select_for_update(no_key=True).get(pk=credential.pk).revoked_at is not None
        member = role_of(present, workspace.tenant_id)
        if revoked or present.auditor or member is None or not allows(member, credential.role):
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
