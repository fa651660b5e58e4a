"""The audit log."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from tenantry_cli.context import connect
from tenantry_cli.output import Format, Output, show

COLUMNS = ("created_at", "chain", "action", "outcome", "actor", "target")
RECORDED = ("begun_at", "tenant", "namespace", "pod", "command", "caller", "exit_code", "id")

app = typer.Typer(help="What happened, and who did it.", no_args_is_help=True)

Tenant = Annotated[str, typer.Option(help="The chain: a tenant, or system.")]
Action = Annotated[str, typer.Option(help="As in workspace.suspend.")]
Actor = Annotated[str, typer.Option(help="Who did it, by e-mail address.")]
Text = Annotated[str, typer.Option(help="Words in action, actor and target.")]
Since = Annotated[str, typer.Option(help="As in 2026-01-31T08:00:00Z, included.")]
Until = Annotated[str, typer.Option(help="Not included.")]


class File(StrEnum):
    """The forms of an export."""

    JSONL = "jsonl"
    CSV = "csv"


@app.command("list")
def list_(
    context: typer.Context,
    tenant: Tenant = "",
    action: Action = "",
    actor: Actor = "",
    text: Text = "",
    since: Since = "",
    until: Until = "",
    limit: Annotated[int, typer.Option(min=0, help="The newest so many; 0 for all.")] = 50,
    output: Output = Format.TABLE,
) -> None:
    """List events, newest first."""
    asked = _asked(tenant=tenant, action=action, actor=actor, text=text, since=since, until=until)
    show(connect(context).pages("audit-logs", "", limit=limit, **asked), COLUMNS, output)


@app.command()
def export(
    context: typer.Context,
    tenant: Tenant = "",
    action: Action = "",
    actor: Actor = "",
    text: Text = "",
    since: Since = "",
    until: Until = "",
    form: Annotated[File, typer.Option("--format", help="The form of the file.")] = File.JSONL,
) -> None:
    """Write events with their hashes to standard output, oldest first."""
    asked = _asked(tenant=tenant, action=action, actor=actor, text=text, since=since, until=until)
    for piece in connect(context).stream("audit-logs", "export", **asked, format=form.value):
        sys.stdout.buffer.write(piece)


@app.command()
def recordings(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="Of this tenant alone.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="The newest so many; 0 for all.")] = 50,
    output: Output = Format.TABLE,
) -> None:
    """List recorded sessions in pods, newest first; the portal plays them."""
    show(connect(context).pages("recordings", "", limit=limit, **_asked(tenant=tenant)), RECORDED, output)


def _asked(**filters: str) -> dict[str, str]:
    return {name: value for name, value in filters.items() if value}
