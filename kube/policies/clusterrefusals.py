"""Which plug-in of a cluster refused a write, read from the words of kube-apiserver."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = (
    ("AdmissionWebhook", re.compile(r'admission webhook "(?P<rule>[^"]+)" denied the request')),
    (
        "ValidatingAdmissionPolicy",
        re.compile(r"ValidatingAdmissionPolicy '(?P<rule>[^']+)' with binding '[^']*' denied"),
    ),
    ("PodSecurity", re.compile(r'violates PodSecurity "(?P<rule>[^"]+)"')),
    ("ResourceQuota", re.compile(r"(?:exceeded quota: (?P<rule>[^\s,]+),|failed quota: (?P<failed>[^\s:]+):)")),
    ("LimitRanger", re.compile(r"(?:maximum|minimum|max|min) (?P<rule>\S+) (?:usage|limit to request ratio) per ")),
)


def refused_by(message: str) -> tuple[str, str]:
    """The plug-in and the object, or level, that it names; both empty where the message is nobody's that is known."""
    for plugin, words in _WORDS:
        found = words.search(message)
        if found is not None:
            return plugin, next(filter(None, found.groups()), "")
    return "", ""
