"""Ends every right in a workspace's namespace: layers that suspensions, deletions and resumptions share (GW5, P4, P5).

Rights end first: the RoleBindings, then the accounts behind every issued token. The anchors of single tokens come
last and hold up nothing, for a tenant may touch them. A layer that is held does not keep the next one from being
tried; only a cluster that does not answer ends the attempt. Each layer is proved by a read, never by a DELETE's 200.

The order, and what each layer is there for:

1. ``bindings``: without RoleBindings the tokens that people hold may do nothing more, from the cluster's next decision
   on. Copies are committed before the deletions, so a resumption can bring them back whenever this worker dies.
2. ``canary``: a fresh token of each account is tried on the cluster itself. It finds rights that no list of
   RoleBindings in the namespace shows: those of a ClusterRoleBinding, or of another authorizer.
3. ``service-accounts``: a token is bound to its account's uid. An account of the same name that is made later does not
   revive it, which is why a resumption makes new accounts (``provisioning``).
4. ``anchors``: the Secrets of single tokens, for tidiness.

The workspace's namespace is known by its uid, and bindings are deleted by uid: what somebody has put in their place
meanwhile is looked at anew, not deleted unseen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

from kube.authentication.serviceaccounttokens import is_token
from tenants.clusters import objects
from tenants.clusters.anchors import AnchorState, anchor_end
from tenants.clusters.client import Answer, Outcome
from tenants.models import Cluster, CredentialKind, Phase, Workspace
from tenants.operationqueue import OperationLease, Refused, Retry, database_now, raise_for_outcome

TOKEN_CACHE_SECONDS: Final = {Cluster.Kind.EXTERNAL: 12.0, Cluster.Kind.EMBEDDED: 1.0}
"""How long a cluster may accept a token whose account is gone: kube-apiserver remembers what it accepted for 10 s. The
product's own looks at each use, a moment behind the database."""

_CANARY_SECONDS: Final = 600
_REFUSED_CODES: Final = frozenset({401, 403})
_SAVED_MOST: Final = 500
_SAVED_BYTES: Final = 2 * 1024 * 1024
_ANCHORS_MOST: Final = 100
_PAGE: Final = 100
_SMALL_PAGE: Final = 1
_PAGES_MOST: Final = 2000
_NUL, _REPLACEMENT = "\\u0000", "\\ufffd"
"""Names and annotations of RoleBindings may hold what PostgreSQL stores in no text."""

Layer = Callable[[OperationLease], Mapping[str, Any] | None]


def run_layers(lease: OperationLease, layers: Iterable[tuple[str, Layer]]) -> None:
    """Take the steps one after the other, the later ones even if an earlier one is held.

    Raises ``Retry`` at once when the cluster does not answer; at the end ``Retry`` or ``Refused`` with the words of
    all that is held.
    """
    held: list[Retry | Refused] = []
    for name, layer in layers:
        try:
            lease.step(name, layer)
        except Retry as error:
            if not error.reached:
                raise
            held.append(error)
        except Refused as error:
            held.append(error)
    if not held:
        return
    words = " ".join(str(error) for error in held)
    waits = [error.after for error in held if isinstance(error, Retry)]
    if not waits:
        raise Refused(words)
    raise Retry(words, min((after for after in waits if after is not None), default=None))


def namespace_exists(lease: OperationLease) -> bool:
    """Whether the workspace's namespace is on the cluster: by its uid, for labels can be taken off (KC4).

    Somebody else's of that name is not it: nothing of this workspace was ever made there.
    """
    workspace = lease.workspace
    answer = raise_for_outcome(lease.client.get(objects.namespace_path(workspace)), absent_is_fine=True)
    if answer.outcome is Outcome.ABSENT:
        return False
    uid = str(answer.metadata.get("uid", ""))
    return uid == workspace.namespace_uid or objects.is_ours(workspace, answer.metadata)


