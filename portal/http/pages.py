"""Which page of ours a request comes from."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme


def page_behind(request: HttpRequest) -> str:
    """The page of ours that a form or a part of a page stood on; empty where the sender names none."""
    try:
        page = urlsplit(request.headers.get("HX-Current-URL") or request.headers.get("Referer", ""))
    except ValueError:
        return ""
    path = page._replace(scheme="", netloc="", fragment="").geturl() if page.netloc == request.get_host() else ""
    # What begins with two slashes is a page of ours behind our host, and another site's without it.
    return path if path.startswith("/") and url_has_allowed_host_and_scheme(path, None) else ""
