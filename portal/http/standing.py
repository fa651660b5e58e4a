"""What somebody who is sent a long file may while it is read: whoever loses a right is sent no more of it (CT-07).

By which right a file was made is not asked: the loss of any ends all that are under way, and who may still have one
begins anew. It is cut off, so that nobody takes a part for the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django.utils import timezone

from access.models import PersonalAccessToken
from kube.requests.status import Forbidden
from portal.database.scopes import everything
from tenants.models import Membership, Role, User
from tenants.rights import role_at_least

ASKED_EVERY: Final = 64 * 1024
"""Bytes that are sent before it is asked again."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether what somebody came with still opens their account, and what that may."""

    signed_in: bool
    operator: bool
    auditor: bool
    roles: Mapping[int, str]
    """By membership: whoever left and came back has another."""
    epoch: int = 0
    """Changes when all access is ended: whoever is let in again comes anew."""

    def keeps(self, before: Standing) -> bool:
        """Whether nothing of ``before`` is lost."""
        return (
            self.signed_in
            and self.epoch == before.epoch
            and self.operator >= before.operator
            and self.auditor >= before.auditor
            and all(
                key in self.roles and role_at_least(self.roles[key], Role(role)) for key, role in before.roles.items()
            )
        )


def while_it_lasts(request: HttpRequest, lines: Iterator[bytes]) -> Iterator[bytes]:
    """The same lines, for as long as whoever asked has every right that they asked with. Raises ``Forbidden``."""
    user: Any = request.user
    if not user.is_authenticated:
        yield from lines
        return
    before, sent = _standing_of(request, user), 0
    for line in lines:
        yield line
        sent += len(line)
        if sent >= ASKED_EVERY:
            sent = 0
            if not _standing_of(request, user).keeps(before):
                raise Forbidden("A right of the reader has ended meanwhile: the file ends here.")


@everything()
def _standing_of(request: HttpRequest, user: User) -> Standing:
    now = User.objects.filter(pk=user.pk, status=User.Status.ACTIVE).first()
    if now is None or not _opens(request):
        return Standing(signed_in=False, operator=False, auditor=False, roles={})
    roles = {each.pk: each.present_role for each in Membership.objects.filter(user=now)}
    rank = {"operator": now.is_staff, "auditor": now.is_auditor}
    return Standing(signed_in=True, **rank, roles=roles, epoch=now.session_epoch)


def _opens(request: HttpRequest) -> bool:
    """Whether the access token, or the session, that the request came with is still good for something."""
    token, now = getattr(request, "auth", None), timezone.now()
    if isinstance(token, PersonalAccessToken):
        return PersonalAccessToken.objects.filter(pk=token.pk, revoked_at=None, expires_at__gt=now).exists()
    key = request.session.session_key
    return key is None or Session.objects.filter(session_key=key, expire_date__gt=now).exists()
