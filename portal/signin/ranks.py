"""Which accounts an operator may change: everybody's but superusers', whom superusers alone change (API-23)."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from audit.recorder import Actor
from kube.requests.status import Forbidden, NotFound
from tenants.models import User
from tenants.rights import require_operator, require_overseer

RANKS: Final = ("is_staff", "is_auditor", "is_superuser")
"""What an account may be on the platform: each sees or changes what is everybody's."""


def person_below(actor: Actor, user_id: UUID) -> User:
    """The account, its row locked until the transaction's end. Raises ``NotFound``, ``Forbidden``."""
    require_operator(actor)
    user = User.objects.select_for_update(no_key=True).filter(pk=user_id).first()
    if user is None:
        raise NotFound("There is no such user.", kind="users")
    if user.is_superuser and not is_superuser(actor):
        raise Forbidden("Only superusers change superusers.", kind="users")
    return user


def has_rank(user: User) -> bool:
    """Whether the account is more than a member of tenants."""
    return any(getattr(user, rank) for rank in RANKS)


def is_superuser(actor: Actor) -> bool:
    """Whether the actor is a superuser at this moment."""
    return actor.user_id is not None and User.objects.filter(pk=actor.user_id, is_superuser=True).exists()


def person_named(actor: Actor, user_id: UUID) -> User:
    """An account, to look at; operators and auditors. Raises ``NotFound``, ``Forbidden``."""
    require_overseer(actor)
    user = User.objects.filter(pk=user_id).first()
    if user is None:
        raise NotFound("There is no such user.", kind="users")
    return user


def may_change(actor: Actor, user: User) -> bool:
    """Whether ``person_below`` would give the account to the actor."""
    return actor.operator and (not user.is_superuser or is_superuser(actor))
