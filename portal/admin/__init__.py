"""The operators' console: every model to read, and to change only what services change (GW14)."""

from django.contrib import admin
from django.contrib.auth import admin as _accounts  # noqa: F401 - registers what is taken away below
from django.contrib.auth.models import Group

from portal.admin import people, platform, records, tenancy

# Rights come from memberships and from being an operator; a second system of groups would only mislead.
admin.site.unregister(Group)

__all__ = ["people", "platform", "records", "tenancy"]
