"""What people ask others for."""

from __future__ import annotations

from typing import Annotated

import typer

from tenantry_cli.context import connect
from tenantry_cli.output import Format, Output, show, show_pairs

COLUMNS = ("id", "kind", "state", "asked_by", "tenant", "role", "tier", "reason", "created_at")

app = typer.Typer(help="What people ask others for.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(help="The request's ID.")]


@app.command("list")
def list_(
    context: typer.Context,
    state: Annotated[str, typer.Option(help="open, approved, denied, withdrawn or expired; empty for all.")] = "open",
    tenant: Annotated[str, typer.Option(help="About this tenant only.")] = "",
    mine: Annotated[bool, typer.Option("--mine", help="Only what you have asked for.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """List requests, newest first: your own, and those about tenants that you own; operators see all."""
    wanted = {"state": state, "tenant": tenant, "mine": "true" if mine else ""}
    asked = {name: value for name, value in wanted.items() if value}
    found = connect(context).pages("requests", "", limit=0, **asked)
    show(found, COLUMNS, output)


@app.command()
def get(context: typer.Context, request: Id, output: Output = Format.TABLE) -> None:
    """Show a request with its comments."""
    show_pairs(connect(context).get("requests", request, ""), output)


@app.command()
def approve(
    context: typer.Context,
    request: Id,
    note: Annotated[str, typer.Option(help="Shown to whoever asked.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """Say yes, and do it with your own rights."""
    show(connect(context).post("requests", request, "approve", body={"answer": note}), COLUMNS, output)


@app.command()
def deny(
    context: typer.Context,
    request: Id,
    reason: Annotated[str, typer.Option(help="Shown to whoever asked.")],
    output: Output = Format.TABLE,
) -> None:
    """Say no, and why."""
    show(connect(context).post("requests", request, "deny", body={"answer": reason}), COLUMNS, output)
