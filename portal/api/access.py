"""Rights: explained decisions, suggested grants, who can, what if, policies, and inspected tokens (AZ7, AZ11)."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.debug import sensitive_variables
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from access.policies import policies_page, policy_end
from kube.authorization.rbac import Attributes
from kube.requests.logicalclusters import is_valid, tenant_of
from portal.access.dryruns import Doors
from portal.access.explanation import explain_request
from portal.access.queries import change_explained, sent, what_if, who_can
from portal.access.tokeninspection import inspect_identity
from portal.api.authentication import SessionAuthentication
from portal.api.endpoint import (
    AFTER,
    LIMIT,
    Endpoint,
    page_parameters,
    page_schema,
    paginated_response,
    secret_response,
)
from portal.api.permissions import api_actor, require_tenant, token_tenant
from portal.api.serializers.access import (
    ExplainRequest,
    ExplanationSerializer,
    HolderSerializer,
    InspectionSerializer,
    InspectRequest,
    PolicySerializer,
    SuggestedGrantSerializer,
    WhatIfRequest,
    WhatIfSerializer,
    WhoCanRequest,
)
from portal.contents.door import door_of
from portal.database.scopes import everything


class Explain(Endpoint):
    """A decision and every step to it (AZ11)."""

    read_methods = frozenset({"POST", "OPTIONS"})

    @extend_schema(
        operation_id="explainAccess",
        summary="Explain a decision without sending the request",
        description="Operators about anybody, admins of a tenant about its users, everybody about themselves.",
        request=ExplainRequest,
        responses={200: ExplanationSerializer},
    )
    def post(self, request: Request) -> Response:
        """What was resolved, what was decided, by which step and rule."""
        found = explain_request(**_explain_arguments(request, self.validated_body(request, ExplainRequest)))
        return Response(ExplanationSerializer(found).data)


class SuggestedGrants(Endpoint):
    """What would allow a request (AZ11)."""

    read_methods = frozenset({"POST", "OPTIONS"})

    @extend_schema(
        operation_id="whatWouldAllow",
        summary="The smallest grants that would allow a refused request, for those who may make them",
        request=ExplainRequest,
        responses={200: page_schema(SuggestedGrantSerializer)},
    )
    def post(self, request: Request) -> Response:
        """Nothing for what is allowed, or for whoever may not grant it."""
        found = explain_request(**_explain_arguments(request, self.validated_body(request, ExplainRequest)))
        return paginated_response(request, [grant.recommendation for grant in found.allowing], SuggestedGrantSerializer)


class WhoCan(Endpoint):
    """Who holds a right (AZ11)."""

    read_methods = frozenset({"POST", "OPTIONS"})

    @extend_schema(
        operation_id="whoCan",
        summary="Every subject that may do a thing, with the path by which",
        request=WhoCanRequest,
        responses={200: page_schema(HolderSerializer)},
    )
    def post(self, request: Request) -> Response:
        """Operators anywhere, admins in their tenant's space."""
        data = _validated_question(self, request, WhoCanRequest)
        path = data["path"]
        if path:
            attributes = Attributes(data["verb"], path=path, is_resource=False)
        else:
            part = data["subresource"]
            resource = f"{data['resource']}/{part}" if part else data["resource"]
            attributes = Attributes(data["verb"], data["group"], resource, part, data["namespace"], data["name"])
        found = who_can(actor=api_actor(request), cluster=data["cluster"], attributes=attributes)
        return paginated_response(request, found, HolderSerializer)


class WhatIf(Endpoint):
    """What a change of rights would do (AZ11)."""

    read_methods = frozenset({"POST", "OPTIONS"})

    @extend_schema(
        operation_id="whatIf",
        summary="Who gains and loses what by a role, binding or policy, before it is saved",
        request=WhatIfRequest,
        description="And whether the API server would take it from whoever asks: each step, that of the admission too.",
        responses={200: WhatIfSerializer},
    )
    def post(self, request: Request) -> Response:
        """A dry run: nothing is kept."""
        change = {"actor": api_actor(request), **_validated_question(self, request, WhatIfRequest)}
        found = {"results": what_if(**change), "next": None}
        explanation = change_explained(**change, doors=_doors(request), now=timezone.now())
        return Response(WhatIfSerializer({**found, "explanation": explanation}).data)


class Inspect(Endpoint):
    """The identity inspector."""

    read_methods = frozenset({"POST", "OPTIONS"})

    @extend_schema(
        operation_id="inspectIdentity",
        summary="Inspect a certificate, subject, token-file line or token",
        description="Who it would be at the API server, by which rule, and why not by the others. Nothing is verified, "
        "stored or logged.",
        request=InspectRequest,
        responses={200: InspectionSerializer},
    )
    @method_decorator(sensitive_variables())
    def post(self, request: Request) -> Response:
        """Raises ``ServiceUnavailable`` while the API server's flags cannot be read."""
        data = self.validated_body(request, InspectRequest)
        return secret_response(InspectionSerializer(inspect_identity(data["text"])).data)


class PolicyList(Endpoint):
    """Whom a tenant has let in (AZ7)."""

    query_parameters = frozenset({"after", "limit"})

    @extend_schema(
        operation_id="listPolicies",
        summary="List whom a tenant has let in",
        parameters=[AFTER, LIMIT],
        responses={200: page_schema(PolicySerializer)},
    )
    def get(self, request: Request, name: str) -> Response:
        """Its policies, by name."""
        require_tenant(request, name)
        after, limit = page_parameters(request)
        with everything():  # whether somebody else's tenant still is the one that was let in
            found = policies_page(api_actor(request), name, after=after[:253], limit=limit)
        return paginated_response(request, found.rows, PolicySerializer, found.next)


class PolicyDetail(Endpoint):
    """A policy by which a tenant has let somebody in (AZ7)."""

    @extend_schema(operation_id="endPolicy", summary="End a policy", request=None, responses={204: None})
    def delete(self, request: Request, name: str, policy: str) -> Response:
        """Whom it let in is out with the next request."""
        require_tenant(request, name)
        policy_end(actor=api_actor(request), tenant=name, name=policy)
        return Response(status=204)


def _explain_arguments(request: Request, data: dict[str, Any]) -> dict[str, Any]:
    """A checked ``ExplainRequest`` as the arguments of ``explain_request``."""
    user = data["user"]
    tenant = user["tenant"] or token_tenant(request)
    require_tenant(request, tenant)
    return {
        "actor": api_actor(request),
        "name": user["name"],
        "groups": user["groups"],
        "tenant": tenant,
        "extra": user["extra"],
        "method": data["method"].upper(),
        "path": data["path"],
        "cluster": data["cluster"],
        "sent": None if data["manifest"] is None else sent(data["manifest"], data["patch_type"]),
        "doors": _doors(request),
        "now": timezone.now(),
    }


def _doors(request: Request) -> Doors | None:
    """The way of a session into what it can look into; other credentials are the portal's alone."""
    by_session = isinstance(request.successful_authenticator, SessionAuthentication)
    return partial(door_of, request._request) if by_session else None  # noqa: SLF001 - Django's own, as views have it


def _validated_question(
    endpoint: Endpoint, request: Request, serializer_class: type[Serializer[Any]]
) -> dict[str, Any]:
    """A checked body about a logical cluster. A token of one tenant knows of no other."""
    data = endpoint.validated_body(request, serializer_class)
    cluster = data["cluster"]
    if token_tenant(request):
        require_tenant(request, tenant_of(cluster) if is_valid(cluster) else cluster)
    return data
