"""Noting what has happened, in the transaction in which it does; a worker tells whoever is to hear of it (GW25)."""

from __future__ import annotations

from typing import Final

from audit.recorder import Actor
from tenants.models import AccessRequest, Notice, NoticeKind, Tenant, User, Workspace

ALWAYS: Final = frozenset({NoticeKind.ACCOUNT_CHANGED})
"""What a person is told whatever they chose and whoever did it: it may be somebody else who sits in their session (GW16)."""


def note(
    kind: NoticeKind,
    text: str,
    *,
    actor: Actor,
    tenant: Tenant | str | None = None,
    workspace: Workspace | None = None,
    request: AccessRequest | None = None,
    user: User | None = None,
) -> None:
    """Note it. ``text`` is one line whatever was put into it, and cut to its column; ``user`` is whom it is about."""
    name = tenant.pk if isinstance(tenant, Tenant) else tenant
    if name is None and workspace is not None:
        name = workspace.tenant_id
    Notice.objects.create(
        kind=kind,
        text=one_line(text)[:512],
        tenant_id=name or None,
        workspace=workspace,
        request=request,
        user=user,
        actor_id=actor.user_id,
    )


def note_account(actor: Actor, user: User, words: str) -> None:
    """Tell a person that what opens their account has changed, by whom and from where: by notice and by e-mail."""
    by = "" if actor.user_id == user.pk else f" by {actor.name}"
    where = f" from {actor.ip}" if actor.ip else ""
    text = f"{one_line(words)[:300]}{by}{where}. If this was not meant, change the password and end the other sessions."
    note(NoticeKind.ACCOUNT_CHANGED, text, actor=actor, user=user)


def one_line(text: str) -> str:
    """Without line ends and other control characters: it becomes the subject of an e-mail."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
