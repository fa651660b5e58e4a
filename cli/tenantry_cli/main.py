"""The command itself: where the portal is, and how failures end it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tenantry_cli.commands import access, announcements, apply, audit, platform, requests, session, tenants, workspaces
from tenantry_cli.context import Portal
from tenantry_cli.failures import Failure
from tenantry_cli.output import say

app = typer.Typer(
    name="tenantry",
    no_args_is_help=True,
    # Tracebacks with the values of variables would show the token.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def portal(
    context: typer.Context,
    url: Annotated[str, typer.Option(envvar="TENANTRY_URL", help="The portal's URL.")] = "",
    token: Annotated[
        str,
        typer.Option(
            envvar="TENANTRY_TOKEN",
            show_envvar=True,
            help="A personal access token; others see arguments, so prefer the variable.",
        ),
    ] = "",
    ca_file: Annotated[
        Path | None, typer.Option(envvar="TENANTRY_CA_FILE", help="Certificates of the portal's authority.")
    ] = None,
) -> None:
    """Tenants, workspaces and rights of a Tenantry portal."""
    context.obj = Portal(url=url, token=token, ca_file=str(ca_file or ""))


session.add_to(app)
access.add_to(app)
app.command("apply")(apply.apply)
app.add_typer(tenants.app, name="tenants")
app.add_typer(workspaces.app, name="workspaces")
app.command("kubeconfig")(workspaces.kubeconfig)
app.add_typer(audit.app, name="audit")
app.add_typer(requests.app, name="requests")
app.add_typer(announcements.app, name="announcements")
app.command("report")(platform.report)
app.add_typer(platform.tiers, name="tiers")
app.add_typer(platform.clusters, name="clusters")
app.add_typer(platform.policies, name="policies")


def main() -> None:
    """Run, and end with a documented status; a failure is one line on standard error."""
    try:
        app(prog_name="tenantry")
    except Failure as failure:
        say(f"tenantry: {failure}")
        sys.exit(failure.status)
    except BrokenPipeError:
        # Whoever read has enough, as `head` has.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
