"""The operators' console: Django's admin in the product's own look."""

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import HttpRequest


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


class TenantryAdminConfig(AdminConfig):
    """Makes the site above the default one."""

    default_site = "portal.admin_site.TenantryAdminSite"
