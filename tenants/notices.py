"""Noting what has happened, in the transaction in which it does; a worker tells whoever is to hear of it (GW25)."""

from __future__ import annotations

from audit.recorder import Actor
from tenants.models import AccessRequest, Notice, NoticeKind, Tenant, User, Workspace


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


def one_line(text: str) -> str:
    """Without line ends and other control characters: it becomes the subject of an e-mail."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
