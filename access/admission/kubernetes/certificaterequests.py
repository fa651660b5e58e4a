"""A request for a certificate says who asked: the server knows, the body only claims. And only approvers approve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from access.authorization.chain import AuthorizationChain
from kube.requests.fielderrors import invalid_object
from kube.requests.status import Forbidden
from kube.validation.certificates import APISERVER_CLIENT, asks_for_masters, decision_causes
from store.types import Operation

_CALLER: Final = ("username", "uid", "groups", "extra")
_REQUESTS: Final = frozenset({("certificates.k8s.io", "certificatesigningrequests")})


class CertificateRequests(NoopPlugin):
    """Writes the caller's name, uid, groups and extra into a new ``CertificateSigningRequest``, as kube-apiserver does.

    Whoever approves or signs goes by them. What was asked for never changes, decisions go through ``approval`` alone,
    and nobody is made a master of the cluster.
    """

    name = "CertificateRequests"
    kinds = _REQUESTS

    async def admit(self, attributes: Attributes) -> None:
        """Put the caller in the place of whatever the body says, and leave alone what was asked for."""
        body, old = attributes.object, attributes.old
        if body is None:
            return
        if attributes.operation == CREATE:
            spec: dict[str, Any] = body.get("spec") or {}
            known = attributes.principal.seen_from(attributes.cluster).user_info()
            for field in _CALLER:
                spec.pop(field, None)
            spec.update({field: known[field] for field in _CALLER if field in known})
        elif old is not None:
            body["spec"] = old.get("spec") or {}
            if attributes.subresource in _VERBS:
                _date(body, old, attributes.now)

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for a certificate of ``system:masters``, ``Invalid`` for a decision in the wrong place."""
        body, old, resource = attributes.object, attributes.old, attributes.resource
        if body is None:
            return ()
        if (
            attributes.operation == CREATE
            and (body.get("spec") or {}).get("signerName") == APISERVER_CLIENT
            and asks_for_masters(body)
        ):
            raise Forbidden(
                f'{resource.qualified_name} "{attributes.name}" is forbidden: use of {APISERVER_CLIENT} signer with '
                "system:masters group is not allowed",
                group=resource.group,
                kind=resource.plural,
                name=attributes.name,
            )
        if attributes.operation == UPDATE and old is not None and attributes.subresource != "approval":
            causes = decision_causes(body, old)
            if causes:
                raise invalid_object(resource.group, resource.kind, attributes.name, causes)
        return ()


class CertificateSigners(NoopPlugin):
    """Kubernetes' ``CertificateApproval`` and ``CertificateSigning``: deciding on requests, or filling them, needs a right.

    It is the verb ``approve`` or ``sign`` on the signer that was asked for (``example.com/x``), or on all of its domain
    (``example.com/*``); to write ``approval`` or ``status`` alone is not enough (AZ2).
    """

    name = "CertificateSigners"
    kinds = _REQUESTS

    def __init__(self, authorization: AuthorizationChain) -> None:
        self._authorization = authorization

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` in kube-apiserver's words."""
        body, old, part = attributes.object, attributes.old, attributes.subresource
        verb = _VERBS.get(part)
        if verb is None or body is None or old is None or attributes.operation != UPDATE:
            return ()
        if part == "status" and _decided(body) == _decided(old):
            return ()
        signer = (old.get("spec") or {}).get("signerName", "")
        domain = f"{signer.partition('/')[0]}/*"
        if not await self._may(attributes, verb, signer) and not await self._may(attributes, verb, domain):
            raise attributes.forbidden(f'user not permitted to {verb} requests with signerName "{signer}"')
        return ()

    async def _may(self, attributes: Attributes, verb: str, signer: str) -> bool:
        info = replace(attributes.info, verb=verb, resource="signers", name=signer, subresource="", version="*")
        return (await self._authorization.authorize(attributes.principal, info)).allowed


_VERBS: Final = {"approval": "approve", "status": "sign"}


def _date(body: dict[str, Any], old: Mapping[str, Any], now: float) -> None:
    """Say of every condition since when it is so, and when that was last said."""
    moment = datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    before = {
        (each.get("type"), each.get("status")): each.get("lastTransitionTime")
        for each in (old.get("status") or {}).get("conditions") or ()
    }
    status = body.get("status") or {}
    if status.get("conditions"):
        status["conditions"] = [
            {
                **each,
                "lastUpdateTime": each.get("lastUpdateTime") or moment,
                "lastTransitionTime": each.get("lastTransitionTime")
                or before.get((each.get("type"), each.get("status")))
                or moment,
            }
            for each in status["conditions"]
        ]


def _decided(body: Mapping[str, Any]) -> tuple[Any, Any]:
    """What a signer writes: the certificate, and the conditions."""
    status = body.get("status") or {}
    return status.get("certificate") or None, status.get("conditions") or None
