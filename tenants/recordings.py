"""Reads of recordings: who may see them, and what they hold (GW21)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Q, QuerySet

from audit.recorder import Actor
from kube.requests.status import Conflict, NotFound
from tenants.clusters import encryption
from tenants.models import Membership, Recording, RecordingMode, Role, Workspace
from tenants.rights import require_role


class Unplayable(Conflict):
    """What was kept cannot be opened, or is not what was kept; the text says which, and what helps."""


def recordings_visible_to(actor: Actor) -> QuerySet[Recording]:
    """Recordings, the newest first: of the tenants whose admin the actor is; operators see all.

    Whatever bore a tenant's name before is none of its: its workspaces were others.
    """
    rows = Recording.objects.order_by("-begun_at", "-id")
    if actor.sees_all:
        return rows
    managed = Membership.objects.filter(Membership.as_one_of([Role.OWNER, Role.ADMIN]), user_id=actor.user_id)  # type: ignore[misc]
    workspaces = Workspace.objects.filter(tenant__in=managed.values("tenant_id"))
    return rows.filter(workspace_id__in=workspaces.values("pk"))


def recordings_page(actor: Actor, *, tenant: str = "", after: str = "", limit: int = 50) -> tuple[list[Recording], str]:
    """Some of them, those that began before the one with the ID ``after``, and where the next page goes on.

    ``tenant`` leaves those of tenants with this name.
    """
    rows = recordings_visible_to(actor)
    if tenant:
        rows = rows.filter(tenant=tenant)
    with suppress(ValueError):
        last = rows.filter(pk=UUID(after)).values_list("begun_at", "pk").first() if after else None
        if last is not None:
            began, pk = last
            rows = rows.filter(Q(begun_at__lt=began) | Q(begun_at=began, pk__lt=pk))
    found = list(rows[: limit + 1])
    return found[:limit], str(found[limit - 1].pk) if len(found) > limit else ""


def recording_visible_to(actor: Actor, recording_id: UUID) -> Recording:
    """One of them. Raises ``NotFound``, and ``Forbidden`` for a member of the tenant who is no admin."""
    found = Recording.objects.filter(pk=recording_id).first()
    if found is None or not (actor.sees_all or Workspace.objects.filter(pk=found.workspace_id).exists()):
        raise NotFound("There is no such recording.", kind="recordings", name=str(recording_id))
    if not actor.sees_all:
        workspace = Workspace.objects.get(pk=found.workspace_id)
        require_role(actor, workspace.tenant_id, Role.ADMIN)
    return found


def recording_text(recording: Recording) -> Iterator[str]:
    """The pieces of the file, as they were kept. Raises ``Unplayable``."""
    chunks = recording.chunks.order_by("number").values_list("number", "sealed")
    for expected, (number, sealed) in enumerate(chunks.iterator(chunk_size=4)):
        try:
            head, _, text = encryption.decrypt(sealed).partition("\n")
        except (encryption.DecryptionError, ImproperlyConfigured):
            raise Unplayable(
                "The recording cannot be opened with the configured sealing keys: an operator puts the key of its time "
                "back into TENANTRY_SEALING_KEYS, behind the newer ones."
            ) from None
        if number != expected or head != _place(recording.pk, number):
            raise Unplayable("Pieces of the recording are missing, or are another's: it was changed after it was kept.")
        yield text


def recording_file(recording: Recording) -> bytes:
    """The whole file, proved to be what the audit's event of its end names; asciicast v2.

    Of one that goes on, what there is so far. Raises ``NotFound`` for one without output, ``Unplayable``.
    """
    if recording.mode != RecordingMode.OUTPUT:
        raise NotFound("Nothing that was shown in this session was kept.", kind="recordings", name=str(recording.pk))
    # Each piece for itself: one letter beyond the 16-bit ones makes four bytes of every letter of a text.
    content = b"".join(text.encode() for text in recording_text(recording))
    if recording.ended_at is not None and hashlib.sha256(content).hexdigest() != recording.sha256:
        raise Unplayable("The recording is not what was kept: its hash is another than that of its end.")
    return content


def seal(recording_id: UUID, number: int, text: str) -> bytes:
    """A piece of a recording, sealed together with its place. Raises ``ImproperlyConfigured`` without a key."""
    return encryption.encrypt(f"{_place(recording_id, number)}\n{text}")


def _place(recording_id: UUID, number: int) -> str:
    return f"{recording_id} {number}"
