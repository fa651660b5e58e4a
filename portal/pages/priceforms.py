"""Prices as people type them: one a line (AD7)."""

from __future__ import annotations

from decimal import Decimal

from django import forms
from django.core.exceptions import ValidationError

from kube.quota.charges import Price
from portal.pages.forms import QuantitiesField


class PricesForm(forms.Form):
    """What is charged for what tenants use."""

    prices = QuantitiesField(
        required=False,
        max_length=16_384,
        help_text="One a line: <code>requests: 0.40 / 1000000</code>, <code>requests.cpu: 0.03</code> (a core and hour).",
    )

    def clean_prices(self) -> list[Price]:
        """The prices; the service checks the measures."""
        found = []
        for measure, text in self.cleaned_data["prices"].items():
            amount, _, per = text.partition("/")
            try:
                found.append(Price(measure, Decimal(amount.strip()), int(per) if per.strip() else 1))
            except (ArithmeticError, ValueError):
                raise ValidationError(f"“{text[:80]}” is not of the form 0.40 / 1000000.") from None
        return found
