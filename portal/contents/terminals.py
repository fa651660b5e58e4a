"""A terminal in a container: the ticket that opens one connection of one session, and what the API server is then asked for.

A browser cannot show a token in a WebSocket's handshake, and shows its cookies to whoever makes it ask. So a page of ours
asks first, by a form that no other site can send, for a ticket: good once, for seconds, for this person, session, pod,
container and command. The handshake shows it among its subprotocols, which no log of addresses has (GW27).
"""

from __future__ import annotations

import hashlib
import secrets
import shlex
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac
from django.views.decorators.debug import sensitive_variables

from access.credentials.logins import login_end
from access.credentials.portalsessions import session_token
from kube.requests.status import BadRequest, Forbidden
from portal.contents.door import login_of, path_in
from portal.contents.relay import Shell
from portal.http.actors import actor_of
from tenants.models import Workspace

TICKET_SECONDS: Final = 20
TICKET: Final = "tenantry.ticket."
"""What stands before a ticket among the subprotocols of a handshake."""

COMMANDS: Final = ("sh", "bash")
"""What is offered first."""

COMMAND_MAX: Final = 200


@sensitive_variables("ticket")
def ticket_issue(request: HttpRequest, workspace: Workspace, *, pod: str, container: str, command: str) -> str:
    """A ticket for one connection; only its digest is kept, until it is shown or too old. Raises ``BadRequest``."""
    arguments = _split(command)
    ticket = secrets.token_urlsafe(32)
    kept = {"by": _session_of(request), "place": _place(workspace, pod), "container": container, "command": arguments}
    cache.set(_key(ticket), kept, TICKET_SECONDS)
    return ticket


@sensitive_variables("ticket")
def ticket_redeem(request: HttpRequest, workspace: Workspace, *, pod: str) -> tuple[str, list[str]]:
    """The container and the command of the ticket that a handshake shows, which is good no more. Raises ``Forbidden``."""
    offered = [each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    ticket = next((each.removeprefix(TICKET) for each in offered if each.startswith(TICKET)), "")
    kept: dict[str, Any] | None = cache.get(_key(ticket))
    # Of two that show the same one at once, one deletes it.
    if kept is None or not cache.delete(_key(ticket)):
        raise Forbidden("The ticket is unknown, too old, or was used: ask for another.")
    if not constant_time_compare(kept["by"], _session_of(request)) or kept["place"] != _place(workspace, pod):
        raise Forbidden("The ticket is for somebody else, or for another pod.")
    return kept["container"], kept["command"]


def require_own_page(request: HttpRequest) -> None:
    """Raise ``Forbidden`` unless a page of the portal itself asks: WebSockets know no other wall between sites."""
    own = f"{request.scheme}://{request.get_host()}"
    if request.headers.get("Origin") not in {own, *settings.CSRF_TRUSTED_ORIGINS}:
        raise Forbidden("Only a page of this portal may open a terminal.")


@sensitive_variables()
def shell_of(request: HttpRequest, workspace: Workspace, *, pod: str, container: str, command: list[str]) -> Shell:
    """What the API server is to be asked for as the signed-in person. Raises as ``door_of``."""
    now = timezone.now()
    server, login = login_of(request, now=now)
    actor = actor_of(request)
    token, _ = session_token(actor=actor, login=login, tenant=workspace.tenant_id, now=now, expires_at=login_end(login))
    asked = [("container", container), *(("command", each) for each in command)]
    asked += [(name, "true") for name in ("stdin", "stdout", "tty")]
    path = path_in(workspace.k8s_namespace, "", "v1", "pods", pod, "exec")
    return Shell(
        url=server.server,
        authority=server.ca_data,
        name=server.name,
        tenant=workspace.tenant_id,
        target=f"{path}?{urlencode(asked)}".encode("ascii"),
        request_id=str(getattr(request, "request_id", "")),
        token=token,
    )


def _split(command: str) -> list[str]:
    try:
        arguments = shlex.split(command[: COMMAND_MAX + 1])
    except ValueError:
        arguments = []
    if not arguments or len(command) > COMMAND_MAX or not command.isprintable():
        raise BadRequest(f"Name a command of at most {COMMAND_MAX} characters, with its quotation marks closed.")
    return arguments


def _session_of(request: HttpRequest) -> str:
    """The same for a session and its person; it gives away neither."""
    text = f"{request.session.session_key} {request.user.pk}"
    return salted_hmac("tenantry.terminal", text, algorithm="sha256").hexdigest()


def _place(workspace: Workspace, pod: str) -> str:
    return f"{workspace.pk} {pod}"


def _key(ticket: str) -> str:
    return f"terminal-ticket:{hashlib.sha256(ticket.encode()).hexdigest()}"
