"""The operators' console: Django's admin in the product's own look."""

from typing import Any

from django.contrib.admin import AdminSite, autodiscover
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse


class TenantryAdminSite(AdminSite):
    """Django's admin under the product's name."""

    site_header = "Tenantry"
    site_title = "Tenantry"
    index_title = "Operations"
    site_url = None  # the page's own link leads to the portal

    def has_permission(self, request: HttpRequest) -> bool:
        """Operators, and auditors, who only look."""
        user = request.user
        return user.is_active and (user.is_staff or getattr(user, "is_auditor", False))

    def password_change(  # type: ignore[override] # the stubs know pages alone
        self, request: HttpRequest, extra_context: object = None
    ) -> HttpResponse:
        """One's own password is changed on the profile: counted, recorded, told, and with the end of other sessions."""
        return HttpResponseRedirect(reverse("profile"))

    password_change_done = password_change  # type: ignore[assignment]

    def logout(  # type: ignore[override]
        self, request: HttpRequest, extra_context: object = None
    ) -> HttpResponse:
        """The portal's own way out, which is recorded."""
        from portal.signin.accounts import sign_out

        if request.method == "POST":
            sign_out(request)
        return HttpResponseRedirect(reverse("login"))


class TenantryAdminConfig(SimpleAdminConfig):
    """Makes the site above the default one.

    What it shows is loaded with the URLs, and where it is checked: an API server, a worker and most commands have no
    pages.
    """

    default_site = "portal.admin_site.TenantryAdminSite"

    def ready(self) -> None:
        """Have the console checked, whole."""
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(_check_console, checks.Tags.admin)


def _check_console(**given: Any) -> list[checks.CheckMessage]:
    autodiscover()
    return check_admin_app(**given)
