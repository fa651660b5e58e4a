"""Tiers and clusters: everybody may choose a tier, operators make them and the clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from audit.recorder import Actor
from portal.api.endpoint import Endpoint, created_response, page_schema, paginated_response
from portal.api.permissions import api_actor, api_operator, api_overseer
from portal.api.serializers.platform import (
    ClusterChangeRequest,
    ClusterCreateRequest,
    ClusterCredentialRequest,
    ClusterSerializer,
    TierChangeRequest,
    TierCreateRequest,
    TierSerializer,
)
from tenants import selectors, services
from tenants.models import Cluster, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resource:
    """What the endpoints of tiers and those of clusters differ in. ``reader`` is who asks, if that one may read."""

    plural: str
    locked: Callable[[str], object]
    serializer: type[Serializer[Any]]
    creation: type[Serializer[Any]]
    alteration: type[Serializer[Any]]
    reader: Callable[[Request], Actor]
    listed: Callable[[Actor], Iterable[Tier] | Iterable[Cluster]]
    named: Callable[[Actor, str], Tier | Cluster]
    create: Callable[..., Tier | Cluster]
    change: Callable[..., Tier | Cluster]
    delete: Callable[..., None]


_TIERS = _Resource(
    plural="tiers",
    locked=lambda name: Tier.objects.select_for_update(no_key=True).filter(name=name).first(),
    serializer=TierSerializer,
    creation=TierCreateRequest,
    alteration=TierChangeRequest,
    reader=api_actor,
    listed=selectors.tiers_offered,
    named=selectors.tier_visible_to,
    create=services.tier_create,
    change=services.tier_change,
    delete=services.tier_delete,
)
_CLUSTERS = _Resource(
    plural="clusters",
    locked=lambda name: Cluster.objects.select_for_update(no_key=True).filter(name=name).first(),
    serializer=ClusterSerializer,
    creation=ClusterCreateRequest,
    alteration=ClusterChangeRequest,
    reader=api_overseer,
    listed=selectors.clusters_all,
    named=selectors.cluster_named,
    create=services.cluster_register,
    change=services.cluster_change,
    delete=services.cluster_delete,
)


class _List(Endpoint):
    resource: ClassVar[_Resource]

    def get(self, request: Request) -> Response:
        """All that the caller may see."""
        resource = self.resource
        return paginated_response(request, resource.listed(resource.reader(request)), resource.serializer)

    def post(self, request: Request) -> Response:
        """Operators make one."""
        actor, resource = api_operator(request), self.resource
        made = resource.create(actor=actor, **self.validated_body(request, resource.creation))
        return created_response(resource.serializer, made, f"/api/v1/{resource.plural}/{made.name}/")


class _Detail(Endpoint):
    conditional = True
    resource: ClassVar[_Resource]

    def get(self, request: Request, name: str) -> Response:
        """One of them."""
        resource = self.resource
        return Response(resource.serializer(resource.named(resource.reader(request), name)).data)

    def patch(self, request: Request, name: str) -> Response:
        """Operators change it."""
        actor, resource = api_operator(request), self.resource
        changes = self.validated_body(request, resource.alteration, partial=True)
        with self.unchanged_since(request, lambda: self.resource.locked(name)):
            changed = resource.change(actor=actor, name=name, **changes)
        return Response(resource.serializer(changed).data)

    def delete(self, request: Request, name: str) -> Response:
        """Operators delete it, where nothing needs it."""
        actor = api_operator(request)
        with self.unchanged_since(request, lambda: self.resource.locked(name)):
            self.resource.delete(actor=actor, name=name)
        return Response(status=204)


@extend_schema_view(
    get=extend_schema(
        operation_id="listTiers",
        summary="List the tiers on offer",
        description="Operators see withdrawn ones too.",
        responses={200: page_schema(TierSerializer)},
    ),
    post=extend_schema(
        operation_id="createTier",
        summary="Create a tier (operators)",
        description="What its workspaces may use, and what they are fenced by.",
        request=TierCreateRequest,
        responses={201: TierSerializer},
    ),
)
class TierList(_List):
    """The tiers that workspaces may have."""

    resource = _TIERS


@extend_schema_view(
    get=extend_schema(
        operation_id="getTier",
        summary="Read a tier",
        description="A withdrawn one only for operators.",
        responses={200: TierSerializer},
    ),
    patch=extend_schema(
        operation_id="changeTier",
        summary="Change a tier; its workspaces follow (operators)",
        description="A worker brings its workspaces to the new quota, limits, network and pod security (GW2).",
        request=TierChangeRequest,
        responses={200: TierSerializer},
    ),
    delete=extend_schema(
        operation_id="deleteTier",
        summary="Delete an unused tier (operators)",
        description="Refused while workspaces have it.",
        request=None,
        responses={204: None},
    ),
)
class TierDetail(_Detail):
    """A tier: what its workspaces may use, and what they are fenced by."""

    resource = _TIERS


@extend_schema_view(
    get=extend_schema(
        operation_id="listClusters",
        summary="List clusters (operators)",
        description="Without credentials.",
        responses={200: page_schema(ClusterSerializer)},
    ),
    post=extend_schema(
        operation_id="registerCluster",
        summary="Register a cluster by its kubeconfig (operators)",
        description="The credential is encrypted and never shown again.",
        request=ClusterCreateRequest,
        responses={201: ClusterSerializer},
    ),
)
class ClusterList(_List):
    """The clusters that workspaces can be made on."""

    resource = _CLUSTERS


@extend_schema_view(
    get=extend_schema(
        operation_id="getCluster",
        summary="Read a cluster (operators)",
        description="Without its credential.",
        responses={200: ClusterSerializer},
    ),
    patch=extend_schema(
        operation_id="changeCluster",
        summary="Change a cluster (operators)",
        description="Another server or CA wipes the stored credential, which would be sent to the new host otherwise.",
        request=ClusterChangeRequest,
        responses={200: ClusterSerializer},
    ),
    delete=extend_schema(
        operation_id="deleteCluster",
        summary="Forget a cluster without workspaces (operators)",
        description="Nothing on it is touched.",
        request=None,
        responses={204: None},
    ),
)
class ClusterDetail(_Detail):
    """A registered cluster."""

    settable = tuple(name for name in ClusterChangeRequest().get_fields() if name in ClusterSerializer.Meta.fields)
    resource = _CLUSTERS


class ClusterCredential(Endpoint):
    """The credential that the gateway reaches a cluster by."""

    @extend_schema(
        operation_id="rotateClusterCredential",
        summary="Rotate the gateway's credential of a cluster (operators)",
        description="It is tried first: the same cluster, and the rights of the gateway's role. Then the old one is wiped.",
        request=ClusterCredentialRequest,
        responses={200: ClusterSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Encrypted, and never shown again."""
        actor = api_operator(request)
        body = self.validated_body(request, ClusterCredentialRequest)
        rotated = services.cluster_credential_rotate(actor=actor, name=name, **body)
        return Response(ClusterSerializer(rotated).data)
