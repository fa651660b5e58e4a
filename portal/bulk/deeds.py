"""What can be done with many rows of a list at once: each deed is a service that is there for one of them (GW28)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any, Final
from uuid import UUID

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from audit.recorder import Actor
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import NotFound
from portal.pages.forms import EmptyForm, FreezeForm, SuspendForm, TierChoiceForm
from portal.pages.inbox import inbox_line
from portal.pages.operatingforms import PostponeForm
from portal.signin.accounts import access_end
from tenants import selectors, services
from tenants.models import Freeze, Operation, Postponement, Tenant, User, Workspace
from tenants.services.operating import freezing
from tenants.services.operating.postponing import inbox_postpone

MOST: Final = 100
"""Rows of one deed: more nobody looks through."""

Words = dict[str, Any]
Filters = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """``perform`` does it to one row, by its key, with what its form says."""

    text: str
    perform: Callable[[Actor, str, Words, datetime], object]
    form: Callable[..., forms.Form] = EmptyForm
    destroys: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sort:
    """The rows of one list: which there are, in which state each is, and what can be done with them."""

    title: str
    url: str
    found: Callable[[Actor, Filters], QuerySet[Any]]
    state: Callable[[Any], str]
    deeds: Mapping[str, Deed]
    name: Callable[[Any], str] = str

    def keys(self, actor: Actor, filters: Filters) -> list[str]:
        """The keys of what the list's filters find; one more than a deed takes where there are more."""
        rows = self.found(actor, filters).order_by("pk")
        return [str(key) for key in rows.values_list("pk", flat=True)[: MOST + 1]]

    def row(self, actor: Actor, key: str) -> Any:
        """The row of a key. Raises ``NotFound``."""
        try:
            found = self.found(actor, {}).filter(pk=key.replace("\0", "")).first()
        except (ValueError, ValidationError):
            found = None
        if found is None:
            raise NotFound("It is not there any more.")
        return found


def _tier_form(*args: Any, **kwargs: Any) -> forms.Form:
    return TierChoiceForm(*args, tiers=selectors.tiers_offered(Actor(name="", operator=True)), **kwargs)


def _postpone(actor: Actor, key: str, words: Words, now: datetime) -> object:
    line = inbox_line(actor, "operations", key, now=now)
    if line is None:
        raise NotFound("It is not among those that the inbox shows.")
    until = datetime.combine(words["until"], time.min, UTC)
    return inbox_postpone(
        actor=actor, kind="operations", name=key, cause=line.cause, until=until, reason=words["reason"], now=now
    )


def _frozen(**of: Any) -> str:
    return ", frozen" if Freeze.objects.filter(**of).exists() else ""


def _tenant_state(tenant: Tenant) -> str:
    return f"{tenant.get_state_display()}{_frozen(tenant=tenant, workspace=None)}"


def _workspace_state(workspace: Workspace) -> str:
    return f"{workspace.get_status_display()}{_frozen(workspace=workspace)}, {workspace.tier_id}"


def _operation_state(operation: Operation) -> str:
    off = Postponement.objects.filter(kind="operations", name=str(operation.pk)).first()
    if off is not None:
        return f"Put off until {off.until:%d %b %Y}"
    return f"Tried {operation.attempts} times, again at {operation.not_before:%H:%M:%S} UTC"


SORTS: Final[Mapping[str, Sort]] = {
    "tenants": Sort(
        title="Tenants",
        url="tenants",
        found=lambda actor, said: selectors.tenants_found(actor, search=said.get("q", "")).exclude(pk=SYSTEM_TENANT),
        state=_tenant_state,
        deeds={
            "suspend": Deed(
                text="Suspend",
                form=SuspendForm,
                destroys=True,
                perform=lambda actor, key, said, _: services.tenant_suspend(actor=actor, name=key, **said),
            ),
            "resume": Deed(
                text="Resume", perform=lambda actor, key, _said, _: services.tenant_resume(actor=actor, name=key)
            ),
            "freeze": Deed(
                text="Freeze",
                form=FreezeForm,
                destroys=True,
                perform=lambda actor, key, said, _: freezing.tenant_freeze(actor=actor, name=key, **said),
            ),
            "thaw": Deed(text="Thaw", perform=lambda actor, key, _said, _: freezing.tenant_thaw(actor=actor, name=key)),
        },
    ),
    "workspaces": Sort(
        title="Workspaces",
        url="workspaces",
        found=lambda actor, said: selectors.workspaces_found(
            actor, search=said.get("q", ""), status=said.get("status", "")
        ),
        state=_workspace_state,
        deeds={
            "suspend": Deed(
                text="Suspend",
                form=SuspendForm,
                destroys=True,
                perform=lambda actor, key, said, _: services.workspace_suspend(
                    actor=actor, workspace_id=UUID(key), **said
                ),
            ),
            "resume": Deed(
                text="Resume",
                perform=lambda actor, key, _said, _: services.workspace_resume(actor=actor, workspace_id=UUID(key)),
            ),
            "freeze": Deed(
                text="Freeze",
                form=FreezeForm,
                destroys=True,
                perform=lambda actor, key, said, _: freezing.workspace_freeze(
                    actor=actor, workspace_id=UUID(key), **said
                ),
            ),
            "thaw": Deed(
                text="Thaw",
                perform=lambda actor, key, _said, _: freezing.workspace_thaw(actor=actor, workspace_id=UUID(key)),
            ),
            "tier": Deed(
                text="Change tier",
                form=_tier_form,
                perform=lambda actor, key, said, _: services.workspace_change_tier(
                    actor=actor, workspace_id=UUID(key), tier=said["tier"]
                ),
            ),
        },
    ),
    "people": Sort(
        title="Users",
        url="users",
        found=lambda actor, said: selectors.people_found(actor, search=said.get("q", "")),
        state=User.get_status_display,
        deeds={
            "end": Deed(
                text="End all access",
                destroys=True,
                perform=lambda actor, key, _said, _: access_end(actor=actor, user_id=UUID(key)),
            ),
        },
    ),
    "operations": Sort(
        title="Operations",
        url="operations",
        found=lambda actor, _: selectors.operations_waiting(actor).select_related("workspace__tenant"),
        state=_operation_state,
        name=lambda operation: str(operation.workspace),
        deeds={
            "retry": Deed(
                text="Try again",
                perform=lambda actor, key, _said, _: services.operation_retry(actor=actor, operation_id=UUID(key)),
            ),
            "postpone": Deed(text="Postpone in the inbox", form=PostponeForm, perform=_postpone),
        },
    ),
}
"""By the name of the list."""
