"""Who a pasted certificate, subject, line or token would be at the API server, by the rules that it was started with.

What is pasted may be a working credential: it is read, answered and forgotten, on no page, in no log and no audit.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from django.conf import settings
from django.views.decorators.debug import sensitive_variables

from access.authentication.build import UnusableOptions
from access.authentication.inspector import IdentityInspector
from access.authentication.options import AuthenticationOptions, add_flags
from access.flags import FlagParser, UnusableFlags
from gateway.options import add_issuers
from kube.authentication.inspection import Inspection
from kube.requests.status import ServiceUnavailable


@sensitive_variables("text")
def inspect_identity(text: str) -> Inspection:
    """The identity, the rule that matched, and why the others did not.

    Raises ``ServiceUnavailable`` while ``APISERVER_FLAGS`` cannot be used.
    """
    try:
        inspector = _inspector(tuple(settings.APISERVER_FLAGS))
    except (UnusableFlags, UnusableOptions) as error:
        raise ServiceUnavailable(f"The API server's rules cannot be read: {error}") from None
    return inspector.inspect(text, now=time.time())


@cache
def _inspector(flags: tuple[str, ...]) -> IdentityInspector:
    parser = FlagParser()
    add_issuers(parser)
    add_flags(parser)
    # Flags about other things than authentication are none of the inspector's business.
    known, _ = parser.parse_known_args(flags)
    said: dict[str, Any] = vars(known)
    return IdentityInspector(
        AuthenticationOptions.of_flags(said), service_account_issuers=said["service_account_issuer"]
    )
