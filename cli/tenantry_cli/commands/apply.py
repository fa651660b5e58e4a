"""Declarations made true."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tenantry_cli.commands.tenants import confirm
from tenantry_cli.context import connect
from tenantry_cli.declarations.changes import Action, Change, plan
from tenantry_cli.declarations.documents import read_documents, read_text
from tenantry_cli.declarations.portal import carry_out, current_of, found_of, managed_by
from tenantry_cli.failures import Failure, Status, printable
from tenantry_cli.output import Format, Output, say, show

_SIGNS = {Action.CREATE: "+", Action.CHANGE: "~", Action.DELETE: "-"}


def apply(
    context: typer.Context,
    file: Annotated[Path, typer.Option("--file", "-f", help="YAML documents; - for standard input.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    manager: Annotated[
        str, typer.Option(help="This declaration's name: what is made is marked with it, for --prune.")
    ] = "",
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what apply made under --manager and is declared no more.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Make tenants, tiers and members as they are declared, in whichever order; what is so already stays untouched."""
    if prune and not manager:
        raise Failure("--prune needs --manager: it deletes only what was made under that name.", Status.USAGE)
    declared = read_documents(read_text(file))
    api = connect(context)
    changes = plan(declared, current_of(api, declared), managed_by(api, manager) if prune else ())
    deleted = [change for change in changes if change.action is Action.DELETE]
    # Before it is shown and agreed to: what is deleted is what somebody said yes to.
    found = {change.item: found_of(api, change.item, manager) for change in deleted}
    if output is not Format.TABLE:
        show([change.as_dict() for change in changes], [], output)
    else:
        for change in changes:
            _show(change)
    unchanged = len(declared) - (len(changes) - len(deleted))
    if dry_run:
        say(f"{len(changes)} to change, {unchanged} as declared. Nothing was done.")
        return
    if deleted:
        confirm(f"Delete {len(deleted)}, with everything in them?", yes=yes)
    for done, change in enumerate(changes):
        try:
            carry_out(api, change, manager, found)
        except Failure as failure:
            words = f"{change.item}: {failure} ({done} of {len(changes)} done; apply again goes on)"
            raise Failure(words, failure.status) from None
    say(f"{len(changes)} changed, {unchanged} as declared.")


def _show(change: Change) -> None:
    # Texts of a file that is to be judged by this, and of tenants: none of them makes a line of its own, or hides one.
    typer.echo(f"{_SIGNS[change.action]} {printable(change.item)}")
    for field, (before, after) in change.fields.items():
        said = printable(after) if before is None else f"{printable(before)} -> {printable(after)}"
        typer.echo(f"    {printable(field)}: {said}")
