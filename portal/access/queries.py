"""Who can do a thing, and what a change would change (AZ11): for those who hand out rights in a space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from audit.recorder import Actor
from gateway.server import explanation
from kube.authorization import whatif, whocan
from kube.authorization.rbac import Attributes
from kube.authorization.whatif import Effect
from kube.authorization.whocan import Holder
from kube.requests.decoding import decode_yaml
from kube.requests.logicalclusters import is_valid
from kube.requests.status import BadRequest, Forbidden
from portal.access.explanation import may_grant
from portal.database.scopes import everything

MANIFEST_MAX: Final = 256 * 1024


@everything()  # as the API server decides, which sees every space
def who_can(*, actor: Actor, cluster: str, attributes: Attributes) -> tuple[Holder, ...]:
    """Every subject that may do this in a logical cluster, with the path of objects by which, and of gates.

    Raises ``Forbidden`` unless the actor hands out rights there, ``BadRequest``.
    """
    _require(actor, cluster)
    if not attributes.verb or not (attributes.resource or attributes.path):
        raise BadRequest("A verb and a resource or a path are needed.")
    state = explanation.state_of(cluster)
    nodes = explanation.nodes(cluster, attributes)
    holders = whocan.who_can(attributes, state.policies, (*state.lines, *state.objects), nodes)
    return explanation.with_workspace_gates(cluster, attributes, holders)


@everything()  # as the API server decides, which sees every space
def what_if(*, actor: Actor, cluster: str, manifest: Mapping[str, Any], delete: bool = False) -> tuple[Effect, ...]:
    """Who would gain and lose what if this role, binding or policy were written, or deleted.

    Raises ``Forbidden`` unless the actor hands out rights there, ``BadRequest`` for any other object.
    """
    _require(actor, cluster)
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        raise BadRequest("The object needs a name.")
    state = explanation.state_of(cluster)
    return whatif.effects(manifest, cluster, state.policies.local, (*state.lines, *state.objects), delete=delete)


def manifest_of(text: str) -> Mapping[str, Any]:
    """An object in YAML or JSON. Raises ``BadRequest``."""
    if len(text) > MANIFEST_MAX:
        raise BadRequest("The manifest is too long.")
    found = decode_yaml(text.encode())
    if not isinstance(found, Mapping):
        raise BadRequest("The manifest is no object.")
    return found


def _require(actor: Actor, cluster: str) -> None:
    if not is_valid(cluster) or not may_grant(actor, cluster):
        raise Forbidden("Operators may ask this anywhere, admins in their own tenant's space.")
