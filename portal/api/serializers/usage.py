"""Hours of use, prices and bills."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from kube.quota.charges import Bill, Price
from portal.api.serializers.base import RequestSerializer
from tenants.models import UsageHour
from tenants.usage import MEASURES


class UsageHourSerializer(serializers.ModelSerializer[UsageHour]):
    """One hour; what was not counted in time is `null`. `used` and `hard` are in cores, bytes and pieces."""

    used = serializers.DictField(child=serializers.FloatField())
    hard = serializers.DictField(child=serializers.FloatField())

    class Meta:
        model = UsageHour
        fields = ("hour", "namespace", *MEASURES, "used", "hard")
        read_only_fields = fields


class PriceSerializer(serializers.Serializer[Price]):
    """So much money for every `per` units; of what was there, for an hour of it."""

    measure = serializers.CharField()
    amount = serializers.DecimalField(max_digits=16, decimal_places=6)
    per = serializers.IntegerField()


class PriceRequest(RequestSerializer):
    """What ``per`` units of a measure cost."""

    measure = serializers.CharField(max_length=253)
    amount = serializers.DecimalField(max_digits=16, decimal_places=6, min_value=0)
    per = serializers.IntegerField(min_value=1, max_value=2**62, required=False, default=1)


class PricesRequest(RequestSerializer):
    """The prices of all measures, in place of those before."""

    prices = serializers.ListField(child=PriceRequest(), max_length=200)


class BillLineSerializer(serializers.Serializer[Any]):
    """What one measure costs."""

    measure = serializers.CharField(source="price.measure")
    quantity = serializers.CharField()
    amount = serializers.CharField(source="price.amount")
    per = serializers.IntegerField(source="price.per")
    cost = serializers.CharField()


class BillSerializer(serializers.Serializer[Bill]):
    """What a tenant's month costs; numbers are texts, so that none is rounded on its way."""

    tenant = serializers.CharField()
    lines = BillLineSerializer(many=True)
    total = serializers.CharField()
