"""Rights: explained decisions, what would allow a request, who can do a thing, what a change would change, whom a tenant has let in."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from access.policies import policies_of, policy_end
from kube.logicalclusters import is_valid, tenant_of
from kube.rbac import Attributes
from portal.api import serializers as shapes
from portal.api.endpoint import Endpoint, listed, page
from portal.api.permissions import api_actor, require_tenant, token_tenant
from portal.explain import explain_request
from portal.inquiries import what_if, who_can


class Explain(Endpoint):
    """AZ11."""

    @extend_schema(
        operation_id="explainAccess",
        summary="Explain a decision without sending the request",
        description="Operators about anybody, admins of a tenant about its users, everybody about themselves.",
        request=shapes.ExplainBody,
        responses={200: shapes.ExplainAnswer},
    )
    def post(self, request: Request) -> Response:
        """What was resolved, what was decided, by which step and rule."""
        found = explain_request(**_arguments(request, self.body(request, shapes.ExplainBody)))
        info = found.resolved
        words = {"allow": "allow", "deny": "deny", "pass": "no opinion"}
        body = {
            "resolved": {
                "tenant": info.tenant,
                "cluster": info.cluster,
                "verb": info.verb,
                "apiGroup": info.group,
                "apiVersion": info.version,
                "namespace": info.namespace,
                "resource": info.resource,
                "subresource": info.subresource,
                "name": info.name,
                "path": info.path,
            },
            "decision": "allow" if found.allowed else "deny",
            "decidedBy": found.decided_by,
            "reason": found.reason,
            "trace": [
                {"step": step.name, "decision": words[step.verdict], "reason": step.reason, "rule": step.rule}
                for step in found.steps
            ],
        }
        return Response(body)


class WouldAllow(Endpoint):
    """AZ11."""

    @extend_schema(
        operation_id="whatWouldAllow",
        summary="The smallest grants that would allow a refused request, for those who may make them",
        request=shapes.ExplainBody,
        responses={200: listed(shapes.RemedyAnswer)},
    )
    def post(self, request: Request) -> Response:
        """Nothing for what is allowed, or for whoever may not grant it."""
        found = explain_request(**_arguments(request, self.body(request, shapes.ExplainBody)))
        return page(request, [way.remedy for way in found.allowing], shapes.RemedyAnswer)


class WhoCan(Endpoint):
    """AZ11."""

    @extend_schema(
        operation_id="whoCan",
        summary="Every subject that may do a thing, with the path by which",
        request=shapes.WhoCanBody,
        responses={200: listed(shapes.HolderAnswer)},
    )
    def post(self, request: Request) -> Response:
        """Operators anywhere, admins in their tenant's space."""
        data = _question(self, request, shapes.WhoCanBody)
        path = data["path"]
        if path:
            attributes = Attributes(data["verb"], path=path, is_resource=False)
        else:
            part = data["subresource"]
            resource = f"{data['resource']}/{part}" if part else data["resource"]
            attributes = Attributes(data["verb"], data["group"], resource, part, data["namespace"], data["name"])
        found = who_can(actor=api_actor(request), cluster=data["cluster"], attributes=attributes)
        return page(request, found, shapes.HolderAnswer)


class WhatIf(Endpoint):
    """AZ11."""

    @extend_schema(
        operation_id="whatIf",
        summary="Who gains and loses what by a role, binding or policy, before it is saved",
        request=shapes.WhatIfBody,
        responses={200: listed(shapes.EffectAnswer)},
    )
    def post(self, request: Request) -> Response:
        """A dry run: nothing is kept."""
        data = _question(self, request, shapes.WhatIfBody)
        found = what_if(
            actor=api_actor(request), cluster=data["cluster"], manifest=data["manifest"], delete=data["delete"]
        )
        return page(request, found, shapes.EffectAnswer)


class Policies(Endpoint):
    """AZ7."""

    @extend_schema(
        operation_id="listPolicies",
        summary="List whom a tenant has let in",
        responses={200: listed(shapes.PolicyAnswer)},
    )
    def get(self, request: Request, name: str) -> Response:
        """Its policies, by name."""
        require_tenant(request, name)
        return page(request, policies_of(api_actor(request), name), shapes.PolicyAnswer)


class OnePolicy(Endpoint):
    """AZ7."""

    @extend_schema(operation_id="endPolicy", summary="End a policy", request=None, responses={204: None})
    def delete(self, request: Request, name: str, policy: str) -> Response:
        """Whom it let in is out with the next request."""
        require_tenant(request, name)
        policy_end(actor=api_actor(request), tenant=name, name=policy)
        return Response(status=204)


def _arguments(request: Request, data: dict[str, Any]) -> dict[str, Any]:
    """A checked ``ExplainBody`` as the arguments of ``explain_request``."""
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
    }


def _question(endpoint: Endpoint, request: Request, shape: type[Serializer[Any]]) -> dict[str, Any]:
    """A checked body about a logical cluster. A token of one tenant knows of no other."""
    data = endpoint.body(request, shape)
    cluster = data["cluster"]
    if token_tenant(request):
        require_tenant(request, tenant_of(cluster) if is_valid(cluster) else cluster)
    return data
