"""What is in a workspace, in the portal: asked of the API server as the person, with no more rights than theirs (GW27)."""

from __future__ import annotations

import base64
import html
import re
import time
from typing import Any

import pytest
from django.test import Client

from access.models import Credential, Login
from audit.models import ApiRequest
from tenants.models import Phase
from tests.clusters import TestCluster
from tests.portal.inhabited import HOSTILE, RIGHT_TO_LEFT, Inhabited, deployment, inhabited, pod, secret

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme(embedded: TestCluster, settings: Any) -> Inhabited:
    settings.PORTAL_TOKEN_KEY_FILE = embedded.real.folder / "pki" / "portal-tokens.key"
    return inhabited(embedded, "acme")


def text_of(answer: Any) -> str:
    """What a reader sees."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode())))


def test_an_editor_looks_around(acme: Inhabited) -> None:
    browser = acme.browser()
    empty = browser.get(acme.url())
    assert empty.status_code == 200, empty.content.decode()
    assert "Nothing runs here yet" in text_of(empty)
    acme.put(deployment("web"), pod("web-1"), pod("web-2"), secret("keys", token="c2VjcmV0"))
    assert "2 Pods" in text_of(browser.get(acme.url()))
    listed = text_of(browser.get(acme.url("pods/")))
    assert "web-1" in listed
    assert "Running" in listed
    shown = text_of(browser.get(acme.url("deployments.apps/web/")))
    assert "1 of 2 ready" in shown
    assert "web-2" in shown
    assert "managedFields:" not in shown
