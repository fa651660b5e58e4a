"""Objects of the system space that tenants get as well: what they say of it, and what is to be done about a copy (AZ8).

An object is published by an annotation, to all tenants or to those whose labels a selector chooses. Its copies are the
server's: whoever may do what in a tenant's space, nobody changes them there. A copy bears the UID of its source, so that
what has the source's name later is another one. Definitions of kinds are not copied: tenants share the system space's
(``gateway.resources.customresources``), by the same annotation.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any, Final

import orjson

from kube.requests.labelselectors import EVERYTHING, Selector, parse_labels
from kube.requests.status import BadRequest

DOMAIN: Final = "multi-tenancy.k8s.io/"
PUBLISHED: Final = f"{DOMAIN}published"
"""The annotation: ``"true"`` publishes an object of the system space."""

TENANTS: Final = f"{DOMAIN}published-to"
"""The annotation that chooses tenants by their labels, as ``kubectl get -l`` does; without it all tenants."""

SECRET: Final = f"{DOMAIN}published-secret"
"""The annotation without which, ``"true"``, a Secret is not published."""

REPORT: Final = f"{DOMAIN}publication"
"""The annotation in which the server says, as JSON, how many tenants are to have it and who has not, and why."""

ORIGIN: Final = f"{DOMAIN}published-from"
"""The label of copies: the UID of their source."""

DIGEST: Final = f"{DOMAIN}published-digest"
"""The annotation of copies on clusters: of what they were made, for a cluster adds to what it is given."""

ASKING: Final = (PUBLISHED, TENANTS, SECRET)
_CLAIMS: Final = (*ASKING, REPORT)
NAMED_MAX: Final = 10
"""Tenants that a report names for one reason."""

Body = Mapping[str, Any]
Place = tuple[str, str]
"""A group and a plural."""

NAMESPACES: Final[Place] = ("", "namespaces")
SECRETS: Final[Place] = ("", "secrets")
DEFINITIONS: Final[Place] = ("apiextensions.k8s.io", "customresourcedefinitions")
PLACED_COPIES: Final[Place] = ("tenancy.tenantry.io", "placedcopies")
"""Where it is kept what is to be in placed namespaces, and how it stands there; no API serves it."""

_SERVERS: Final = frozenset({"tenancy.kcp.io", "core.kcp.io", "apis.kcp.io", "tenancy.tenantry.io"})
"""Groups whose objects the server makes for each space by itself."""

_PERSONAL: Final = frozenset(
    {("certificates.k8s.io", "certificatesigningrequests"), ("networking.k8s.io", "ingresses")}
)
"""Kinds whose objects are somebody's alone: who asks for a certificate, whose a host name is."""

_CREDENTIALS: Final = frozenset({"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"})
_OWN: Final = (DOMAIN, "tenantry.io/", "kubectl.kubernetes.io/last-applied-configuration")
"""What begins so is about this object in this place, and not copied."""


class Reason(StrEnum):
    """Why a tenant has no copy that it is to have."""

    NAME_TAKEN = "NameTaken"
    NO_NAMESPACE = "NamespaceNotFound"
    NAMESPACE_ENDING = "NamespaceTerminating"
    NAMESPACE_CLOSED = "NamespaceNotReady"
    ON_ITS_WAY = "OnItsWay"
    CLUSTER_AWAY = "ClusterUnavailable"
    CLUSTER_REFUSES = "ClusterRefuses"
    KIND_NOT_SERVED = "KindNotServed"
    KIND_NOT_PUBLISHED = "KindNotPublished"
    UNCONFIRMED = "SecretNotConfirmed"
    CREDENTIAL = "Credential"
    SELECTOR_INVALID = "SelectorInvalid"


