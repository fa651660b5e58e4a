"""A request for a certificate says who asked: the server knows, the body only claims."""

from __future__ import annotations

from access.admission.base import CREATE, Attributes, Quiet


class CertificateRequests(Quiet):
    """Writes the caller's name, uid, groups and extra into a new ``CertificateSigningRequest``, as kube-apiserver does.

    Whoever approves or signs goes by them.
    """

    name = "CertificateRequests"

    async def admit(self, attributes: Attributes) -> None:
        """Put the caller in the place of whatever the body says."""
        body, resource = attributes.object, attributes.resource
        if (resource.group, resource.plural) != ("certificates.k8s.io", "certificatesigningrequests"):
            return
        spec = body.get("spec") if body is not None and attributes.operation == CREATE else None
        if isinstance(spec, dict):
            for field in ("username", "uid", "groups", "extra"):
                spec.pop(field, None)
            spec.update(attributes.principal.user_info())
