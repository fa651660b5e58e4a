"""The operators' console: Django's admin in the product's own look."""

from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig


class TenantryAdminSite(AdminSite):
    """Django's admin under the product's name."""

    site_header = "Tenantry"
    site_title = "Tenantry"
    index_title = "Operations"
    site_url = None  # the page's own link leads to the portal


class TenantryAdminConfig(AdminConfig):
    """Makes the site above the default one."""

    default_site = "portal.admin_site.TenantryAdminSite"
