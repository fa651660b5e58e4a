"""What the pages of lists share: the links between them."""

from __future__ import annotations

from django.http import HttpRequest


def pager(request: HttpRequest, cursor: str) -> dict[str, str]:
    """Links to the first and to the next page, filters kept."""
    query = request.GET.copy()
    query.pop("after", None)
    newer = f"?{query.urlencode()}" if request.GET.get("after") else ""
    if cursor:
        query["after"] = cursor
    return {"newer": newer, "older": f"?{query.urlencode()}" if cursor else ""}
