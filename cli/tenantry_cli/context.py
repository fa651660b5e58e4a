"""What the words before a command say, for the command to use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import typer

from tenantry_cli.api import Api
from tenantry_cli.signin import sign_in


@dataclass(frozen=True, slots=True)
class Portal:
    """Which portal and which token, as far as the command line or the environment says."""

    url: str
    token: str = field(repr=False)
    ca_file: str


def portal_of(context: typer.Context) -> Portal:
    """What was said before the command."""
    return cast("Portal", context.obj)


def connect(context: typer.Context) -> Api:
    """The portal's API, closed with the command. Raises ``Failure`` when nobody is signed in."""
    said = portal_of(context)
    api = Api(sign_in(url=said.url, token=said.token, ca_file=said.ca_file))
    return context.with_resource(api)
