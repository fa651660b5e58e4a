"""Settings that work, and should not be as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings

from portal.doctor.findings import Finding, failed, ok, warning

_HERE: Final = {"127.0.0.1", "localhost", "::1", "[::1]"}


def unsafe() -> Iterator[Finding]:
    """No setting is unsafe for an installation that others reach."""
    found = list(_unsafe())
    yield from found or [ok("settings", "none is unsafe")]


def _unsafe() -> Iterator[Finding]:
    name = "settings"
    reached = urlsplit(settings.PORTAL_URL).hostname not in _HERE
    if settings.DEBUG:
        yield failed(name, "DEBUG is on", "Take it out: pages of errors would show settings.")
    if "*" in settings.ALLOWED_HOSTS:
        yield failed(name, "ALLOWED_HOSTS names everybody", "Name the portal's own host names.")
    if reached and not settings.PORTAL_HTTPS:
        yield failed(
            name, "the portal is reached without TLS", "Put a proxy with TLS before it and set PORTAL_HTTPS=true."
        )
    if settings.PORTAL_HTTPS and not settings.TRUSTED_PROXIES:
        yield failed(
            name,
            "PORTAL_HTTPS without a trusted proxy: every page leads to itself",
            "Name the one that ends TLS in TRUSTED_PROXIES.",
        )
    if urlsplit(settings.APISERVER_URL).scheme != "https":
        yield failed(name, "APISERVER_URL is not https", "The API server speaks TLS alone: put the URL right.")
    if settings.FAILPOINT:
        yield failed(
            name, "a failpoint of the tests is set", "Take TENANTRY_FAILPOINT and TENANTRY_ALLOW_FAILPOINTS out."
        )
    # A part with keys of its own is not told who owns the tables: the check of the database's role asks there.
    if settings.KEYS_DIR is None and settings.DATABASE_OWNER["USER"] == settings.DATABASES["default"]["USER"]:
        yield warning(
            name,
            "the product signs in to PostgreSQL as the tables' owner",
            "Set DATABASE_URL and MIGRATION_DATABASE_URL apart.",
        )
