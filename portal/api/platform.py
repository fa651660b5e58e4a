"""Tiers and clusters: everybody may choose a tier, operators make them and the clusters."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api import serializers as shapes
from portal.api.endpoint import Endpoint, listed, page
from portal.api.permissions import api_actor, api_operator
from tenants import selectors, services


class Tiers(Endpoint):
    """The collection."""

    @extend_schema(
        operation_id="listTiers", summary="List the tiers on offer", responses={200: listed(shapes.TierAnswer)}
    )
    def get(self, request: Request) -> Response:
        """Operators see withdrawn ones too."""
        return page(request, selectors.tiers_offered(api_actor(request)), shapes.TierAnswer)

    @extend_schema(
        operation_id="createTier",
        summary="Create a tier (operators)",
        request=shapes.NewTierBody,
        responses={201: shapes.TierAnswer},
    )
    def post(self, request: Request) -> Response:
        """A plan."""
        actor = api_operator(request)
        made = services.tier_create(actor=actor, **self.body(request, shapes.NewTierBody))
        return Response(shapes.TierAnswer(made).data, status=201, headers={"Location": f"/api/v1/tiers/{made.name}/"})


class OneTier(Endpoint):
    """One tier."""

    @extend_schema(operation_id="getTier", summary="Read a tier", responses={200: shapes.TierAnswer})
    def get(self, request: Request, name: str) -> Response:
        """A withdrawn one only for operators."""
        return Response(shapes.TierAnswer(selectors.tier_visible_to(api_actor(request), name)).data)

    @extend_schema(
        operation_id="changeTier",
        summary="Change a tier; its workspaces follow (operators)",
        request=shapes.TierFields,
        responses={200: shapes.TierAnswer},
    )
    def patch(self, request: Request, name: str) -> Response:
        """GW2."""
        actor = api_operator(request)
        changed = services.tier_change(actor=actor, name=name, **self.body(request, shapes.TierFields, partial=True))
        return Response(shapes.TierAnswer(changed).data)

    @extend_schema(
        operation_id="deleteTier", summary="Delete an unused tier (operators)", request=None, responses={204: None}
    )
    def delete(self, request: Request, name: str) -> Response:
        """Refused while workspaces have it."""
        services.tier_delete(actor=api_operator(request), name=name)
        return Response(status=204)


class Clusters(Endpoint):
    """The collection."""

    @extend_schema(
        operation_id="listClusters", summary="List clusters (operators)", responses={200: listed(shapes.ClusterAnswer)}
    )
    def get(self, request: Request) -> Response:
        """Without credentials."""
        return page(request, selectors.clusters_all(api_operator(request)), shapes.ClusterAnswer)

    @extend_schema(
        operation_id="registerCluster",
        summary="Register a cluster by its kubeconfig (operators)",
        request=shapes.ClusterBody,
        responses={201: shapes.ClusterAnswer},
    )
    def post(self, request: Request) -> Response:
        """The credential is sealed and never shown again."""
        actor = api_operator(request)
        made = services.cluster_register(actor=actor, **self.body(request, shapes.ClusterBody))
        return Response(
            shapes.ClusterAnswer(made).data, status=201, headers={"Location": f"/api/v1/clusters/{made.name}/"}
        )


class OneCluster(Endpoint):
    """One cluster."""

    @extend_schema(
        operation_id="getCluster", summary="Read a cluster (operators)", responses={200: shapes.ClusterAnswer}
    )
    def get(self, request: Request, name: str) -> Response:
        """Without its credential."""
        return Response(shapes.ClusterAnswer(selectors.cluster_named(api_operator(request), name)).data)

    @extend_schema(
        operation_id="changeCluster",
        summary="Change a cluster (operators)",
        description="Another server or CA wipes the stored credential, which would be sent to the new host otherwise.",
        request=shapes.ClusterChangeBody,
        responses={200: shapes.ClusterAnswer},
    )
    def patch(self, request: Request, name: str) -> Response:
        """Its addresses, role, default."""
        actor = api_operator(request)
        changed = services.cluster_change(actor=actor, name=name, **self.body(request, shapes.ClusterChangeBody))
        return Response(shapes.ClusterAnswer(changed).data)

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
