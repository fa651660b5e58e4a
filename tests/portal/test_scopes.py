"""What the scopes of personal access tokens open: every route of the REST API with every method."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from portal.api import urls
from portal.api.endpoint import Endpoint
from portal.api.permissions import Scoped
from tests.kept import kept
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
QUESTIONS: dict[str, Any] = {
    "access/explain": {"method": "GET", "path": "/api/v1/pods", "user": {"name": "x", "tenant": "acme"}},
    "access/would-allow": {"method": "GET", "path": "/api/v1/pods", "user": {"name": "x", "tenant": "acme"}},
    "access/who-can": {"cluster": "root:acme", "verb": "get", "resource": "pods"},
    "access/what-if": {
        "cluster": "root:acme",
        "manifest": {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "r", "namespace": "n"},
            "rules": [],
        },
    },
    "access/inspect": {"text": "/O=tenant:acme/CN=x"},
}
"""What is asked by POST: a body would not fit into an address."""

TRACES = {"personal_access_tokens", "audit_logs", "audit_chains", "store_revision"}
"""Where reading leaves traces as well: when a token was last used, that it was refused or exported.

The counter of the store is a server's to mend, when it notices an emptied database; what is kept is compared.
"""


def every_route() -> list[tuple[str, type[Endpoint], str]]:
    return [
        (str(pattern.pattern), pattern.callback.view_class, method)
        for pattern in urls.urlpatterns
        for method in METHODS
        if method == "OPTIONS" or hasattr(pattern.callback.view_class, _handler(method))
    ]


def _handler(method: str) -> str:
    return "get" if method == "HEAD" else method.lower()


def address(route: str, house: House) -> str:
    credential = "00000000-0000-0000-0000-000000000000"
    for part, value in (
        ("<str:pk>", house.workspace.pk),
        ("<str:jti>", credential),
        ("<str:name>", house.tenant.name),
        ("<str:policy>", "p"),
        ("<uuid:user_id>", house.viewer.pk),
        ("<uuid:pk>", credential),
    ):
        route = route.replace(part, str(value))
    if route == "audit-logs/export":
        return f"{route}?tenant={house.tenant.name}"
    return f"{route}?workspace={house.workspace.pk}" if route.endswith("/kubeconfig") else route


def everything() -> dict[str, list[str]]:
    """All that is kept, but traces of having looked."""
    return kept(but=TRACES)


@pytest.mark.parametrize(("route", "view", "method"), every_route(), ids=lambda part: str(part))
def test_a_read_token_opens_what_reads_and_nothing_else(
    acme: House, route: str, view: type[Endpoint], method: str
) -> None:
    """A scope follows what a route does: nothing that it opens changes anything or hands a credential out."""
    script = bearer(acme.owner, "read")
    before = everything()
    answer = send(script, method, address(route, acme), QUESTIONS.get(route))
    assert everything() == before
    body = b"".join(answer.streaming_content) if answer.streaming else answer.content
    if method != "HEAD":
        # Other refusals, such as those to whoever is no operator, have other words.
        assert (Scoped.message.encode() in body) is (method not in view.read_methods), body
    assert b"BEGIN " not in body
    assert b"current-context" not in body
    if method == "POST":
        assert (route in QUESTIONS) is (answer.status_code == 200), body


def test_what_is_asked_by_post_is_reading_and_a_kubeconfig_is_not() -> None:
    """Each other route reads with GET and writes with the rest."""
    unusual = {
        (str(pattern.pattern), method)
        for pattern in urls.urlpatterns
        for method in METHODS
        if (method in pattern.callback.view_class.read_methods) is not (method in {"GET", "HEAD", "OPTIONS"})
        and hasattr(pattern.callback.view_class, _handler(method))
    }
    assert unusual == {("workspaces/credentials/kubeconfig", "GET")} | {(route, "POST") for route in QUESTIONS}


@pytest.mark.parametrize("route", QUESTIONS)
def test_questions_are_for_every_scope_and_for_sessions(acme: House, route: str) -> None:
    clients: list[Client] = [signed_in(acme.owner), *(bearer(acme.owner, scope) for scope in ("read", "write"))]
    assert [send(client, "POST", route, QUESTIONS[route]).status_code for client in clients] == [200] * 3
