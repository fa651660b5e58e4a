"""Questions about rights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tenantry_cli.context import connect
from tenantry_cli.declarations.documents import read_changes, read_object
from tenantry_cli.failures import Failure, Status
from tenantry_cli.output import Format, Output, say, show


def explain(
    context: typer.Context,
    method: Annotated[str, typer.Argument(help="GET, POST, PUT, PATCH or DELETE.")],
    path: Annotated[str, typer.Argument(help="As kubectl sends it: /api/v1/namespaces/shop/pods")],
    user: Annotated[str, typer.Option("--as", help="Somebody's e-mail address; by default yours.")] = "",
    groups: Annotated[list[str] | None, typer.Option("--group", help="A further group; may be repeated.")] = None,
    tenant: Annotated[str, typer.Option(help="The user's tenant.")] = "",
    cluster: Annotated[str, typer.Option(help="The logical cluster, as in root:acme.")] = "",
    file: Annotated[Path | None, typer.Option("--file", "-f", help="What it sends; - reads it.")] = None,
    patch: Annotated[
        str, typer.Option("--type", help="Of the changes that a PATCH sends: strategic, merge, json or apply.")
    ] = "strategic",
    output: Output = Format.TABLE,
) -> None:
    """Explain whether a request would be allowed, and by which step, without sending it."""
    api = connect(context)
    who = {"name": user or api.get("me", "")["email"], "groups": groups or [], "tenant": tenant}
    body: dict[str, Any] = {"user": who, "method": method, "path": path, "cluster": cluster}
    if file is not None:
        body |= {"manifest": read_changes(file) if patch == "json" else read_object(file), "patchType": patch}
    found = api.post("access", "explain", body=body)
    if output is not Format.TABLE:
        show(found, [], output)
        return
    say(f"{found['decision']}, decided by {found['decidedBy']}: {found['reason']}")
    show(found["trace"], ["step", "decision", "reason", "rule"], output)


def who_can(
    context: typer.Context,
    verb: Annotated[str, typer.Argument(help="get, list, create, delete, …")],
    resource: Annotated[str, typer.Argument(help="pods, deployments.apps, pods/log, or a path such as /healthz")],
    name: Annotated[str, typer.Argument(help="One object; by default any.")] = "",
    tenant: Annotated[str, typer.Option(help="In the space of this tenant.")] = "",
    cluster: Annotated[str, typer.Option(help="In this logical cluster, as in root:acme:shop.")] = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="By default in all.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """List who may do a thing, and by which binding."""
    if bool(tenant) == bool(cluster):
        raise Failure("Say where: --tenant NAME, or --cluster root:NAME.", Status.USAGE)
    body = {"cluster": cluster or f"root:{tenant}", "verb": verb, "namespace": namespace, "name": name}
    if resource.startswith("/"):
        body["path"] = resource
    else:
        kind, _, body["subresource"] = resource.partition("/")
        body["resource"], _, body["group"] = kind.partition(".")
    rows = connect(context).post("access", "who-can", body=body)["results"]
    show(rows, ["kind", "name", "namespace", "tenant", "path"], output)


def add_to(app: typer.Typer) -> None:
    """Make them commands of ``app``."""
    app.command()(explain)
    app.command("who-can")(who_can)
