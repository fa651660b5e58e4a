"""Every pod outlives short troubles of its node."""

from __future__ import annotations

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from kube.objects.tolerations import outliving


class DefaultTolerationSeconds(NoopPlugin):
    """Kubernetes' plug-in of that name (TS15): before what a runtime class adds."""

    name = "DefaultTolerationSeconds"
    kinds = frozenset({("", "pods")})
    operations = frozenset({CREATE, UPDATE})

    async def admit(self, attributes: Attributes) -> None:
        """Add what is missing, to the pod itself and not to its parts."""
        if attributes.object is not None and not attributes.subresource:
            spec = attributes.object["spec"]
            attributes.object["spec"] = {**spec, "tolerations": outliving(spec.get("tolerations") or [])}