MESSAGES: Final[Mapping[Reason, str]] = {
    Reason.NAME_TAKEN: "the tenant has an object of this name, which is not overwritten; it gets this one when that goes",
    Reason.NO_NAMESPACE: "the tenant has no such namespace; it gets the object with it (a Namespace can be published too)",
    Reason.NAMESPACE_ENDING: "the tenant's namespace is being deleted; a new one of the name gets the object",
    Reason.NAMESPACE_CLOSED: "the tenant's namespace on a cluster is being made, or suspended; it gets the object after that",
    Reason.ON_ITS_WAY: "the cluster of the tenant's namespace is being asked",
    Reason.CLUSTER_AWAY: "the cluster of the tenant's namespace does not answer; it is asked again",
    Reason.CLUSTER_REFUSES: "the cluster of the tenant's namespace does not let the gateway keep the object there: a quota "
    "is full, or its gateway-role.yaml and fences.yaml are older ones or leave the kind out",
    Reason.KIND_NOT_SERVED: "the tenant's space does not serve this kind, or may not hold it",
    Reason.KIND_NOT_PUBLISHED: "objects of this kind are the server's, or one owner's alone",
    Reason.UNCONFIRMED: f'a Secret is published only with the annotation {SECRET}: "true" as well',
    Reason.CREDENTIAL: "tokens of service accounts and nodes are the system space's own and never published",
    Reason.SELECTOR_INVALID: f"the annotation {TENANTS} is not a label selector",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What a published object says. ``form`` is what its copies say; ``hindrance`` is why nobody gets one."""

    uid: str
    form: Body
    tenants: Selector = EVERYTHING
    hindrance: Reason | None = None

    def means(self, labels: Mapping[str, str]) -> bool:
        """Whether a tenant with these labels is to have it."""
        return self.tenants.matches(labels)


class Step(Enum):
    """What is to be done about what stands, or does not, in the place of a copy."""

    NONE = 0
    CREATE = 1
    REPLACE = 2
    REMOVE = 3


def publication_of(place: Place, body: Body) -> Publication | None:
    """The publication of an object of the system space; ``None`` where it is not published, or not any more."""
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    if annotations.get(PUBLISHED) != "true" or "deletionTimestamp" in metadata or place == DEFINITIONS:
        return None
    hindrance, tenants = _hindrance(place, body), EVERYTHING
    try:
        tenants = parse_labels(annotations.get(TENANTS) or "")
    except BadRequest:
        hindrance = Reason.SELECTOR_INVALID
    form = said(body)
    form["metadata"]["labels"] = {**form["metadata"].get("labels", {}), ORIGIN: metadata["uid"]}
    return Publication(uid=metadata["uid"], form=form, tenants=tenants, hindrance=hindrance)


def _hindrance(place: Place, body: Body) -> Reason | None:
    if place[0] in _SERVERS or place in _PERSONAL:
        return Reason.KIND_NOT_PUBLISHED
    if place == SECRETS:
        if body.get("type") in _CREDENTIALS:
            return Reason.CREDENTIAL
        if body["metadata"]["annotations"].get(SECRET) != "true":
            return Reason.UNCONFIRMED
    return None


def said(body: Body) -> dict[str, Any]:
    """What a source's copies repeat of it: neither its status nor what is the server's about it in its own place."""
    metadata = {}
    for field in ("labels", "annotations"):
        if kept := {k: v for k, v in (body["metadata"].get(field) or {}).items() if not k.startswith(_OWN)}:
            metadata[field] = kept
    return {
        **{field: value for field, value in body.items() if field not in ("metadata", "status")},
        "metadata": metadata,
    }


def follows(body: Body) -> dict[str, Any]:
    """What tenants have by a source: what its copies repeat, and the owners with which it goes."""
    return {**said(body), "ownerReferences": body["metadata"].get("ownerReferences") or []}


def is_published(body: Body | None) -> bool:
    """Whether an object says that it is published, whatever may be in the way."""
    return asks(body).get(PUBLISHED) == "true"


def asks(body: Body | None) -> dict[str, str]:
    """The annotations by which an object asks to be published."""
    return _annotations(body, ASKING)


def claims(body: Body | None) -> dict[str, str]:
    """All annotations that speak of being published, the server's report too: none is for a tenant's object."""
    return _annotations(body, _CLAIMS)


def _annotations(body: Body | None, names: tuple[str, ...]) -> dict[str, str]:
    annotations = (body.get("metadata") or {}).get("annotations") if body else None
    if not annotations:
        return {}
    return {name: annotations[name] for name in names if name in annotations}


def origin_of(body: Body | None) -> str:
    """The UID of a copy's source; empty for what is no copy."""
    labels = (body.get("metadata") or {}).get("labels") if body else None
    return str(labels.get(ORIGIN) or "") if labels else ""


def is_copy(body: Body | None) -> bool:
    """Whether it is a copy of a published object."""
    return bool(origin_of(body))


def step(publication: Publication | None, found: Body | None, obstacle: Reason | None) -> tuple[Step, Reason | None]:
    """What to do in a tenant's space, and why the tenant has no copy when it should.

    ``publication`` is ``None`` for a tenant that is to have none; ``found`` is what stands under the name;
    ``obstacle`` is what is in the way of a new copy.
    """
    after, reason = _possible(publication, obstacle)
    if found is not None and is_copy(found):
        if "deletionTimestamp" in found["metadata"]:
            return Step.NONE, reason if after is None else Reason.NAMESPACE_ENDING
        if after is None or origin_of(found) != after.uid:
            return Step.REMOVE, reason
        return (Step.NONE if _repeats(found, after) else Step.REPLACE), None
    if after is None:
        return Step.NONE, reason
    if found is not None:
        return Step.NONE, Reason.NAME_TAKEN
    return (Step.NONE, obstacle) if obstacle is not None else (Step.CREATE, None)


def _possible(publication: Publication | None, obstacle: Reason | None) -> tuple[Publication | None, Reason | None]:
    """The publication, if anybody can have a copy of it here, or why not."""
    if publication is not None and publication.hindrance is not None:
        return None, publication.hindrance
    if publication is not None and obstacle is Reason.KIND_NOT_SERVED:
        return None, obstacle
    return publication, None


def placed_step(
    publication: Publication | None, record: Body | None, place: Body, obstacle: Reason | None
) -> tuple[Step, Reason | None]:
    """What to do about the record of a copy on a cluster, and why the tenant has none there when it should.

    ``place`` is where its namespace is (``placed_record``). A record that is removed is marked, until the copy is gone.
    """
    after, reason = _possible(publication, obstacle)
    if after is None:
        ended = record is None or "deletionTimestamp" in record["metadata"]
        return (Step.NONE if ended else Step.REMOVE), reason
    if record is None:
        return (Step.NONE, obstacle) if obstacle is not None else (Step.CREATE, Reason.ON_ITS_WAY)
    if (
        record["spec"] != _record_spec(after, place)
        or origin_of(record) != after.uid
        or "deletionTimestamp" in record["metadata"]
    ):
        return Step.REPLACE, Reason.ON_ITS_WAY
    return Step.NONE, told_of(record)


def placed_record(publication: Publication, place: Body, metadata: Body) -> dict[str, Any]:
    """The record of a copy that a cluster is to have. ``place`` names the cluster and the workspace."""
    return {
        "apiVersion": f"{PLACED_COPIES[0]}/v1alpha1",
        "kind": "PlacedCopy",
        "metadata": {**metadata, "labels": {ORIGIN: publication.uid}},
        "spec": _record_spec(publication, place),
        "status": {"reason": Reason.ON_ITS_WAY.value},
    }


def _record_spec(publication: Publication, place: Body) -> dict[str, Any]:
    return {**place, "apiVersion": publication.form["apiVersion"], "digest": digest_of(publication)}


def told_of(record: Body) -> Reason | None:
    """Why a cluster has not what the record says; ``None`` where it has."""
    reason = record["status"]["reason"]
    return None if reason is None else Reason(reason)


def digest_of(publication: Publication) -> str:
    """One word for all that copies say."""
    return hashlib.sha256(orjson.dumps(publication.form, option=orjson.OPT_SORT_KEYS)).hexdigest()


def placed_form(publication: Publication, found: Body | None) -> dict[str, Any] | None:
    """What a cluster is to be told, ``None`` where it has it already. ``found`` is the copy that is there.

    What the cluster has added, a default say, stays as it is.
    """
    metadata, digest = publication.form["metadata"], digest_of(publication)
    annotations = {**metadata.get("annotations", {}), DIGEST: digest}
    wanted = {**publication.form, "metadata": {**metadata, "annotations": annotations}}
    return None if found is not None and _holds(found, wanted) else wanted


def _holds(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(_holds(found.get(name), value) for name, value in wanted.items())
    if isinstance(wanted, list):
        same = isinstance(found, list) and len(found) == len(wanted)
        return same and all(_holds(*pair) for pair in zip(found, wanted, strict=True))
    return bool(found == wanted)


def _repeats(copy: Body, publication: Publication) -> bool:
    repeated = said(copy)
    repeated["metadata"]["labels"] = {**repeated["metadata"].get("labels", {}), ORIGIN: origin_of(copy)}
    return repeated == publication.form


def replaced(copy: Body, publication: Publication) -> dict[str, Any]:
    """A copy that says what its source says now; its identity and its status stay."""
    kept = {name: value for name, value in copy["metadata"].items() if name not in ("labels", "annotations")}
    new = {**publication.form, "metadata": {**kept, **publication.form["metadata"]}}
    if "status" in copy:
        new["status"] = copy["status"]
    content = ({k: v for k, v in body.items() if k not in ("metadata", "status")} for body in (copy, new))
    if "generation" in kept and next(content) != next(content):
        new["metadata"]["generation"] = kept["generation"] + 1
    return new


def report(outcomes: Mapping[str, Reason | None]) -> str:
    """The value of ``REPORT``. ``outcomes`` are of the tenants that are to have it: ``None`` for those that do."""
    missing: defaultdict[Reason, list[str]] = defaultdict(list)
    for tenant, reason in sorted(outcomes.items()):
        if reason is not None:
            missing[reason].append(tenant)
    said_of = {
        reason.value: {"message": MESSAGES[reason], "tenants": len(tenants), "first": tenants[:NAMED_MAX]}
        for reason, tenants in sorted(missing.items())
    }
    count = sum(map(len, missing.values()))
    return orjson.dumps({"tenants": len(outcomes), "missing": count, "reasons": said_of}).decode()


def reported(body: Body) -> str | None:
    """The report that a source bears."""
    annotation: str | None = (body["metadata"].get("annotations") or {}).get(REPORT)
    return annotation


def with_report(body: Body, value: str | None) -> dict[str, Any]:
    """A source with a report, or without."""
    metadata = {name: kept for name, kept in body["metadata"].items() if name != "annotations"}
    annotations = {k: v for k, v in (body["metadata"].get("annotations") or {}).items() if k != REPORT}
    if value is not None:
        annotations[REPORT] = value
    return {**body, "metadata": {**metadata, **({"annotations": annotations} if annotations else {})}}
