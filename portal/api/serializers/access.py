"""Decisions explained, who can do a thing, what a change would change, policies, and inspected tokens (AZ7, AZ11).

Members that name parts of a Kubernetes request are written as Kubernetes writes them (``apiGroup``).
"""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from gateway.server.judging import PATCH_TYPES, STRATEGIC
from kube.authentication.inspection import TEXT_MAX
from kube.authorization.whatif import Effect
from portal.access.explanation import Explanation, Step
from portal.api.serializers.base import RequestSerializer


class ExplainUserRequest(RequestSerializer):
    """A user as the API server would see them."""

    name = serializers.CharField(max_length=253)
    groups = serializers.ListField(
        child=serializers.CharField(max_length=253), required=False, default=list, max_length=100
    )
    tenant = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)
    extra = serializers.DictField(
        child=serializers.ListField(child=serializers.CharField(max_length=1024), max_length=100),
        required=False,
        default=dict,
    )


class ExplainRequest(RequestSerializer):
    """A request that somebody might send."""

    user = ExplainUserRequest()
    method = serializers.CharField(max_length=7, required=False, default="GET")
    path = serializers.CharField(max_length=2048, trim_whitespace=False)
    cluster = serializers.CharField(max_length=512, required=False, default="", allow_blank=True)
    manifest = serializers.JSONField(
        required=False,
        allow_null=True,
        default=None,
        help_text="What is sent: the object of a POST or PUT, or the changes of a PATCH. Then it is said too what the "
        "admission makes of it.",
    )
    patchType = serializers.ChoiceField(
        choices=list(PATCH_TYPES),
        source="patch_type",
        required=False,
        default=STRATEGIC,
        help_text="Of which type the changes of a PATCH are, as kubectl patch --type has it.",
    )


class InspectRequest(RequestSerializer):
    """What somebody might show to the API server."""

    text = serializers.CharField(max_length=TEXT_MAX, trim_whitespace=False)


class WhoCanRequest(RequestSerializer):
    """A thing that somebody might do: on a resource, or on a path that is none."""

    cluster = serializers.CharField(max_length=512)
    verb = serializers.CharField(max_length=63)
    group = serializers.CharField(max_length=253, required=False, default="", allow_blank=True)
    resource = serializers.CharField(max_length=253, required=False, default="", allow_blank=True)
    subresource = serializers.CharField(max_length=253, required=False, default="", allow_blank=True)
    namespace = serializers.CharField(max_length=63, required=False, default="", allow_blank=True)
    name = serializers.CharField(max_length=253, required=False, default="", allow_blank=True)
    path = serializers.CharField(max_length=2048, required=False, default="", allow_blank=True)


class WhatIfRequest(RequestSerializer):
    """A role, a binding or a policy as it would be written, or deleted."""

    cluster = serializers.CharField(max_length=512)
    manifest = serializers.DictField()
    delete = serializers.BooleanField(required=False, default=False)


class RequestInfoSerializer(serializers.Serializer[Any]):
    """What a request means once it is resolved."""

    tenant = serializers.CharField()
    cluster = serializers.CharField()
    verb = serializers.CharField()
    apiGroup = serializers.CharField(source="group")
    apiVersion = serializers.CharField(source="version")
    namespace = serializers.CharField()
    resource = serializers.CharField()
    subresource = serializers.CharField()
    name = serializers.CharField()
    path = serializers.CharField()


class TraceStepSerializer(serializers.Serializer[Step]):
    """One authorizer's decision."""

    step = serializers.CharField(source="name")
    decision = serializers.CharField()
    reason = serializers.CharField()
    rule = serializers.CharField()


class ExplanationSerializer(serializers.Serializer[Explanation]):
    """A decision with every step."""

    resolved = RequestInfoSerializer()
    decision = serializers.ChoiceField(choices=["allow", "deny"])
    decidedBy = serializers.CharField(source="decided_by")
    reason = serializers.CharField()
    trace = TraceStepSerializer(many=True, source="steps")


class PrincipalSerializer(serializers.Serializer[Any]):
    """A user, the tenant empty for none."""

    user = serializers.CharField()
    groups = serializers.ListField(child=serializers.CharField())
    tenant = serializers.CharField()


class InspectionStepSerializer(serializers.Serializer[Any]):
    """What one rule says of a credential."""

    rule = serializers.CharField()
    matched = serializers.BooleanField()
    reason = serializers.CharField()


class InspectionSerializer(serializers.Serializer[Any]):
    """Who it would be, `null` for nobody, and what each rule says."""

    kind = serializers.CharField()
    identity = PrincipalSerializer(allow_null=True)
    rule = serializers.CharField()
    steps = InspectionStepSerializer(many=True)


class SuggestedGrantSerializer(serializers.Serializer[Any]):
    """Objects that would allow a request."""

    text = serializers.CharField()
    cluster = serializers.CharField()
    objects = serializers.ListField(child=serializers.DictField())
    permissions = serializers.IntegerField(help_text="how many single permissions that hands out")


class HolderSerializer(serializers.Serializer[Any]):
    """Somebody who may."""

    kind = serializers.CharField()
    name = serializers.CharField()
    namespace = serializers.CharField()
    tenant = serializers.CharField()
    path = serializers.ListField(child=serializers.CharField())


class EffectSerializer(serializers.Serializer[Effect]):
    """What somebody gains and loses, as PolicyRules."""

    kind = serializers.CharField()
    name = serializers.CharField()
    tenant = serializers.CharField()
    namespace = serializers.CharField()
    gains = serializers.SerializerMethodField()
    losses = serializers.SerializerMethodField()

    def get_gains(self, effect: Effect) -> list[dict[str, Any]]:
        """The rules that the change gives."""
        return [rule.as_dict() for rule in effect.gains]

    def get_losses(self, effect: Effect) -> list[dict[str, Any]]:
        """The rules that the change takes."""
        return [rule.as_dict() for rule in effect.losses]


class PolicySerializer(serializers.Serializer[Any]):
    """Somebody whom a tenant has let in."""

    name = serializers.CharField()
    spec = serializers.DictField()
    since = serializers.CharField()
    opens = serializers.BooleanField(help_text="false for a policy that is not understood")


class WhatIfSerializer(serializers.Serializer[Any]):
    """What a change does, and how it would be decided if the one who asks made it."""

    results = EffectSerializer(many=True)
    next = serializers.URLField(allow_null=True)
    explanation = ExplanationSerializer()
