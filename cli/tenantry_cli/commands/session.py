"""Signing in, and who one is."""

from __future__ import annotations

import getpass
import sys
from typing import Annotated

import typer

from tenantry_cli.api import Api
from tenantry_cli.context import connect, portal_of
from tenantry_cli.failures import Failure, Status
from tenantry_cli.output import Format, Output, say, show
from tenantry_cli.signin import SignIn, checked_url, forget, keep


def login(
    context: typer.Context,
    url: Annotated[str, typer.Argument(envvar="TENANTRY_URL", help="The portal's URL.")] = "",
) -> None:
    """Store a personal access token for a portal, in a file that you alone can read.

    The token is asked for without an echo, or read from standard input.
    """
    said = portal_of(context)
    url = url or said.url
    if not url:
        raise Failure("Name the portal: tenantry login https://HOST", Status.USAGE)
    signed_in = SignIn(checked_url(url), said.token or _asked_token(), said.ca_file)
    with Api(signed_in) as api:
        me = api.get("me", "")
    path = keep(signed_in)
    say(f"You are {me['email']} at {signed_in.url}. The token is in {path}.")


def logout() -> None:
    """Remove the stored token; it stays good until it is revoked in the portal."""
    say("The token is forgotten here." if forget() else "No token is stored.")


def whoami(context: typer.Context, output: Output = Format.TABLE) -> None:
    """Who you are, what the token may do, and the tenants that you are in."""
    api = connect(context)
    me = api.get("me", "")
    if output is not Format.TABLE:
        show(me, [], output)
        return
    say(f"{me['email']}{', operator' if me['operator'] else ''}, token of the scope {me['scope']}")
    show(me["memberships"], ["tenant", "role"], output)
    for said in api.pages("announcements", "", limit=0):
        say(f"{said['severity'].upper()}: {said['text']}")


def add_to(app: typer.Typer) -> None:
    """Make them commands of ``app``."""
    for command in (login, logout, whoami):
        app.command()(command)


def _asked_token() -> str:
    token = getpass.getpass("Personal access token: ") if sys.stdin.isatty() else sys.stdin.readline(4096)
    if not token.strip():
        raise Failure("There is no token. Make one in the portal under Tokens.", Status.USAGE)
    return token.strip()
