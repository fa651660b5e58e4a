"""All that the database keeps sealed, found by the models: binary columns whose names begin with ``sealed`` (GW12)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.apps import apps
from django.db.models import BinaryField, Model

from tenants.clusters import encryption
from tenants.models import RecordingChunk

_NEVER_CHANGED: Final = {RecordingChunk}
"""Whose rows go by themselves, within ``RECORDINGS_KEEP_DAYS``; nobody has the right to change one."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """What one row keeps; ``name`` says which."""

    model: type[Model]
    column: str
    key: Any
    content: bytes
    name: str


def columns() -> list[tuple[type[Model], str]]:
    """Model and field of everything sealed."""
    return [
        (model, field.name)
        for model in apps.get_models()
        for field in model._meta.local_fields  # noqa: SLF001 - Django's public API
        if isinstance(field, BinaryField) and field.name.startswith("sealed")
    ]


def lasting() -> Iterator[Sealed]:
    """All that stays sealed until somebody takes it away."""
    for model, column in columns():
        if model not in _NEVER_CHANGED:
            kind = model._meta.verbose_name  # noqa: SLF001 - Django's public API
            rows = model._default_manager.exclude(**{column: None}).order_by("pk")  # noqa: SLF001 - Django documents it
            for row in rows.iterator(chunk_size=100):
                yield Sealed(model, column, row.pk, bytes(getattr(row, column)), f"{kind} {row}")


def reseal() -> int:
    """All that lasts under the first key; how much was not. What none of the keys opens stays as it is."""
    count = 0
    for each in lasting():
        if encryption.is_behind(each.content):
            # In the place of what was read alone: somebody may have written since.
            rows = each.model._default_manager.filter(pk=each.key, **{each.column: each.content})  # noqa: SLF001
            rows.update(**{each.column: encryption.rotate(each.content)})
            count += 1
    return count


def recordings_behind() -> set[UUID]:
    """Recordings that only an older key opens."""
    chunks = RecordingChunk.objects.order_by("recording_id", "number")
    return {chunk.recording_id for chunk in chunks.iterator(chunk_size=100) if encryption.is_behind(chunk.sealed)}
