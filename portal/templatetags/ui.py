"""Tags for the components: icons, times, meters, states in words."""

from __future__ import annotations

from datetime import datetime

from django import template
from django.templatetags.static import static
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from portal.pages import labels

register = template.Library()

_UNITS = ((365 * 86400, "year"), (30 * 86400, "month"), (86400, "day"), (3600, "hour"), (60, "minute"))


@register.simple_tag
def icon(name: str, *, large: bool = False, label: str = "") -> SafeString:
    """An icon of the sprite; silent to screen readers unless it has a label of its own."""
    size = "icon icon--lg" if large else "icon"
    if label:
        return format_html(
            '<svg class="{}" role="img" aria-label="{}"><use href="{}#{}"/></svg>',
            size,
            label,
            static("icons.svg"),
            name,
        )
    return format_html('<svg class="{}" aria-hidden="true"><use href="{}#{}"/></svg>', size, static("icons.svg"), name)


@register.simple_block_tag
def table(content: str, label: str) -> SafeString:
    """A table of ``thead`` and ``tbody``: it scrolls by itself where it is wide, and its rows are cards on a phone."""
    return format_html(
        '<div class="table-wrap" tabindex="0" role="group" aria-label="{}"><table class="table table--cards">{}</table></div>',
        label,
        content,
    )


def relative(value: datetime, now: datetime) -> str:
    """A time as people say it: ``3 minutes ago``, ``in 2 hours``, ``just now``."""
    seconds = (now - value).total_seconds()
    for length, name in _UNITS:
        # What is to come is rounded, or two hours would read as one a moment after they began.
        count = int(seconds // length if seconds > 0 else -seconds / length + 0.5 if -seconds >= length else 0)
        if count:
            text = f"{count} {name}{'' if count == 1 else 's'}"
            return f"{text} ago" if seconds > 0 else f"in {text}"
    return "just now" if seconds >= 0 else "in under a minute"


@register.simple_tag
def ago(value: datetime | None, empty: str = "never") -> SafeString | str:
    """A relative time that carries the absolute one as its title."""
    if value is None:
        return empty
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        value.isoformat(),
        value.strftime("%Y-%m-%d %H:%M:%S %Z"),
        relative(value, timezone.now()),
    )


@register.filter
def initials(email: str) -> str:
    """Two letters for an avatar."""
    return (
        "".join(part[0] for part in email.split("@", maxsplit=1)[0].replace("_", ".").split(".") if part)[:2].upper()
        or "?"
    )


for label in (
    labels.workspace_state,
    labels.tenant_state,
    labels.operation_state,
    labels.outcome_state,
    labels.step_name,
    labels.action_name,
    labels.target_name,
    labels.resource_name,
):
    register.filter(label.__name__, label)
