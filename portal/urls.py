"""URLs of the portal (contract.md, portal URLs)."""

from django.contrib import admin
from django.urls import path

urlpatterns = [
    path("admin/", admin.site.urls),
]
