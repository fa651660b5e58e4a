"""Which page of ours a request comes from."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.http import HttpRequest


def page_behind(request: HttpRequest) -> str:
    """The page of ours that a form or a part of a page stood on; empty where the sender names none."""
    try:
        page = urlsplit(request.headers.get("HX-Current-URL") or request.headers.get("Referer", ""))
    except ValueError:
        return ""
    return page._replace(scheme="", netloc="", fragment="").geturl() if page.netloc == request.get_host() else ""
