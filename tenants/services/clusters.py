"""Clusters: registered with a kubeconfig, sealed at rest, checked before they are trusted (GW12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError
from django.utils import timezone

from audit.actions import Action
from audit.models import Outcome
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.authentication.kubeconfig import InvalidKubeconfig, RegisteredCluster, check_server, read_kubeconfig
from kube.authentication.pki import load_certificates
from kube.kinds.openings import openings_from
from kube.requests.names import is_dns_subdomain
from kube.requests.status import BadRequest, Cause, Conflict, Invalid, NotFound
from tenants.clusters import encryption, selfcheck
from tenants.clusters.changes import cluster_changed
from tenants.models import Cluster, CredentialKind
from tenants.naming import check_label
from tenants.rights import require_operator
from tenants.services import desiredstate
from tenants.services.credentialtrials import cluster_identity, credential_prove

TENANT_ROLES: Final = ("tenantry-tenant-admin", "tenantry-tenant-edit", "tenantry-tenant-view")
"""What a workspace's admin account may be bound to (``tenants/manifests/tenant-roles.yaml``), the most first."""

_CHANGEABLE: Final = frozenset(
    {
        "server",
        "ca_data",
        "client_url",
        "tenant_role",
        "ingress_domain",
        "limits_events",
        "opened",
        "credential_kinds",
        "is_default",
    }
)
_CHECKED: Final = (
    "last_error",
    "last_seen_at",
    "checks",
    "checked_at",
    "storage_classes",
    "unclaimed_namespaces",
    "identity",
)


def cluster_register(
    *,
    actor: Actor,
    name: str,
    kubeconfig: str,
    kind: str = Cluster.Kind.EXTERNAL,
    client_url: str = "",
    tenant_role: str = TENANT_ROLES[0],
    ingress_domain: str = "",
    limits_events: bool = False,
    opened: str = "",
    credential_kinds: Sequence[str] | None = None,
    is_default: bool = False,
) -> Cluster:
    """Register a cluster, or say everything anew of the one with this name, its credential included. Operators only.

    ``kubeconfig`` is the gateway's own (``tenants/manifests/``); its server must be https with an inline CA.
    ``client_url`` is what kubeconfigs of users point at, by default the server. ``credential_kinds`` are what people may
    be given, the recommended one first; where nothing is said, what the cluster had, and for a new one everything.

    A credential that takes the place of another is tried first, as by ``cluster_credential_rotate``: the name of a cluster
    that has said which one it is stays that one's. What a new cluster has, or the product's own, is not tried here:
    ``cluster_check`` connects. Raises ``Invalid`` naming the field; ``Conflict`` when another credential, or another cluster
    of this name, came first.
    """
    require_operator(actor)
    check_label(name, field="name", kind="Cluster")
    access = access_of(kubeconfig)
    if kind not in Cluster.Kind.values:
        causes = [Cause("FieldValueNotSupported", f'Unsupported value: "{kind}"', "kind")]
        raise Invalid("Cluster is invalid: kind: Unsupported value", kind="Cluster", causes=causes)
    known = Cluster.objects.filter(name=name).first()
    if credential_kinds is None:
        credential_kinds = known.credential_kinds if known is not None else _every_kind(kind)
    said = {
        "kind": kind,
        "server": access.server,
        "client_url": _url(client_url, "client_url") if client_url else "",
        "ca_data": access.certificate_authority.decode("ascii"),
        "sealed_credential": encryption.encrypt(kubeconfig),
        "credential_expires_at": selfcheck.expiry_of(access),
        "identity": "",
        "tenant_role": _role(tenant_role),
        "ingress_domain": _domain(ingress_domain),
        "limits_events": limits_events,
        "opened": _opened(opened),
        "credential_kinds": _kinds(credential_kinds),
        "is_default": is_default,
        "last_error": "",
    }
    if known is not None and kind == Cluster.Kind.EXTERNAL:
        said["identity"] = (
            known.identity if _is_held(known, kubeconfig) else credential_prove(access, known, cluster_identity(known))
        )
    with transaction.atomic():
        if known is None:
            cluster = Cluster(name=name)
        else:
            cluster = locked(name)
            require_unchanged(cluster, known.sealed_credential)
        _keep(cluster, said)
        desiredstate.retry_now(cluster.workspaces.all())
        cluster_changed(name)
        detail = {"server": access.server, "kind": str(kind), "replaced": known is not None}
        actor.record(Action.CLUSTER_REGISTERED, chain=SYSTEM_CHAIN, target=f"clusters/{name}", detail=detail)
    return cluster


