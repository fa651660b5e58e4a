"""Makes a tenant's own ServiceAccounts anew after a suspension, ``default`` among them: old tokens stay dead (P5).

A token is bound to its account's uid: one that is deleted and made again with what it held, under its name, takes every
token from before with it, bound ones of pods and endless ones in Secrets alike. The accounts are never gone for longer
than it takes to make them, for a cluster starts no pod without one, and pods run on.

What dies for it: pods ask with a dead token until the kubelet renews it (within the hour, at once when they begin
anew), Secrets with endless tokens are deleted by the cluster, and whoever knows an account by its uid knows it no more.

1. Some at a time: a cluster far away must not take longer for a turn than it has. Which ones are new is kept in the row.
2. Copies are committed before the deletions, so nothing is lost with a worker that dies.
3. They are deleted by uid: what somebody put in their place meanwhile is looked at in the next turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tenants.clusters import objects
from tenants.clusters.client import Outcome
from tenants.operationqueue import OperationLease, Retry, database_now, raise_for_outcome
from tenants.reconciler import closing

_AT_ONCE: Final = 20
_METADATA: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")
_FIELDS: Final = ("automountServiceAccountToken", "imagePullSecrets", "secrets")
_DEFAULT: Final = "default"


def renew(lease: OperationLease) -> Mapping[str, Any]:
    """Every account that is there now, but those that a workspace is made with, is a new one afterwards.

    Raises ``Retry`` while there are more of them, ``Refused`` where the gateway may not.
    """
    workspace = lease.workspace
    if not closing.namespace_exists(lease):
        return closing.receipt(workspace, "own-accounts", note="there is no namespace")
    _finish(lease)
    collection = objects.path(workspace, "serviceaccounts")
    old = [
        item
        for page in closing.pages(lease, collection)
        for item in page
        if item["metadata"]["name"] not in objects.ACCOUNTS.values()
        and item["metadata"].get("uid") not in workspace.renewed_accounts
    ]
    if old:
        lease.save(saved_accounts=[_copy(item) for item in old[:_AT_ONCE]])
        _finish(lease)
    if len(old) > _AT_ONCE:
        raise Retry(f"{len(old) - _AT_ONCE} more ServiceAccounts are to be made anew.", 0.0)
    note = f"{len(workspace.renewed_accounts)} of the tenant's own made anew; tokens from before are dead"
    return closing.receipt(workspace, "own-accounts", note=note)


def _finish(lease: OperationLease) -> None:
    """Make those anew of which there are copies."""
    workspace = lease.workspace
    if not workspace.saved_accounts:
        return
    made = [_made_anew(lease, copy) for copy in workspace.saved_accounts]
    # From now on the cluster's memory of their tokens runs out.
    lease.save(
        saved_accounts=[],
        renewed_accounts=[*workspace.renewed_accounts, *made],
        accounts_gone_at=database_now(),
    )


def _made_anew(lease: OperationLease, saved: Mapping[str, Any]) -> str:
    """The uid of the account that stands for ``saved`` from now on."""
    workspace, name, old = lease.workspace, saved["metadata"]["name"], saved["metadata"]["uid"]
    path = objects.path(workspace, "serviceaccounts", name)
    wanted = {**saved, "metadata": {key: value for key, value in saved["metadata"].items() if key != "uid"}}
    raise_for_outcome(lease.client.delete(path, uid=old), absent_is_fine=True)
    answer = lease.client.create(objects.path(workspace, "serviceaccounts"), wanted)
    if answer.outcome in {Outcome.EXISTS, Outcome.UNKNOWN}:
        answer = lease.client.get(path)
    made = str(raise_for_outcome(answer).metadata.get("uid", ""))
    if made == old:
        raise Retry(f"The ServiceAccount {name} is still on the cluster.", 0.5)
    if name == _DEFAULT and any(answer.body.get(field) != wanted.get(field) for field in _FIELDS):
        # The cluster's own controller was quicker, and makes a bare one.
        raise_for_outcome(lease.client.patch(path, {**wanted, "metadata": {**wanted["metadata"], "uid": made}}))
    return made


def _copy(account: Mapping[str, Any]) -> dict[str, Any]:
    metadata = account["metadata"]
    copy = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {key: metadata[key] for key in (*_METADATA, "uid") if metadata.get(key)},
        **{field: account[field] for field in _FIELDS if account.get(field) is not None},
    }
    return closing.storable(copy)
