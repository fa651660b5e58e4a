"""A terminal in a browser, in a container that runs on a real node: through the door, as everybody goes (GW27, GW21)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tenants.models import Cluster, PodConnection, Recording, RecordingMode, Role, StreamCount, User, Workspace
from tenants.services import tier_change, workspace_suspend
from tests import factories, node
from tests.browser.conftest import CHROMIUM, chromium  # noqa: F401 - a fixture
from tests.browser.window import Visit
from tests.gateway.callers import eventually
from tests.gateway.placed.conftest import House
from tests.portalserver import served_portal
from tests.tenants.conftest import OPERATOR

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


def until(window: Visit, selector: str, text: str) -> None:
    window.page.locator(selector, has_text=text).wait_for()


def opened(window: Visit) -> None:
    window.page.get_by_role("button", name="Open").click()
    until(window, "[data-terminal-said]", "Open.")


def test_a_shell_in_a_real_container(
    new_house: Callable[[], House],
    with_node: None,
    chromium: Any,  # noqa: F811
    settings: Any,
) -> None:
    """It is recorded, listed, and ended by an admin, a sign-out and a suspension, each with its words."""
    house = new_house()
    server, namespace = house.door.server, house.running
    settings.PORTAL_TOKEN_KEY_FILE = server.folder / "pki" / "portal-tokens.key"
    authority = (server.folder / "pki" / "ca.crt").read_text()
    factories.cluster("own", kind=Cluster.Kind.EMBEDDED, server=server.url, ca_data=authority, is_default=False)
    house.door.person("ed", Role.EDITOR)
    house.door.person("vi", Role.VIEWER)
    editor, viewer, owner = (User.objects.get(email=f"{name}@{house.door.name}.test") for name in ("ed", "vi", "olga"))
    workspace = Workspace.objects.get(k8s_namespace=namespace)
    tier_change(actor=OPERATOR, name=workspace.tier_id, recording=RecordingMode.OUTPUT)
    container = {
        "name": "c",
        "image": node.IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "1000000"],
    }
    spec = {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1"}, "spec": spec}
    house.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(pod))
    house.kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/web-1", "--timeout=240s")
    at = f"/workspaces/{workspace.pk}/contents/pods/web-1/terminal/"

    with served_portal() as (site, _):
        window = Visit(chromium, site)
        window.sign_in(editor)
        page = window.page
        page.goto(site + at)
        opened(window)
        page.keyboard.type("echo answer $((6 * 7)); stty size\r")
        until(window, ".xterm-rows", "answer 42")
        rows = page.locator(".xterm-rows > div").count()
        until(window, ".xterm-rows", f"{rows} ")

        listed = PodConnection.objects.filter(namespace=namespace, ended_by="")
        assert eventually(listed.exists)
        found = listed.get()
        assert (found.caller, found.pod, found.way) == (editor.email, "web-1", "exec")
        assert eventually(lambda: StreamCount.objects.filter(namespace=namespace, open__gt=0).exists())
        desk = Client()
        desk.force_login(owner)
        assert editor.email in desk.get("/connections/").content.decode()
        assert desk.post(reverse("pod-connection-end", args=[found.pk])).status_code == 302
        until(window, "[data-terminal-said]", f"{owner.email} has ended this connection")

        opened(window)
        page.keyboard.type("exit 3\r")
        until(window, "[data-terminal-said]", "The command has ended with the exit status 3.")
        kept = Recording.objects.filter(namespace=namespace).exclude(ended_at=None)
        assert eventually(lambda: kept.count() == 2)
        assert set(kept.values_list("caller", "command", "exit_code")) == {
            (editor.email, "sh", None),
            (editor.email, "sh", 3),
        }
        first = kept.order_by("begun_at").first()
        assert first is not None
        assert b"answer 42" in desk.get(f"/recordings/{first.pk}/cast/").content

        opened(window)
        other = window.context.new_page()
        other.goto(site)
        other.get_by_role("button", name="Sign out").click()
        until(window, "[data-terminal-said]", "Sign in again.")
        other.close()
        window.sign_in(editor)

        page.goto(site + at)
        page.get_by_label("Command", exact=True).fill("nothing-like-it")
        page.get_by_role("button", name="Open").click()
        until(window, "[data-terminal-said]", "nothing-like-it")
        page.get_by_label("Command", exact=True).fill("sh")
        opened(window)
        workspace_suspend(actor=OPERATOR, workspace_id=workspace.pk, reason="Mining")
        until(window, "[data-terminal-said]", "Mining")
        page.get_by_role("button", name="Open").click()
        until(window, "[data-terminal-said]", "Not opened: The workspace is suspended: Mining")
        window.context.close()

    looking = Client()
    looking.force_login(viewer)
    assert looking.post(f"{at}ticket/", {"container": "c", "command": "sh"}).status_code == 409
