"""Workspaces and their kubeconfigs."""

from __future__ import annotations

import sys
import time
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer

from tenantry_cli.api import Api
from tenantry_cli.commands.tenants import Yes, confirm
from tenantry_cli.context import connect
from tenantry_cli.failures import Failure, Status
from tenantry_cli.output import Format, Output, say, show, show_pairs
from tenantry_cli.signin import write_private

COLUMNS = ("tenant", "name", "tier", "cluster", "status", "namespace", "user", "id")
_PAUSE = 1.0

app = typer.Typer(help="Workspaces: namespaces with quota and rights.", no_args_is_help=True)

Workspace = Annotated[str, typer.Argument(help="TENANT/NAME, NAME where it is the only one, or the ID.")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Until a worker has done it.")]
Timeout = Annotated[int, typer.Option(min=1, help="Seconds to wait at most.")]


@app.command("list")
def list_(
    context: typer.Context,
    tenant: Annotated[str, typer.Option(help="Of this tenant only.")] = "",
    status: Annotated[str, typer.Option(help="active or suspended.")] = "",
    search: Annotated[str, typer.Option(help="Any part of a name, a namespace or a person, or a whole UID.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """List workspaces, newest first."""
    rows = connect(context).pages("workspaces", "", tenant=tenant, status=status, search=search)
    show(rows, COLUMNS, output)


@app.command()
def get(context: typer.Context, workspace: Workspace, output: Output = Format.TABLE) -> None:
    """Show a workspace."""
    show_pairs(_found(connect(context), workspace), output)


@app.command()
def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="Its name; without one it is made of yours and the tier's.")] = "",
    tier: Annotated[str, typer.Option(help="What it may use; see `tenantry tiers list`.")] = "basic",
    tenant: Annotated[str, typer.Option(help="By default your only one.")] = "",
    cluster: Annotated[str, typer.Option(help="By default the portal's.")] = "",
    wait: Wait = True,
    timeout: Timeout = 300,
    output: Output = Format.TABLE,
) -> None:
    """Ask for a workspace and wait until it is ready. The same name again is the same workspace."""
    api = connect(context)
    body = {"tier": tier, "tenant": tenant, "name": name, "cluster": cluster}
    made = api.post("workspaces", "", body=body, **{"Idempotency-Key": str(uuid.uuid4())})
    show_pairs(_settled(api, made, timeout) if wait else made, output)


@app.command()
def suspend(
    context: typer.Context,
    workspace: Workspace,
    reason: Annotated[str, typer.Option(help="What its people read.")],
    stop: Annotated[bool, typer.Option("--stop", help="End its pods too.")] = False,
    wait: Wait = True,
    timeout: Timeout = 300,
    output: Output = Format.TABLE,
) -> None:
    """Close a workspace at once, and wait until its cluster has confirmed it (operators)."""
    api = connect(context)
    closed = api.post(*_path(api, workspace), "suspend", body={"reason": reason, "stop": stop})
    show_pairs(_settled(api, closed, timeout) if wait else closed, output)


@app.command()
def freeze(
    context: typer.Context,
    workspace: Workspace,
    reason: Annotated[str, typer.Option(help="What its people read.")],
    until: Annotated[str, typer.Option(help="An RFC 3339 time; until it is ended without.")] = "",
    output: Output = Format.TABLE,
) -> None:
    """Let its people read and not write, from now on (operators)."""
    api = connect(context)
    show_pairs(api.post(*_path(api, workspace), "freeze", body={"reason": reason, "until": until or None}), output)


@app.command()
def thaw(context: typer.Context, workspace: Workspace) -> None:
    """Let its people write again (operators)."""
    api = connect(context)
    api.post(*_path(api, workspace), "thaw")
    say("It can be written to, unless its tenant is frozen.")


@app.command()
def resume(
    context: typer.Context,
    workspace: Workspace,
    wait: Wait = True,
    timeout: Timeout = 300,
    output: Output = Format.TABLE,
) -> None:
    """Open a workspace again (operators); credentials from before stay dead."""
    api = connect(context)
    opened = api.post(*_path(api, workspace), "resume")
    show_pairs(_settled(api, opened, timeout) if wait else opened, output)


@app.command()
def delete(
    context: typer.Context, workspace: Workspace, yes: Yes = False, wait: Wait = True, timeout: Timeout = 300
) -> None:
    """Delete a workspace and everything in it."""
    api = connect(context)
    found = _found(api, workspace)
    confirm(f"Delete {found['tenant']}/{found['name']} and everything in it?", yes=yes)
    gone = api.delete("workspaces", found["id"], "")
    if wait:
        _settled(api, gone, timeout)
    say(f"{found['tenant']}/{found['name']} is {'deleted' if wait else 'being deleted'}.")


def kubeconfig(
    context: typer.Context,
    workspace: Workspace,
    file: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file, which you alone can read; - for standard output.")
    ] = None,
    via: Annotated[str, typer.Option(help="direct, gateway or exec; by default what the cluster recommends.")] = "",
    role: Annotated[str, typer.Option(help="viewer, editor or admin; by default your own.")] = "",
    minutes: Annotated[int, typer.Option(help="How long its token works, 10 to 120; two hours by default.")] = 0,
) -> None:
    """Issue a kubeconfig for a workspace. It holds a credential, so that no terminal shows it unless it is told to."""
    if file is None and sys.stdout.isatty():
        raise Failure("It holds a credential: name a file with -o FILE, or -o - to show it here.", Status.USAGE)
    api = connect(context)
    body = {key: value for key, value in (("via", via), ("role", role), ("minutes", minutes)) if value}
    issued = api.post(*_path(api, workspace), "credentials", body=body)
    if file is None or str(file) == "-":
        sys.stdout.write(issued["kubeconfig"])
        return
    write_private(file, issued["kubeconfig"])
    say(f"export KUBECONFIG={file}  # until {issued['expires_at'] or 'your session ends'}")


def _found(api: Api, workspace: str) -> Any:
    """The workspace that is meant. Raises ``Failure`` when there is none, or more than one."""
    try:
        return api.get("workspaces", str(uuid.UUID(workspace)), "")
    except ValueError:
        pass
    tenant, _, name = workspace.rpartition("/")
    found = [row for row in api.pages("workspaces", "", search=name, tenant=tenant) if row["name"] == name]
    if not found:
        raise Failure(f"There is no workspace {workspace}; `tenantry workspaces list` names them.", Status.NOT_FOUND)
    if len(found) > 1:
        names = ", ".join(f"{row['tenant']}/{row['name']}" for row in found[:10])
        raise Failure(f"There are several: {names}. Name one of them.", Status.CONFLICT)
    return found[0]


def _path(api: Api, workspace: str) -> tuple[str, str]:
    return "workspaces", str(_found(api, workspace)["id"])


def _settled(api: Api, workspace: Any, timeout: int) -> Any:
    """The workspace once no worker has anything to do for it; each step is said. Raises ``Failure`` after ``timeout``."""
    until, said = time.monotonic() + timeout, ""
    # The portal's words for what still goes on: provisioning, suspending, resuming, deleting.
    while workspace["status"].endswith("ing"):
        progress = _progress(api, workspace)
        if progress != said:
            say(progress)
        if time.monotonic() >= until:
            name = f"{workspace['tenant']}/{workspace['name']}"
            raise Failure(f"{name} is still {progress}; look again with `tenantry workspaces get`.", Status.UNAVAILABLE)
        said = progress
        time.sleep(min(_PAUSE, max(0.0, until - time.monotonic())))
        workspace = api.get("workspaces", workspace["id"], "")
    return workspace


def _progress(api: Api, workspace: Any) -> str:
    """What goes on, and what stands in its way."""
    for operation in api.pages("operations", "", limit=50, tenant=workspace["tenant"]):
        if operation["workspace"] == workspace["id"]:
            words = (workspace["status"], operation["step"], operation["error"])
            return ": ".join(word for word in words if word)
    return str(workspace["status"])
