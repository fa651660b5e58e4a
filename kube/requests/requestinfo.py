"""What a request asks for, resolved once from the raw path; everything downstream uses only this value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestInfo:
    """A resolved request (SPACES, resource URL endpoint resolution; TS4 to TS7, TS13).

    ``cluster`` is the logical cluster: ``root`` is the system space, ``root:<tenant>`` a tenant's space,
    ``root:<tenant>:<workspace>`` a workspace. ``tenant`` is ``system`` for the system space.
    ``path`` is the full path, rebuilt from the resolved parts; for a non-resource request it is the path
    inside the logical cluster (``/healthz``, ``/openapi/v3/api/v1``).
    ``verb`` is Kubernetes' request verb: get, list, watch, create, update, patch, delete, deletecollection for
    resources, the lower-case HTTP method otherwise.
    ``name`` may come from a field selector ``metadata.name=…`` when the verb is list or watch, as in Kubernetes.
    ``namespace`` of a Namespace object is its own name, as in Kubernetes.
    ``rest`` is what follows ``…/proxy/``, percent-encoded as it goes upstream, without the leading slash.
    ``node`` is the node of a field selector ``spec.nodeName=…`` of pods or slices of devices (AZ4).
    ``all_tenants`` is set for the system tenant's reading across tenants (TS14).
    """

    method: str
    path: str
    cluster: str
    tenant: str
    verb: str
    is_resource: bool = False
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    rest: str = ""
    node: str = ""
    all_tenants: bool = False

    @property
    def connects(self) -> bool:
        """Whether it is for a connection into a pod, by which whoever has it can change what runs there."""
        return self.resource == "pods" and not self.group and self.subresource in {"exec", "attach", "portforward"}

    @property
    def is_long_running(self) -> bool:
        """Whether the answer may go on for as long as it likes."""
        is_log = self.resource == "pods" and not self.group and self.subresource == "log"
        return self.verb == "watch" or is_log or self.connects