def is_revoked_by_closing(workspace: Workspace, binding: Mapping[str, Any]) -> bool:
    """Whether closing the workspace takes this RoleBinding away.

    Not only ours: deleting only ours leaves back doors. What stays is what no tenant can use: bindings that the
    cluster's people made for accounts of namespaces that are no workspace's. On the product's own API server the lock
    stands before every binding, so there only ours go.
    """
    if workspace.cluster.kind == Cluster.Kind.EMBEDDED:
        return binding["metadata"]["name"] in objects.role_bindings(workspace)
    subjects = binding.get("subjects")
    if not isinstance(subjects, list) or not subjects:
        return True
    return not all(
        isinstance(subject, dict)
        and subject.get("kind") == "ServiceAccount"
        and isinstance(namespace := subject.get("namespace"), str)
        and namespace != ""
        and not _is_a_workspace(workspace.cluster, namespace)
        for subject in subjects
    )


def _is_a_workspace(cluster: Cluster, namespace: str) -> bool:
    if objects.NAMESPACE.fullmatch(namespace):
        return True
    return cluster.workspaces.filter(k8s_namespace=namespace).exclude(phase=Phase.DELETED).exists()


def remove_bindings(lease: OperationLease) -> str:
    """Delete the RoleBindings and read back; what was done, in words.

    A copy of each is kept before its deletion. Raises ``Refused`` for what the cluster refuses to delete, ``Retry``
    for what is still there: a finalizer keeps a "deleted" binding alive, and in force.
    """
    workspace = lease.workspace
    collection = objects.path(workspace, "rolebindings")
    saved = {binding["metadata"]["name"]: binding for binding in workspace.saved_bindings}
    refused = []
    for page in _pages(lease, collection):
        items = [item for item in page if is_revoked_by_closing(workspace, item)]
        # The copy of an earlier attempt is added to, never replaced.
        saved |= {(copy := _copy(item))["metadata"]["name"]: copy for item in items}
        saved = {copy["metadata"]["name"]: copy for copy in _bounded(saved.values())}
        lease.save(saved_bindings=list(saved.values()))
        for item in items:
            name = item["metadata"]["name"]
            path = objects.path(workspace, "rolebindings", name)
            answer = lease.client.delete(path, uid=str(item["metadata"].get("uid", "")))
            if not answer.reached:
                raise_for_outcome(answer)
            if answer.outcome is Outcome.DENIED:
                refused.append(f"{_shown(name)} ({answer.message})")
    if refused:
        raise Refused(f"RoleBindings cannot be deleted: {', '.join(refused)[:600]}")
    for page in _pages(lease, collection):
        held = [_shown(item["metadata"]["name"]) for item in page if is_revoked_by_closing(workspace, item)]
        if held:
            raise Retry(f"RoleBindings are still on the cluster: {', '.join(held)[:200]}", 0.5)
    return f"{len(saved)} deleted"


def remove_accounts(lease: OperationLease) -> datetime:
    """Delete the accounts of issued tokens and read back; since when they are gone, in database time.

    Raises as ``remove_bindings``.
    """
    workspace, refused, held, were_gone = lease.workspace, [], [], True
    for account in objects.ACCOUNTS.values():
        path = objects.path(workspace, "serviceaccounts", account)
        answer = lease.client.delete(path)
        if answer.outcome is Outcome.ABSENT:
            continue
        were_gone = False
        if not answer.reached:
            raise_for_outcome(answer)
        if answer.outcome is Outcome.DENIED:
            refused.append(f"{account} ({answer.message})")
        elif raise_for_outcome(lease.client.get(path), absent_is_fine=True).outcome is not Outcome.ABSENT:
            held.append(account)
    if refused:
        raise Refused(f"ServiceAccounts cannot be deleted: {', '.join(refused)[:600]}")
    if held:
        raise Retry(f"ServiceAccounts are still on the cluster: {', '.join(held)}", 0.5)
    # Gone before this attempt: the earlier moment counts, for the cluster's cache has been running out since then.
    if were_gone and workspace.accounts_gone_at is not None:
        return workspace.accounts_gone_at
    return database_now()