@transaction.atomic
def cluster_change(*, actor: Actor, name: str, **changes: Any) -> Cluster:
    """Change what is said of a cluster: the fields of ``_CHANGEABLE``. Operators only.

    Another server or CA wipes the credential: it must be registered anew, or it would be sent to the new host.
    Raises ``NotFound``, ``Invalid``.
    """
    require_operator(actor)
    cluster = locked(name)
    unknown = sorted(set(changes) - _CHANGEABLE)
    if unknown:
        causes = [Cause("FieldValueInvalid", "unknown field", field) for field in unknown]
        raise Invalid(f"Cluster is invalid: unknown fields {', '.join(unknown)}", kind="Cluster", causes=causes)
    if "server" in changes:
        changes["server"] = _url(str(changes["server"]), "server")
    if "ca_data" in changes:
        changes["ca_data"] = _ca(str(changes["ca_data"]))
    if changes.get("client_url"):
        changes["client_url"] = _url(str(changes["client_url"]), "client_url")
    if "tenant_role" in changes:
        changes["tenant_role"] = _role(str(changes["tenant_role"]))
    if "credential_kinds" in changes:
        changes["credential_kinds"] = _kinds(changes["credential_kinds"])
    if "ingress_domain" in changes:
        changes["ingress_domain"] = _domain(str(changes["ingress_domain"]))
    if "opened" in changes:
        changes["opened"] = _opened(str(changes["opened"]))
    wiped = any(field in changes and changes[field] != getattr(cluster, field) for field in ("server", "ca_data"))
    detail = {"fields": sorted(changes), "credential_wiped": wiped}
    if wiped:
        changes |= {"sealed_credential": None, "credential_expires_at": None}
        changes["last_error"] = "The server or its CA was changed: register the kubeconfig again."
    _keep(cluster, changes)
    desiredstate.retry_now(cluster.workspaces.all())
    cluster_changed(name)
    actor.record(Action.CLUSTER_CHANGED, chain=SYSTEM_CHAIN, target=f"clusters/{name}", detail=detail)
    return cluster


def cluster_check(*, actor: Actor, name: str) -> str:
    """Prove what the cluster must be (``tenants/clusters/selfcheck.py``); the words of the first failure, or the empty string.

    All findings are kept in ``checks``. When it answers as it should, what waits for another attempt there is tried at
    once. Operators only. Raises ``NotFound``.
    """
    require_operator(actor)
    with transaction.atomic():
        cluster = locked(name)
    now = timezone.now()
    report = selfcheck.check(cluster, now=now)
    error = report.error
    with transaction.atomic():
        cluster = locked(name)
        cluster.last_error, cluster.checks, cluster.checked_at = error[:512], report.rows(), now
        cluster.identity = cluster.identity or report.identity
        if report.storage_classes is not None:
            cluster.storage_classes = list(report.storage_classes)
        if report.unclaimed is not None:
            cluster.unclaimed_namespaces = [asdict(each) for each in report.unclaimed]
        if not error:
            cluster.last_seen_at = now
        cluster.save(update_fields=_CHECKED)
        if not error:
            desiredstate.retry_now(cluster.workspaces.all())
        outcome = Outcome.FAILURE if error else Outcome.SUCCESS
        actor.record(
            Action.CLUSTER_CHECKED,
            chain=SYSTEM_CHAIN,
            outcome=outcome,
            target=f"clusters/{name}",
            detail={"error": error, "unclaimed_namespaces": len(cluster.unclaimed_namespaces)},
        )
    return error


@transaction.atomic
def cluster_delete(*, actor: Actor, name: str) -> None:
    """Forget a cluster that has and had no workspaces. Operators only. Raises ``NotFound``, ``Conflict``."""
    require_operator(actor)
    cluster = locked(name)
    try:
        cluster.delete()
    except (ProtectedError, IntegrityError):
        raise Conflict(f"Workspaces live on the cluster {name}.", kind="clusters", name=name) from None
    cluster_changed(name)
    actor.record(Action.CLUSTER_DELETED, chain=SYSTEM_CHAIN, target=f"clusters/{name}")


