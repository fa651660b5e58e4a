"""Tenants, their members and their quota."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from tenantry_cli.context import connect
from tenantry_cli.declarations.changes import plan
from tenantry_cli.declarations.documents import Fields, Item, Kind
from tenantry_cli.declarations.portal import current_of
from tenantry_cli.failures import Failure, Status
from tenantry_cli.output import Format, Output, say, show, show_pairs

COLUMNS = ("name", "display_name", "state", "created_at")
MEMBERS = ("email", "name", "role")

app = typer.Typer(help="Tenants, their members and quota.", no_args_is_help=True)
members = typer.Typer(help="Who is in a tenant.", no_args_is_help=True)
quota = typer.Typer(help="What a tenant may hold.", no_args_is_help=True)
app.add_typer(members, name="members")
app.add_typer(quota, name="quota")

Name = Annotated[str, typer.Argument(help="The tenant's name.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Amounts = Annotated[list[str] | None, typer.Option("--quota", help="A bound, as in pods=30; may be repeated.")]


@app.command("list")
def list_(
    context: typer.Context,
    search: Annotated[str, typer.Option(help="Any part of a name.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """List the tenants that you are in; operators see all."""
    show(connect(context).pages("tenants", "", search=search), COLUMNS, output)


@app.command()
def get(context: typer.Context, name: Name, output: Output = Format.TABLE) -> None:
    """Show a tenant."""
    show_pairs(connect(context).get("tenants", name, ""), output)


@app.command("create")
def create_(
    context: typer.Context,
    name: Name,
    display_name: Annotated[str, typer.Option(help="As people read it.")] = "",
    owner: Annotated[str, typer.Option(help="The first owner's e-mail address.")] = "",
    bounds: Amounts = None,
    output: Output = Format.TABLE,
) -> None:
    """Create a tenant (operators). One that is there just as it is asked for is no failure."""
    api = connect(context)
    said = {"display_name": display_name, "quota": amounts_of(bounds or [])}
    wanted: dict[Item, Fields] = {Item(Kind.TENANT, name): {field: value for field, value in said.items() if value}}
    if owner:
        wanted[Item(Kind.MEMBER, owner.lower(), name)] = {"role": "owner"}
    try:
        made = api.post("tenants", "", body={"name": name, "owner": owner, **wanted[Item(Kind.TENANT, name)]})
    except Failure as failure:
        if failure.reason != "AlreadyExists":
            raise
        differences = plan(wanted, current_of(api, wanted), ())
        if differences:
            fields = ", ".join(field for change in differences for field in change.fields)
            raise Failure(f"{failure}, and differs in {fields}.", failure.status) from None
        say(f"The tenant {name} is there already.")
        made = api.get("tenants", name, "")
    show_pairs(made, output)


@app.command()
def suspend(
    context: typer.Context,
    name: Name,
    reason: Annotated[str, typer.Option(help="What its people read.")],
    stop: Annotated[bool, typer.Option("--stop", help="End its pods too.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Close a tenant and suspend its workspaces, at once (operators)."""
    show_pairs(connect(context).post("tenants", name, "suspend", body={"reason": reason, "stop": stop}), output)


@app.command()
def resume(context: typer.Context, name: Name, output: Output = Format.TABLE) -> None:
    """Open a tenant again (operators)."""
    show_pairs(connect(context).post("tenants", name, "resume"), output)


