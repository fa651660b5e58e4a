"""Requests from a shell: listed, approved, denied (GW25)."""

from __future__ import annotations

from tenants.models import User
from tests import factories
from tests.portal.commandline import Shell
from tests.portal.conftest import House
from tests.portal.test_command_line import shell  # noqa: F401


def test_an_owner_decides_from_a_shell(acme: House, globex: House, shell: Shell) -> None:  # noqa: F811
    found = factories.access_request(acme.tenant, acme.viewer)
    shell.sign_in(globex.owner)
    assert shell.done("requests", "list", "-o", "json").json == []
    assert shell.run("requests", "approve", str(found.pk)).status == 5
    shell.sign_in(acme.owner)
    (row,) = shell.done("requests", "list", "-o", "json").json
    assert (row["id"], row["asked_by"]) == (str(found.pk), acme.viewer.email)
    decided = shell.done("requests", "approve", str(found.pk), "--note", "fine", "-o", "json").json
    assert (decided["state"], decided["answer"]) == ("approved", "fine")
    assert User.objects.get(pk=acme.viewer.pk).memberships.get().role == "owner"
    assert shell.run("requests", "deny", str(found.pk), "--reason", "x").status != 0
    assert shell.done("requests", "get", str(found.pk), "-o", "json").json["comments"] == []