def locked(name: str) -> Cluster:
    """The cluster's row, nobody else's to change until the transaction ends. Raises ``NotFound``."""
    cluster = Cluster.objects.select_for_update(no_key=True).filter(name=name).first()
    if cluster is None:
        raise NotFound(f'clusters "{name}" not found', kind="clusters", name=name)
    return cluster


def require_unchanged(cluster: Cluster, sealed_credential: bytes | memoryview | None) -> None:
    """Raise ``Conflict`` where another credential came while one was tried."""
    if cluster.sealed_credential != sealed_credential:
        message = "The credential was changed meanwhile: look at it and try again."
        raise Conflict(message, kind="clusters", name=cluster.name)


def _keep(cluster: Cluster, said: dict[str, Any]) -> None:
    """Write what is said of a cluster, which is the default one instead of another where that is said.

    Raises ``Conflict`` where another cluster took its name, or its place as the default one, meanwhile: what was said of
    one that nobody knew says nothing of that.
    """
    for field, value in said.items():
        setattr(cluster, field, value)
    try:
        with transaction.atomic():
            if cluster.is_default:
                Cluster.objects.filter(is_default=True).exclude(pk=cluster.pk).update(is_default=False)
            cluster.save()
    except IntegrityError:
        message = f"Another cluster was registered as {cluster.name}, or made the default, meanwhile: try again."
        raise Conflict(message, kind="clusters", name=cluster.name) from None


def _is_held(cluster: Cluster, kubeconfig: str) -> bool:
    """Whether this is the credential that the cluster has."""
    try:
        return cluster.sealed_credential is not None and encryption.decrypt(cluster.sealed_credential) == kubeconfig
    except encryption.DecryptionError:
        return False


def access_of(kubeconfig: str) -> RegisteredCluster:
    """What a kubeconfig says, if it is one that a cluster may be reached by. Raises ``Invalid`` for the field."""
    try:
        access = read_kubeconfig(kubeconfig)
        if not load_certificates(access.certificate_authority):
            raise InvalidKubeconfig("the certificate authority is empty")
    except ValueError as error:
        # The library's own words repeat no credential; a parser's might.
        raise _invalid(
            "kubeconfig", str(error) if isinstance(error, InvalidKubeconfig) else "a certificate is damaged"
        ) from None
    _url(access.server, "kubeconfig")
    return access


def _url(url: str, field: str) -> str:
    try:
        if len(check_server(url)) <= 512 and url.isprintable():
            return url
    except InvalidKubeconfig as error:
        raise _invalid(field, str(error)) from None
    raise _invalid(field, "the URL is too long")


def _role(name: str) -> str:
    """One of the roles that the gateway may bind: another would be refused by the fences, workspace by workspace."""
    if name not in TENANT_ROLES:
        message = f"must be one of {', '.join(TENANT_ROLES)}; add rules to them by tenantry.io/aggregate-to-admin"
        raise _invalid("tenant_role", message)
    return name


def _opened(text: str) -> str:
    """Lines that each open something of the cluster's own to its tenants."""
    try:
        openings_from(text)
    except BadRequest as error:
        raise _invalid("opened", error.message) from None
    return text


def _every_kind(cluster: str) -> list[str]:
    """All kinds of credentials, the recommended one first: no file passes by Tenantry where the cluster is Tenantry."""
    direct_first = cluster == Cluster.Kind.EMBEDDED
    return sorted(CredentialKind.values, key=lambda kind: (kind == CredentialKind.DIRECT) != direct_first)


def _kinds(kinds: object) -> list[str]:
    """Kinds of credentials, each once, in the order in which they are recommended."""
    if not isinstance(kinds, list | tuple) or not all(kind in CredentialKind.values for kind in kinds):
        raise _invalid("credential_kinds", f"must be a list of {', '.join(CredentialKind.values)}")
    return list(dict.fromkeys(kinds))


def _domain(name: str) -> str:
    """A DNS name in lower case, or nothing."""
    if name and not is_dns_subdomain(name):
        raise _invalid("ingress_domain", "must be a DNS name in lower case, as apps.example.org")
    return name


def _ca(pem: str) -> str:
    try:
        if load_certificates(pem.encode("ascii")):
            return pem
    except ValueError:
        pass
    raise _invalid("ca_data", "a certificate authority (PEM) is needed")


def _invalid(field: str, message: str) -> Invalid:
    causes = [Cause("FieldValueInvalid", message, field)]
    return Invalid(f"Cluster is invalid: {field}: {message}", kind="Cluster", causes=causes)
