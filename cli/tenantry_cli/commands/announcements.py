"""What operators say to everybody, or to those whom it concerns."""

from __future__ import annotations

from typing import Annotated

import typer

from tenantry_cli.context import connect
from tenantry_cli.output import Format, Output, say, show

COLUMNS = ("id", "severity", "text", "starts_at", "ends_at")

app = typer.Typer(help="What operators say to everybody.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="The announcement's ID.")]


@app.command("list")
def list_(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="All that there are (operators).")] = False,
    output: Output = Format.TABLE,
) -> None:
    """List what is announced to you now."""
    asked = {"all": "true"} if everything else {}
    columns = (*COLUMNS, "audience", "created_by") if everything else COLUMNS
    show(connect(context).pages("announcements", "", limit=0, **asked), columns, output)


@app.command()
def create(
    context: typer.Context,
    text: Annotated[str, typer.Argument(help="One line of plain text.")],
    severity: Annotated[str, typer.Option(help="info, warning or critical.")] = "info",
    tenant: Annotated[list[str] | None, typer.Option(help="For members of this tenant only; may be repeated.")] = None,
    tier: Annotated[
        list[str] | None, typer.Option(help="For tenants with workspaces of this tier only; may be repeated.")
    ] = None,
    since: Annotated[str, typer.Option("--from", help="An RFC 3339 time; at once without.")] = "",
    until: Annotated[str, typer.Option(help="An RFC 3339 time; until it is ended without.")] = "",
    dismissible: Annotated[bool, typer.Option(help="Whether people may put it away.")] = True,
    output: Output = Format.TABLE,
) -> None:
    """Announce something on top of the pages of everybody, or of some (operators)."""
    body = {
        "text": text,
        "severity": severity,
        "audience": "tenants" if tenant else "tiers" if tier else "everybody",
        "tenants": tenant or [],
        "tiers": tier or [],
        "starts_at": since or None,
        "ends_at": until or None,
        "dismissible": dismissible,
    }
    show(connect(context).post("announcements", "", body=body), COLUMNS, output)


@app.command()
def end(context: typer.Context, announcement: Id, output: Output = Format.TABLE) -> None:
    """Say it no more (operators)."""
    show(connect(context).post("announcements", announcement, "end"), COLUMNS, output)


@app.command()
def dismiss(context: typer.Context, announcement: Id) -> None:
    """Put it away for yourself."""
    connect(context).post("announcements", announcement, "dismiss")
    say("It is shown to you no more.")
