"""Rules about what the objects of tenants may be."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from kube.policies.policy import LISTS, RULES
from portal.api.serializers.base import RequestSerializer
from tenants.policies import Enforcement


class PoliciesSerializer(RequestSerializer):
    """Rules by name; what is not named is as it is without, ``null`` leaves the choice to the tenant."""

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """One list for each rule."""
        return {
            name: serializers.ListField(
                child=serializers.CharField(max_length=320),
                required=False,
                allow_null=name not in LISTS,
                max_length=200,
            )
            for name in RULES
        }

    def to_representation(self, instance: Any) -> dict[str, Any]:
        """The rules that are said, and no other."""
        return dict(instance)


class PoliciesOfTierSerializer(serializers.Serializer[Any]):
    """What holds in the namespaces of a tier; an empty name means those that have none."""

    tier = serializers.CharField()
    policies = PoliciesSerializer()


class EnforcementSerializer(serializers.Serializer[Any]):
    """Where the policies are enforced on a cluster: as it has asked, whatever is configured there."""

    cluster = serializers.CharField()
    enforced = serializers.ChoiceField(
        choices=list(Enforcement),
        help_text="`always` where objects are stored here, `webhook` where the cluster has asked within a day, else `door`",
    )
    last_asked = serializers.DateTimeField(
        allow_null=True, help_text="when the cluster last asked what may be written, within a minute; null: never"
    )


class TenantPoliciesSerializer(serializers.Serializer[Any]):
    """A tenant's own rules, and what they come to with those of the tiers that it has."""

    policies = PoliciesSerializer()
    effective = PoliciesOfTierSerializer(many=True)
    clusters = EnforcementSerializer(many=True)


class OffenderSerializer(serializers.Serializer[Any]):
    """An object that the rules would refuse."""

    space = serializers.CharField()
    namespace = serializers.CharField()
    kind = serializers.CharField()
    name = serializers.CharField()
    rule = serializers.CharField(source="violation.rule")
    field = serializers.CharField(source="violation.field")
    message = serializers.CharField(source="violation.message")


class TrialSerializer(serializers.Serializer[Any]):
    """What is there and would be refused; what was not looked at, each with the reason."""

    offenders = OffenderSerializer(many=True)
    unseen = serializers.ListField(
        child=serializers.CharField(), help_text="namespaces, kinds and tenants that were not looked at, and why"
    )
    is_cut = serializers.BooleanField(help_text="whether there are more")


class PoliciesRequest(RequestSerializer):
    """Rules, all at once."""

    policies = PoliciesSerializer()