@app.command()
def freeze(
    context: typer.Context,
    name: Name,
    reason: Annotated[str, typer.Option(help="What its people read.")],
    until: Annotated[str, typer.Option(help="An RFC 3339 time; until it is ended without.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """Let its people read and not write, from now on (operators)."""
    body = {"reason": reason, "until": until or None}
    show_pairs(connect(context).post("tenants", name, "freeze", body=body), output)


@app.command()
def thaw(context: typer.Context, name: Name) -> None:
    """Let its people write again (operators)."""
    connect(context).post("tenants", name, "thaw")
    say(f"The tenant {name} can be written to, as far as its workspaces are not frozen by themselves.")


@app.command()
def offboard(
    context: typer.Context,
    name: Name,
    reason: Annotated[str, typer.Option(help="What its people read.")],
    days: Annotated[int, typer.Option(help="How long it is kept before it is deleted.")] = 30,
    suspend: Annotated[bool, typer.Option("--suspend", help="Suspend it instead of freezing it.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Let a tenant leave: closed now, exported by its people, deleted after some time (operators)."""
    body = {"reason": reason, "days": days, "manner": "suspend" if suspend else "freeze"}
    show_pairs(connect(context).post("tenants", name, "offboard", body=body), output)


@app.command()
def retain(context: typer.Context, name: Name) -> None:
    """Call off that a tenant leaves (operators)."""
    connect(context).post("tenants", name, "retain")
    say(f"The tenant {name} stays.")


@app.command()
def export(
    context: typer.Context,
    name: Name,
    file: Annotated[Path, typer.Option("--file", "-f", help="Where the archive is written; it must not be there yet.")],
    secrets: Annotated[bool, typer.Option("--secrets", help="With Secrets, as far as you may read them.")] = False,
) -> None:
    """Write all that you may read of a tenant into one ZIP archive."""
    api = connect(context)
    pieces = api.stream("tenants", name, "export", body={"secrets": secrets})
    first = next(pieces, b"")
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Failure(f"{file} cannot be written: {error.strerror}.", Status.USAGE) from None
    with os.fdopen(descriptor, "wb") as archive:
        archive.write(first)
        for piece in pieces:
            archive.write(piece)
    say(f"{file} holds the export of {name}; its manifest.json names every file.")


@app.command()
def delete(context: typer.Context, name: Name, yes: Yes = False) -> None:
    """Delete a tenant and everything in it, at once (operators); `offboard` keeps it for some time."""
    confirm(f"Delete the tenant {name} and everything in it?", yes=yes)
    connect(context).delete("tenants", name, "")
    say(f"The tenant {name} is being deleted.")


@members.command("list")
def members_list(context: typer.Context, tenant: Name, output: Output = Format.TABLE) -> None:
    """List a tenant's members."""
    show(connect(context).pages("tenants", tenant, "members", ""), MEMBERS, output)


@members.command("set")
def members_set(
    context: typer.Context,
    tenant: Name,
    email: Annotated[str, typer.Argument(help="Of somebody who has an account.")],
    role: Annotated[str, typer.Argument(help="owner, admin, editor or viewer.")],
    output: Output = Format.TABLE,
) -> None:
    """Add a member, or change the role."""
    body = {"email": email, "role": role}
    show(connect(context).post("tenants", tenant, "members", "", body=body), MEMBERS, output)


@members.command("remove")
def members_remove(
    context: typer.Context, tenant: Name, email: Annotated[str, typer.Argument(help="The member's address.")]
) -> None:
    """End a membership, and the credentials that came of it."""
    api = connect(context)
    for member in api.pages("tenants", tenant, "members", ""):
        if member["email"].lower() == email.lower():
            api.delete("tenants", tenant, "members", member["user_id"], "")
            say(f"{email} is out of {tenant}.")
            return
    raise Failure(f"{email} is no member of {tenant}.", Status.NOT_FOUND)


@quota.command("get")
def quota_get(context: typer.Context, tenant: Name, output: Output = Format.TABLE) -> None:
    """Show what a tenant may hold and what it holds."""
    _show_quota(connect(context).get("tenants", tenant, "quota", ""), output)


@quota.command("set")
def quota_set(
    context: typer.Context,
    tenant: Name,
    bounds: Annotated[list[str], typer.Argument(help="As in pods=30; `pods=` lifts a bound.")],
    output: Output = Format.TABLE,
) -> None:
    """Change bounds of a tenant (operators); those that are not named stay."""
    api = connect(context)
    hard = {**api.get("tenants", tenant, "quota", "")["hard"], **amounts_of(bounds)}
    wanted = {resource: amount for resource, amount in hard.items() if amount}
    _show_quota(api.put("tenants", tenant, "quota", "", body={"hard": wanted}), output)


def amounts_of(bounds: list[str]) -> dict[str, str]:
    """``pods=30`` as a quota has it. Raises ``Failure``."""
    found = {}
    for bound in bounds:
        resource, equals, amount = bound.partition("=")
        if not equals or not resource:
            raise Failure(f"A bound is RESOURCE=AMOUNT, as in pods=30, not {bound}.", Status.USAGE)
        found[resource] = amount
    return found


def confirm(question: str, *, yes: bool) -> None:
    """Go on when somebody says so. Raises ``typer.Abort``."""
    if not yes:
        typer.confirm(question, abort=True, err=True)


def _show_quota(found: Any, output: Format) -> None:
    if output is not Format.TABLE:
        show({"hard": found["hard"], "used": found["used"]}, [], output)
        return
    rows = [{"resource": name, "used": found["used"].get(name), "hard": hard} for name, hard in found["hard"].items()]
    show(rows, ["resource", "used", "hard"], output)