def tokens_remembered(workspace: Workspace) -> float:
    """For how many more seconds the cluster may accept a token of accounts that are gone."""
    if workspace.accounts_gone_at is None:
        return 0.0
    lasts = TOKEN_CACHE_SECONDS[Cluster.Kind(workspace.cluster.kind)]
    return lasts - (database_now() - workspace.accounts_gone_at).total_seconds()


def _bindings(lease: OperationLease) -> Mapping[str, Any]:
    if not namespace_exists(lease):
        return receipt(lease.workspace, "bindings", note="there is no namespace")
    note = remove_bindings(lease)
    return receipt(lease.workspace, "bindings", note=note)


def _canary(lease: OperationLease) -> Mapping[str, Any]:
    """Ask the cluster, with a token of each account, whether it may still do anything."""
    workspace = lease.workspace
    if not namespace_exists(lease):
        return receipt(workspace, "canary", note="there is no namespace")
    allowed = [words for account in objects.ACCOUNTS.values() if (words := _asked(lease, account))]
    if allowed:
        lease.save(**receipt(workspace, "canary", note=allowed[0], verified=False))
        raise Retry(allowed[0], 0.5)
    doubted = any(item["layer"] == "canary" and not item["verified"] for item in workspace.receipt)
    if doubted and (left := tokens_remembered(workspace)) > 0:
        # The accounts are gone by now, and something else on the cluster gives rights to every account there is.
        raise Retry("Waiting until the cluster remembers no token.", left)
    return receipt(workspace, "canary", note="refused")


