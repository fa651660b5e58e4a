"""Tiers and clusters: everybody may choose a tier, operators make them and the clusters."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api.endpoint import Endpoint, created_response, page_schema, paginated_response
from portal.api.permissions import api_actor, api_operator
from portal.api.serializers.platform import (
    ClusterChangeRequest,
    ClusterCreateRequest,
    ClusterSerializer,
    TierChangeRequest,
    TierCreateRequest,
    TierSerializer,
)
from tenants import selectors, services


class TierList(Endpoint):
    """All tiers."""

    @extend_schema(
        operation_id="listTiers", summary="List the tiers on offer", responses={200: page_schema(TierSerializer)}
    )
    def get(self, request: Request) -> Response:
        """Operators see withdrawn ones too."""
        return paginated_response(request, selectors.tiers_offered(api_actor(request)), TierSerializer)

    @extend_schema(
        operation_id="createTier",
        summary="Create a tier (operators)",
        request=TierCreateRequest,
        responses={201: TierSerializer},
    )
    def post(self, request: Request) -> Response:
        """What its workspaces may use, and what they are fenced by."""
        actor = api_operator(request)
        made = services.tier_create(actor=actor, **self.validated_body(request, TierCreateRequest))
        return created_response(TierSerializer, made, f"/api/v1/tiers/{made.name}/")


class TierDetail(Endpoint):
    """A tier."""

    @extend_schema(operation_id="getTier", summary="Read a tier", responses={200: TierSerializer})
    def get(self, request: Request, name: str) -> Response:
        """A withdrawn one only for operators."""
        return Response(TierSerializer(selectors.tier_visible_to(api_actor(request), name)).data)

    @extend_schema(
        operation_id="changeTier",
        summary="Change a tier; its workspaces follow (operators)",
        request=TierChangeRequest,
        responses={200: TierSerializer},
    )
    def patch(self, request: Request, name: str) -> Response:
        """A worker brings its workspaces to the new quota, limits, network and pod security (GW2)."""
        actor = api_operator(request)
        changed = services.tier_change(
            actor=actor, name=name, **self.validated_body(request, TierChangeRequest, partial=True)
        )
        return Response(TierSerializer(changed).data)

    @extend_schema(
        operation_id="deleteTier", summary="Delete an unused tier (operators)", request=None, responses={204: None}
    )
    def delete(self, request: Request, name: str) -> Response:
        """Refused while workspaces have it."""
        services.tier_delete(actor=api_operator(request), name=name)
        return Response(status=204)


class ClusterList(Endpoint):
    """The clusters that workspaces can be made on."""

    @extend_schema(
        operation_id="listClusters",
        summary="List clusters (operators)",
        responses={200: page_schema(ClusterSerializer)},
    )
    def get(self, request: Request) -> Response:
        """Without credentials."""
        return paginated_response(request, selectors.clusters_all(api_operator(request)), ClusterSerializer)

    @extend_schema(
        operation_id="registerCluster",
        summary="Register a cluster by its kubeconfig (operators)",
        request=ClusterCreateRequest,
        responses={201: ClusterSerializer},
    )
    def post(self, request: Request) -> Response:
        """The credential is encrypted and never shown again."""
        actor = api_operator(request)
        made = services.cluster_register(actor=actor, **self.validated_body(request, ClusterCreateRequest))
        return created_response(ClusterSerializer, made, f"/api/v1/clusters/{made.name}/")


class ClusterDetail(Endpoint):
    """A registered cluster."""

    @extend_schema(operation_id="getCluster", summary="Read a cluster (operators)", responses={200: ClusterSerializer})
    def get(self, request: Request, name: str) -> Response:
        """Without its credential."""
        return Response(ClusterSerializer(selectors.cluster_named(api_operator(request), name)).data)

    @extend_schema(
        operation_id="changeCluster",
        summary="Change a cluster (operators)",
        description="Another server or CA wipes the stored credential, which would be sent to the new host otherwise.",
        request=ClusterChangeRequest,
        responses={200: ClusterSerializer},
    )
    def patch(self, request: Request, name: str) -> Response:
        """Its addresses, role, default."""
        actor = api_operator(request)
        changed = services.cluster_change(
            actor=actor, name=name, **self.validated_body(request, ClusterChangeRequest, partial=True)
        )
        return Response(ClusterSerializer(changed).data)

    @extend_schema(
        operation_id="deleteCluster",
        summary="Forget a cluster without workspaces (operators)",
        request=None,
        responses={204: None},
    )
    def delete(self, request: Request, name: str) -> Response:
        """Nothing on it is touched."""
        services.cluster_delete(actor=api_operator(request), name=name)
        return Response(status=204)
