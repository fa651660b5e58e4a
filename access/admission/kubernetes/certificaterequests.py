"""A request for a certificate says who asked: the server knows, the body only claims."""

from __future__ import annotations

from typing import Final

from access.admission.base import CREATE, Attributes, NoopPlugin

_CALLER: Final = ("username", "uid", "groups", "extra")


class CertificateRequests(NoopPlugin):
    """Writes the caller's name, uid, groups and extra into a new ``CertificateSigningRequest``, as kube-apiserver does.

    Whoever approves or signs goes by them.
    """

    name = "CertificateRequests"

    async def admit(self, attributes: Attributes) -> None:
        """Put the caller in the place of whatever the body says."""
        body, resource = attributes.object, attributes.resource
        if (resource.group, resource.plural) != ("certificates.k8s.io", "certificatesigningrequests"):
            return
        spec = body.get("spec") if body is not None else None
        if not isinstance(spec, dict):
            return
        before = (attributes.old or {}).get("spec") or {}
        known = (
            attributes.principal.seen_from(attributes.cluster).user_info() if attributes.operation == CREATE else before
        )
        for field in _CALLER:
            spec.pop(field, None)
        spec.update({field: known[field] for field in _CALLER if field in known})
