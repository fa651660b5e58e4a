"""What tenants and their workspaces used, hour by hour (AD7)."""

from __future__ import annotations

from datetime import date

from django.db import models
from django.utils.translation import gettext_lazy as _


class UsageHour(models.Model):
    """One hour of a tenant, or with ``namespace`` of a workspace; it outlives both.

    A tenant's first ``hour`` is the moment at which it began: what bore its name earlier in that hour has another row.
    ``requests``, ``refused`` and ``credentials`` happened within the hour. The others are as they were at its end, empty
    for an hour that was counted later; ``objects_placed`` are those on clusters that a quota counts. ``used`` and ``hard`` are
    the quota's, as numbers: cores, bytes, pieces.
    """

    tenant = models.CharField(max_length=63)
    namespace = models.CharField(max_length=63, blank=True)
    hour = models.DateTimeField()
    requests = models.BigIntegerField(default=0)
    refused = models.BigIntegerField(default=0)
    credentials = models.IntegerField(_("credentials issued"), default=0)
    objects_stored = models.BigIntegerField(_("objects"), null=True)
    objects_placed = models.BigIntegerField(_("objects on clusters"), null=True)
    bytes_stored = models.BigIntegerField(_("bytes of objects"), null=True)
    streams = models.IntegerField(_("open streams"), null=True)
    used = models.JSONField(default=dict)
    hard = models.JSONField(default=dict)

    class Meta:
        db_table = "usage_hours"
        verbose_name = _("hour of use")
        verbose_name_plural = _("hours of use")
        constraints = [models.UniqueConstraint(fields=["tenant", "namespace", "hour"], name="usage_hour_unique")]
        indexes = [models.Index(fields=["hour"], name="usage_hour_time")]

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace} {self.hour:%Y-%m-%dT%HZ}"


class UsagePrice(models.Model):
    """``amount`` for every ``per`` units of a measure: of ``tenants.usage.MEASURES``, or a name of the quota.

    It holds for the month that begins at ``since``, and later ones.
    """

    measure = models.CharField(max_length=253, primary_key=True)
    amount = models.DecimalField(max_digits=16, decimal_places=6)
    per = models.PositiveBigIntegerField(default=1)
    since = models.DateField(_("from the month of"), default=date(1970, 1, 1), editable=False)

    class Meta:
        db_table = "usage_prices"
        verbose_name = _("price")
        verbose_name_plural = _("prices")
        constraints = [
            models.CheckConstraint(condition=models.Q(amount__gte=0), name="usage_price_amount"),
            models.CheckConstraint(condition=models.Q(per__gte=1), name="usage_price_per"),
        ]

    def __str__(self) -> str:
        return f"{self.measure}: {self.amount} / {self.per}"


class PastPrice(models.Model):
    """A price of the months from ``since`` on, before that of ``until``: their bills stay as they were."""

    measure = models.CharField(max_length=253)
    amount = models.DecimalField(max_digits=16, decimal_places=6)
    per = models.PositiveBigIntegerField()
    since = models.DateField()
    until = models.DateField()

    class Meta:
        db_table = "past_prices"
        verbose_name = _("earlier price")
        verbose_name_plural = _("earlier prices")
        constraints = [
            models.UniqueConstraint(fields=["measure", "since"], name="past_price_unique"),
            models.CheckConstraint(condition=models.Q(until__gt=models.F("since")), name="past_price_months"),
        ]

    def __str__(self) -> str:
        return f"{self.measure}: {self.amount} / {self.per}, {self.since:%Y-%m} to {self.until:%Y-%m}"
