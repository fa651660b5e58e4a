"""Tiers, clusters, and rules about what the objects of a tenant may be."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
import yaml

from tenantry_cli.commands.tenants import Name
from tenantry_cli.context import connect
from tenantry_cli.declarations.documents import read_text
from tenantry_cli.failures import Failure, Status
from tenantry_cli.output import Format, Output, say, show, show_pairs

tiers = typer.Typer(help="What workspaces may use.", no_args_is_help=True)
clusters = typer.Typer(help="Where workspaces are made (operators).", no_args_is_help=True)
policies = typer.Typer(help="What the objects of a tenant may be.", no_args_is_help=True)

Rules = Annotated[Path, typer.Option("--file", "-f", help="Rules by name, in YAML; - for standard input.")]


class Kind(StrEnum):
    """What a report can be about."""

    DORMANT_PEOPLE = "dormant-people"
    DORMANT_WORKSPACES = "dormant-workspaces"
    QUOTA_NEARLY_USED = "quota-nearly-used"
    QUOTA_HARDLY_USED = "quota-hardly-used"
    COSTS = "costs"


_SHARES = ("tenant", "resource", "used", "hard", "share")
REPORTED = {
    Kind.DORMANT_PEOPLE: ("email", "name", "created_at", "last_used_at"),
    Kind.DORMANT_WORKSPACES: ("tenant", "name", "owner", "created_at", "last_used_at"),
    Kind.QUOTA_NEARLY_USED: _SHARES,
    Kind.QUOTA_HARDLY_USED: _SHARES,
    Kind.COSTS: ("tenant", "total"),
}


def report(
    context: typer.Context,
    kind: Annotated[Kind, typer.Argument(help="Which one.")],
    days: Annotated[str, typer.Option(help="Dormant for so long: 30, 90 or 180.")] = "",
    month: Annotated[str, typer.Option(help="Of the costs, as in 2026-11; this one without.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="The first so many; 0 for all.")] = 50,
    output: Output = Format.TABLE,
) -> None:
    """Look through what nobody uses, what is full, and what it costs (operators and auditors)."""
    asked = {name: value for name, value in (("days", days), ("month", month)) if value}
    show(connect(context).pages("reports", kind.value, "", limit=limit, **asked), REPORTED[kind], output)


@tiers.command("list")
def tiers_list(context: typer.Context, output: Output = Format.TABLE) -> None:
    """List the tiers on offer; operators see withdrawn ones too."""
    columns = ("name", "display_name", "workspaces_per_user", "is_available", "description")
    show(connect(context).pages("tiers", ""), columns, output)


@tiers.command("get")
def tiers_get(
    context: typer.Context, name: Annotated[str, typer.Argument(help="The tier's name.")], output: Output = Format.TABLE
) -> None:
    """Show a tier."""
    show_pairs(connect(context).get("tiers", name, ""), output)


@clusters.command("list")
def clusters_list(context: typer.Context, output: Output = Format.TABLE) -> None:
    """List clusters."""
    columns = ("name", "kind", "server", "version", "last_seen_at", "unreached_since", "credential_expires_at")
    show(connect(context).pages("clusters", ""), columns, output)


@clusters.command("get")
def clusters_get(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The cluster's name.")],
    output: Output = Format.TABLE,
) -> None:
    """Show a cluster."""
    show_pairs(connect(context).get("clusters", name, ""), output)


@clusters.command("rotate")
def clusters_rotate(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The cluster's name.")],
    file: Annotated[Path, typer.Option("--file", "-f", help="The new kubeconfig; - for standard input.")],
) -> None:
    """Put a new credential of the gateway's in the place of the old one; it is tried first."""
    found = connect(context).post("clusters", name, "credential", body={"kubeconfig": read_text(file)})
    say(f"Rotated; the credential of {name} ends at {found['credential_expires_at'] or 'no time that it says'}.")


@policies.command("get")
def policies_get(context: typer.Context, tenant: Name, output: Output = Format.TABLE) -> None:
    """Show a tenant's own rules, and what they come to with those of its tiers."""
    found = connect(context).get("tenants", tenant, "policies", "")
    if output is not Format.TABLE:
        show(found, [], output)
        return
    rows = [
        {"tier": effective["tier"] or "(none)", "rule": rule, "value": value}
        for effective in found["effective"]
        for rule, value in effective["policies"].items()
    ]
    show(rows, ["tier", "rule", "value"], output)


@policies.command("try")
def policies_try(context: typer.Context, tenant: Name, file: Rules, output: Output = Format.TABLE) -> None:
    """List what is there and breaks rules that are not saved yet (operators)."""
    try:
        rules = yaml.safe_load(read_text(file))
    except yaml.YAMLError as error:
        raise Failure(f"{file} is no YAML: {error}", Status.INVALID) from None
    found = connect(context).post("tenants", tenant, "policies", "what-if", body={"policies": rules})
    if output is not Format.TABLE:
        show(found, [], output)
        return
    for unseen in found["unseen"]:
        say(f"Not looked at: {unseen}")
    show(found["offenders"], ["space", "namespace", "kind", "name", "rule", "message"], output)
