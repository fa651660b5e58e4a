"""An installation's own name and links, and what to do with a file on each system (GW14)."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portal.pages.links import PLACES, links_for, links_read
from tests.portal.conftest import House, signed_in

PRINTABLE = st.characters(exclude_categories=("C", "Z"), include_characters=" ")
"""As ``str.isprintable`` has it: most of what is drawn without this is not, and Hypothesis gives up."""

GRAFANA = {"Grafana": "https://grafana.example.org/d/ns?var-namespace={namespace}&t={tenant}"}


def test_a_workspaces_page_leads_to_the_installations_own_tools(acme: House, settings: Any) -> None:
    settings.WORKSPACE_LINKS, settings.PORTAL_NAME = links_read(GRAFANA), "Harbour"
    page = signed_in(acme.viewer).get(f"/workspaces/{acme.workspace.pk}/").content.decode()
    where = f"https://grafana.example.org/d/ns?var-namespace={acme.workspace.k8s_namespace}&amp;t=acme"
    assert f'href="{where}" rel="noopener noreferrer"' in page
    assert "· Harbour</title>" in page
    settings.WORKSPACE_LINKS = {}
    assert "Elsewhere" not in signed_in(acme.viewer).get(f"/workspaces/{acme.workspace.pk}/").content.decode()


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"x": 1},
        {"": "https://x.test/"},
        {"x" * 41: "https://x.test/"},
        {"x": "javascript:alert(1)"},
        {"x": "//x.test/"},
        {"x": "https://{tenant}.test/"},
        {"x": "https://x.test/{person}"},
        {"x": "https://x.test/{tenant"},
        {"x": "https://[x"},
        {str(number): "https://x.test/" for number in range(13)},
    ],
    ids=str,
)
def test_a_link_that_could_lead_elsewhere_stops_the_start(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        links_read(wrong)


@given(st.fixed_dictionaries({place: st.text(PRINTABLE, max_size=20) for place in PLACES}))
def test_what_is_filled_in_stays_one_part_of_the_address(values: dict[str, str]) -> None:
    url = links_for({"x": "https://x.test/a/{namespace}/b?c={tenant}"}, values)[0]["url"]
    parts = urlsplit(url)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "x.test", "")
    assert parts.path.count("/") == 3
    assert unquote(parts.path) == f"/a/{values['namespace']}/b"
    assert unquote(parts.query.removeprefix("c=")) == values["tenant"]


def test_every_system_is_told_what_to_do_with_the_file(acme: House) -> None:
    """By paste as well, so that no shell keeps the token in its history."""
    answer = signed_in(acme.editor).post("/tenants/acme/kubeconfig/", {"kind": "gateway"})
    if answer.status_code == 200:
        page = answer.content.decode()
        for words in ("On Linux and macOS", "On Windows (PowerShell)", "Get-Clipboard", "umask 077"):
            assert words in page
