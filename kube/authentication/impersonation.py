"""``Impersonate-*`` headers: what they ask for, and which permissions that takes (kube-apiserver's impersonation).

There are several ways, each with rights of its own. The verb ``impersonate`` on what is asked for is enough for every
request. The finer ones of constrained impersonation (KEP 5284) take ``impersonate:<way>`` on it in
``authentication.k8s.io``, and for each request ``impersonate-on:<way>:<verb>`` on what that is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote_to_bytes

from kube.authentication.identity import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    NODE_PREFIX,
    NODES,
    SERVICE_ACCOUNT_PREFIX,
    SERVICE_ACCOUNTS,
    UNAUTHENTICATED,
)
from kube.authentication.subjects import GROUPS_MAX
from kube.authentication.userinfo import EXTRA_KEYS_MAX, EXTRA_VALUES_MAX, is_extra_value, name_reasons
from kube.requests.names import is_dns_label, is_dns_subdomain, is_domain_prefixed_path
from kube.requests.status import BadRequest

PREFIX: Final = b"impersonate-"
_USER: Final = b"impersonate-user"
_UID: Final = b"impersonate-uid"
_GROUP: Final = b"impersonate-group"
_EXTRA: Final = b"impersonate-extra-"
_NO_EXTRA: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType({})

AUTHENTICATION: Final = "authentication.k8s.io"

PLAIN: Final = ""
"""The way of the verb ``impersonate``."""

ASSOCIATED_NODE: Final = "associated-node"
ARBITRARY_NODE: Final = "arbitrary-node"
SERVICE_ACCOUNT: Final = "serviceaccount"
USER_INFO: Final = "user-info"
"""The finer ways, by Kubernetes' names."""

