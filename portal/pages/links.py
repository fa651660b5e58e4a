"""Where an installation's own tools show a workspace: links to Grafana and the like, from its settings (GW14).

Read by the settings, so nothing here needs models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlsplit

PLACES: Final = ("tenant", "workspace", "namespace", "cluster")
"""What may stand in braces in an address."""

MOST: Final = 12
_NAME_MAX: Final = 40
_URL_MAX: Final = 1024
_PLACE: Final = re.compile(r"\{([^{}]*)\}")


def links_read(values: Any) -> dict[str, str]:
    """Names and addresses, checked. Raises ``ValueError`` with what to change."""
    if not isinstance(values, Mapping) or len(values) > MOST:
        raise ValueError(
            f'an object of {MOST} links at most is needed, such as {{"Grafana": "https://…/{{namespace}}"}}'
        )
    for name, url in values.items():
        if not isinstance(url, str) or not 0 < len(str(name)) <= _NAME_MAX or len(url) > _URL_MAX:
            raise ValueError(
                f"{str(name)[:_NAME_MAX]}: a name of {_NAME_MAX} letters at most, and an address, are needed"
            )
        try:
            parts = urlsplit(_PLACE.sub("x", url))
            host = urlsplit(url).netloc
        except ValueError:
            raise ValueError(f"{name}: this is no address") from None
        if parts.scheme not in ("https", "http") or not parts.hostname or not url.isascii() or not url.isprintable():
            raise ValueError(f"{name}: an address begins with https://")
        if "{" in host:
            raise ValueError(f"{name}: what differs stands behind the host")
        unknown = [place for place in _PLACE.findall(url) if place not in PLACES]
        if unknown or "{" in _PLACE.sub("", url) or "}" in _PLACE.sub("", url):
            raise ValueError(f"{name}: in braces stand {', '.join(PLACES)}")
    return {str(name): url for name, url in values.items()}


def links_for(links: Mapping[str, str], values: Mapping[str, str]) -> list[dict[str, str]]:
    """The links with what they are about filled in, as one part of an address each."""
    filled = {place: quote(values[place], safe="") for place in PLACES}
    return [{"text": name, "url": _PLACE.sub(lambda found: filled[found[1]], url)} for name, url in links.items()]
