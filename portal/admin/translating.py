"""What all pages of the console share: services do the work, lists are bounded, refusals are messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db.models import Model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.functional import cached_property
from django.utils.html import format_html

from kube.requests.status import StatusError
from portal.admin.places import page_of
from portal.http.actors import actor_of
from tenants import selectors


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """A paginator that counts up to ``selectors.COUNTED`` rows and no further: audit tables have millions."""

    @cached_property
    def count(self) -> int:
        """The number of rows, at most ``selectors.COUNTED``."""
        rows: Any = self.object_list
        return rows.order_by()[: selectors.COUNTED].count() if hasattr(rows, "values_list") else len(rows)


class ServiceBackedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """For operators; a refusal of a service becomes a message on the same page."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER  # they count whole tables
    list_per_page = 50
    list_max_show_all = 50
    actions_on_top = True

    def view_on_site(self, obj: Model) -> str:
        """The portal's page about it."""
        return page_of(obj)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """What the list's own filters ask for: any other would tell hashes and credentials letter by letter (CT-19)."""
        return lookup.partition("__")[0] in self.list_filter and super().lookup_allowed(lookup, value, request)

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Every operator sees every model, and every auditor."""
        return request.user.is_active and (request.user.is_staff or request.user.is_auditor)

    def may_change(self, request: HttpRequest) -> bool:
        """Operators alone, where there is a service for it."""
        return request.user.is_active and request.user.is_staff

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whoever sees the model reads."""
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Where there is a service for it."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Where there is a service for it."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Where there is a service for it."""
        return False

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """What was changed is what somebody changed in the form: compared with what it has shown, which it carries.

        Compared with the row as it is by then, a form that stood open would turn back what others did meanwhile.
        """
        form = super().get_form(request, obj, change, **kwargs)
        for field in form.base_fields.values():
            field.show_hidden_initial = obj is not None
        return form

    def get_actions(self, request: HttpRequest) -> Any:
        """For operators, without the built-in deletion, which goes past the services (API-22)."""
        if not self.may_change(request):
            return {}
        actions = super().get_actions(request)
        actions.pop("delete_selected", None)
        return actions

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        """The form; what the service refuses stands above it instead of an error page."""
        context = {"show_save_and_add_another": False, "show_save_and_continue": False, **(extra_context or {})}
        return self._said(
            request, lambda: super(ServiceBackedAdmin, self).changeform_view(request, object_id, form_url, context)
        )

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """The question before a deletion; what the service refuses stands above it."""
        return self._said(
            request, lambda: super(ServiceBackedAdmin, self).delete_view(request, object_id, extra_context)
        )

    def log_addition(self, *_args: Any) -> Any:
        """The audit log is the record; Django's own would be a second one without a chain."""

    def log_change(self, *_args: Any) -> Any:
        """Nothing, as ``log_addition``: the services write the audit log."""

    def log_deletions(self, *_args: Any) -> Any:
        """Nothing, as ``log_addition``: the services write the audit log."""

    def each(self, request: HttpRequest, rows: Iterable[Model], act: Callable[[Any], object], done: str) -> None:
        """Do ``act`` to every selected row and say how many it worked for, and what was refused."""
        finished = 0
        for row in rows:
            try:
                act(row)
                finished += 1
            except StatusError as error:
                self.message_user(request, f"{row}: {error.message}", messages.ERROR)
        if finished:
            self.message_user(request, f"{done}: {finished}.", messages.SUCCESS)

    def _said(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        try:
            return view()
        except StatusError as error:
            self.message_user(request, error.message, messages.ERROR)
            return HttpResponseRedirect(request.get_full_path())


_Action = Callable[[Any, HttpRequest, Any], HttpResponse | None]


def confirmed(question: str) -> Callable[[_Action], _Action]:
    """An action on chosen rows that is done once somebody has seen which rows they are, and said yes to the ``question``."""

    def decorate(action: _Action) -> _Action:
        @wraps(action)
        def asked(self: Any, request: HttpRequest, rows: Any) -> HttpResponse | None:
            if request.POST.get("confirmed"):
                return action(self, request, rows)
            context = {
                **self.admin_site.each_context(request),
                "title": question,
                "opts": self.opts,
                "rows": rows,
                "action": request.POST["action"],
                "reason": request.POST.get("reason", ""),
            }
            return TemplateResponse(request, "admin/confirm_action.html", context)

        return asked

    return decorate


def lines(text: str) -> str:
    """Lines of text as HTML, escaped, for what would be raw JSON otherwise."""
    return format_html("<pre>{}</pre>", text) if text else "-"


actor = actor_of