_NODE_WAYS: Final = (ASSOCIATED_NODE, ARBITRARY_NODE)
_MANY: Final = 4
"""Of so many groups or extra values the finer ways ask first whether any may be taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpersonationRequest:
    """Whom the caller wants to be. Keys of ``extra`` are lower-case, as Kubernetes makes them."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NO_EXTRA)

    @property
    def service_account(self) -> tuple[str, str] | None:
        """Namespace and name, when the user is a service account."""
        if not self.user.startswith(SERVICE_ACCOUNT_PREFIX):
            return None
        namespace, _, name = self.user[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")
        return (namespace, name) if is_dns_label(namespace) and is_dns_subdomain(name) else None

    @property
    def node(self) -> str:
        """The node, when the user is one."""
        name = self.user.removeprefix(NODE_PREFIX)
        return name if self.user.startswith(NODE_PREFIX) and is_dns_subdomain(name) else ""

    def all_groups(self, way: str = PLAIN) -> tuple[str, ...]:
        """The groups that the user then has: those asked for, an account's or node's own, and whether it is somebody at all."""
        groups = list(self.groups)
        if self.service_account is not None and not groups:
            groups = [SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{self.service_account[0]}"]
        if way in _NODE_WAYS:
            groups = [NODES]
        if self.user == ANONYMOUS:
            groups.append(UNAUTHENTICATED)
        elif UNAUTHENTICATED not in groups:
            groups.append(AUTHENTICATED)
        return tuple(dict.fromkeys(groups))


@dataclass(frozen=True, slots=True)
class Permission:
    """One thing that the caller must hold the verb on."""

    resource: str
    name: str
    group: str = ""
    namespace: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Needed:
    """Permissions that must all be held, or ``instead`` the one that stands for all of them."""

    each: tuple[Permission, ...]
    instead: Permission | None = None


def ways(wish: ImpersonationRequest, node: str) -> tuple[str, ...]:
    """The ways that there are to what is asked for, in the order in which they are tried; ``node`` is the caller's own.

    Those to a node come first, for it is of the nodes' group by them alone. All others make the same of the user, so the
    one comes first whose answers do not depend on the request.
    """
    alone = not (wish.uid or wish.groups or wish.extra)
    if wish.node:
        associated = (ASSOCIATED_NODE,) if wish.node == node else ()
        return (*associated, ARBITRARY_NODE, PLAIN) if alone else (PLAIN,)
    if wish.service_account is not None:
        return (PLAIN, SERVICE_ACCOUNT) if alone else (PLAIN,)
    sound = all("" not in values and is_domain_prefixed_path(key) for key, values in wish.extra.items())
    return (PLAIN, USER_INFO) if sound and MASTERS not in wish.groups else (PLAIN,)


def needed(wish: ImpersonationRequest, way: str = PLAIN) -> tuple[Needed, ...]:
    """Everything to check, in Kubernetes' order: the user, account or node, the uid, the groups, the extra values."""
    found = [Needed((_who(wish, way),))]
    if wish.uid:
        found.append(Needed((Permission("uids", wish.uid, AUTHENTICATION),)))
    any_group = Permission("groups", "*", AUTHENTICATION)
    any_extra = Permission("userextras", "*", AUTHENTICATION, subresource="*")
    groups = tuple(replace(any_group, name=name, group=_group(way)) for name in wish.groups)
    extra = tuple(
        replace(any_extra, name=value, subresource=key) for key, values in wish.extra.items() for value in values
    )
    return (
        *found,
        *(
            Needed(each, instead if way and len(each) >= _MANY else None)
            for each, instead in ((groups, any_group), (extra, any_extra))
            if each
        ),
    )


def _who(wish: ImpersonationRequest, way: str) -> Permission:
    account = wish.service_account
    if account is not None:
        return Permission("serviceaccounts", account[1], _group(way), account[0])
    if way in _NODE_WAYS:
        # Whoever may be the node it runs on may be whichever that is.
        return Permission("nodes", "*" if way == ASSOCIATED_NODE else wish.node, AUTHENTICATION)
    return Permission("users", wish.user, _group(way))


def _group(way: str) -> str:
    return AUTHENTICATION if way else ""


def impersonation_request_of(headers: Iterable[tuple[bytes, bytes]]) -> ImpersonationRequest | None:
    """What the headers ask for; ``None`` without any ``Impersonate-*``. Raises ``BadRequest``.

    Any header with the prefix counts, so that a misspelt one is never taken for none; and an empty user is an error,
    where kube-apiserver lets the request run as the caller (HDR-01, HDR-04, HDR-07).
    """
    asked = [(name.lower(), value) for name, value in headers if name[:12].lower() == PREFIX]
    if not asked:
        return None
    users: list[str] = []
    uids: list[str] = []
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    for name, raw in asked:
        value = _text(raw)
        if name == _USER:
            users.append(value)
        elif name == _UID:
            uids.append(value)
        elif name == _GROUP:
            groups.append(value)
        elif name.startswith(_EXTRA) and len(name) > len(_EXTRA):
            extra.setdefault(_extra_key(name[len(_EXTRA) :]), []).append(value)
        else:
            raise BadRequest(f"unknown impersonation header {name.decode('latin-1')!r}")
    if not users:
        raise BadRequest("requested impersonation of a uid, groups or extra without impersonating a user")
    if len(users) > 1 or len(uids) > 1:
        raise BadRequest("Impersonate-User and Impersonate-Uid may be given once")
    too_many = len(groups) > GROUPS_MAX or len(extra) > EXTRA_KEYS_MAX
    if too_many or any(len(values) > EXTRA_VALUES_MAX for values in extra.values()):
        raise BadRequest("too many groups or extra values to impersonate")
    for words, values in (("user", users), ("uid", uids), ("group", groups)):
        for value in values:
            if reasons := name_reasons(value):
                raise BadRequest(f"the {words} to impersonate {reasons[0]}")
    if not all(is_extra_value(value) for values in extra.values() for value in values):
        raise BadRequest("an extra value to impersonate is not acceptable")
    wish = ImpersonationRequest(
        user=users[0],
        uid=uids[0] if uids else "",
        groups=tuple(dict.fromkeys(groups)),
        extra={key: tuple(values) for key, values in extra.items()},
    )
    if wish.user.startswith(SERVICE_ACCOUNT_PREFIX) and wish.service_account is None:
        raise BadRequest("the user to impersonate is not the name of a service account")
    return wish


def _text(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRequest("an impersonation header is not UTF-8") from None


def _extra_key(raw: bytes) -> str:
    """The key, percent-decoded as ``rest.ImpersonationConfig`` encodes it."""
    try:
        key = unquote_to_bytes(raw).decode("utf-8").lower()
    except UnicodeDecodeError:
        key = ""
    if name_reasons(key):
        raise BadRequest("the key of an extra to impersonate is not acceptable")
    return key