def _asked(lease: OperationLease, account: str) -> str:
    """What a fresh token of the account may still do, in words."""
    workspace = lease.workspace
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _CANARY_SECONDS},
    }
    answer = lease.client.create(objects.path(workspace, "serviceaccounts", account, sub="token"), body)
    path = objects.path(workspace, "serviceaccounts", account)
    # In a namespace that is ending no token is made, whether there is an account or not.
    if answer.outcome is not Outcome.DONE and lease.client.get(path).outcome is Outcome.ABSENT:
        return ""
    token = (raise_for_outcome(answer).body.get("status") or {}).get("token")
    if not isinstance(token, str) or not is_token(token):
        # Without one the question would be asked, and answered, for somebody else.
        raise Retry("The cluster's answer held no token to try.")
    for verb, resource in (("list", "pods"), ("get", "secrets"), ("create", "configmaps")):
        attributes = {"namespace": workspace.k8s_namespace, "verb": verb, "resource": resource}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        said = lease.client.create_as(token, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        if said.code in _REFUSED_CODES:
            continue
        status = raise_for_outcome(said).body.get("status")
        if not isinstance(status, dict) or status.get("allowed") is not False:
            return f"{account} may still {verb} {resource} on the cluster."
    return ""


def _service_accounts(lease: OperationLease) -> Mapping[str, Any]:
    """Every token of theirs is dead within the API server's cache, and stays dead (P5)."""
    if not namespace_exists(lease):
        return {**receipt(lease.workspace, "service-accounts", note="there is no namespace"), "service_accounts": {}}
    gone_at = remove_accounts(lease)
    entry = receipt(lease.workspace, "service-accounts", note="deleted; their tokens with them, within 10 s")
    return {**entry, "service_accounts": {}, "accounts_gone_at": gone_at}


def _anchors(lease: OperationLease) -> Mapping[str, Any]:
    """Delete what single tokens are bound to: for tidiness, they are dead with their accounts. Holds up nothing.

    Credentials are kept by the floor above; their rows point here, so they are read without knowing that floor.
    """
    workspace = lease.workspace
    anchored = workspace.credentials.filter(kind=CredentialKind.DIRECT, revocation_confirmed_at=None)
    rows = anchored.values_list("anchor", "anchor_uid")
    total, gone, now = rows.count(), 0, database_now()
    for name, uid in rows.order_by("-issued_at")[:_ANCHORS_MOST]:
        state = anchor_end(lease.client, workspace, name, uid, now=now)
        if state is AnchorState.SILENT:
            break
        gone += state is AnchorState.GONE
    left = f", {total - gone} left, which open nothing any more" if gone < total else ""
    return receipt(workspace, "anchors", note=f"{gone} deleted{left}")


LAYERS: Final[tuple[tuple[str, Layer], ...]] = (
    ("bindings", _bindings),
    ("canary", _canary),
    ("service-accounts", _service_accounts),
)
"""What must be proved before anybody hears that a workspace is closed."""

ANCHORS: Final[tuple[str, Layer]] = ("anchors", _anchors)


def receipt(workspace: Workspace, layer: str, *, note: str, verified: bool = True) -> dict[str, Any]:
    """The receipt with one more layer: when it was proved, and how long after the switch was pulled."""
    now = database_now()
    since = datetime.fromisoformat(workspace.receipt[0]["at"]) if workspace.receipt else now
    entry = {
        "layer": layer,
        "at": now.isoformat(),
        "milliseconds": max(0, int((now - since).total_seconds() * 1000)),
        "verified": verified,
        "note": note,
    }
    return {"receipt": [*(item for item in workspace.receipt if item["layer"] != layer), entry]}


def credentials_conclude(workspace: Workspace, *, by: str) -> None:
    """Write down that no credential from before works: their accounts are gone."""
    now = database_now()
    credentials = workspace.credentials
    credentials.filter(revoked_at=None, failed_at=None, expires_at__gt=now).update(revoked_at=now, revoked_by=by[:254])
    credentials.filter(revocation_confirmed_at=None).update(revocation_confirmed_at=now)


def _pages(lease: OperationLease, collection: str) -> Iterator[list[dict[str, Any]]]:
    """The collection, page by page: neither many objects nor big ones may keep it from being read."""
    limit, more = _PAGE, ""
    for _ in range(_PAGES_MOST):
        answer = lease.client.get(f"{collection}?limit={limit}{more and f'&continue={quote(more)}'}")
        if answer.code == 200 and answer.outcome is not Outcome.DONE and limit != _SMALL_PAGE:
            limit = _SMALL_PAGE
            continue
        yield _items(raise_for_outcome(answer))
        more = str(answer.metadata.get("continue") or "")
        if not more:
            return
    raise Retry("The cluster's list does not end.")


def _items(answer: Answer) -> list[dict[str, Any]]:
    items = answer.body.get("items")
    if not isinstance(items, list):
        raise Retry("The cluster's list was not a list.")
    if not all((item.get("metadata") or {}).get("name") for item in items):
        raise Retry("The cluster's list was not a list of objects.")
    return items


def _bounded(copies: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """As many copies as a row has room for: none must be able to hold up the closing by its size."""
    kept, size = [], 0
    for copy in copies:
        size += len(json.dumps(copy))
        if size <= _SAVED_BYTES:
            kept.append(copy)
    return kept[:_SAVED_MOST]


def _copy(binding: Mapping[str, Any]) -> dict[str, Any]:
    """What it takes to make the binding again."""
    metadata = binding["metadata"]
    kept = {name: metadata[name] for name in ("name", "namespace", "labels", "annotations") if metadata.get(name)}
    kept.get("annotations", {}).pop("kubectl.kubernetes.io/last-applied-configuration", None)
    copy = {
        "apiVersion": f"{objects.RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": kept,
        "roleRef": binding.get("roleRef"),
        "subjects": binding.get("subjects") or [],
    }
    storable: dict[str, Any] = json.loads(json.dumps(copy).replace(_NUL, _REPLACEMENT))
    return storable


def _shown(name: str) -> str:
    return name if name.isprintable() else ascii(name)
