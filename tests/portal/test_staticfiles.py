"""Static files in the production shape and before anything is collected."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.test import Client

from portal.staticfiles import HashedOnceCollected
from tenants.models import User
from tests.portal.conftest import House, signed_in, stranger
from tests.portal.test_signin_steps import present


def test_collected_files_have_names_that_change_with_them(settings: Any, tmp_path: Path) -> None:
    """So that browsers may keep them for ever."""
    settings.STATIC_ROOT = str(tmp_path)
    assert HashedOnceCollected().url("css/00-tokens.css") == "/static/css/00-tokens.css"
    call_command("collectstatic", interactive=False, verbosity=0, ignore_patterns=["admin", "rest_framework"])
    url = HashedOnceCollected().url("css/00-tokens.css")
    assert re.fullmatch(r"/static/css/00-tokens\.[0-9a-f]{12}\.css", url)
    style = (tmp_path / url.removeprefix("/static/")).read_text()
    fonts = re.findall(r'url\("\.\./(fonts/[a-z-]+\.[0-9a-f]{12}\.woff2)"\)', style)
    assert fonts
    assert all((tmp_path / font).is_file() for font in fonts)
    settings.WHITENOISE_USE_FINDERS = False
    answer = Client().get(url)
    assert answer.status_code == 200
    assert "immutable" in answer.headers["Cache-Control"]


COLD = 100_000
"""Bytes of a page and all it names, for who has nothing of it yet."""


def loaded(client: Client, path: str) -> int:
    """What a browser that takes gzip loads for a page."""
    page = client.get(path, headers={"Accept-Encoding": "gzip, br"})
    assert page.status_code == 200
    assert page.headers["Content-Encoding"] == "gzip"
    text = gzip.decompress(page.content).decode()
    named = set(re.findall(r'(?:href|src)="(/static/[^"#]+)', text))
    styles = [Client().get(name).getvalue().decode() for name in named if name.endswith(".css")]
    named |= {f"/static/{font}" for style in styles for font in re.findall(r'url\("\.\./(fonts/[^"]+)"\)', style)}
    assert len(named) > 10
    files = [Client().get(name, headers={"Accept-Encoding": "gzip, br"}) for name in named]
    return len(page.content) + sum(len(file.getvalue()) for file in files)


def test_pages_are_small_before_anything_is_collected(acme: House) -> None:
    """As the quickstart serves them (GW14)."""
    client = signed_in(acme.owner)
    for path in ("/", "/workspaces/", f"/workspaces/{acme.workspace.pk}/", "/tenants/acme/", "/explain/", "/profile/"):
        assert loaded(client, path) < COLD, path
    assert loaded(Client(), "/login/") < COLD


def test_answers_that_show_a_secret_are_not_compressed(acme: House) -> None:
    """Nor is their length told by what stands beside the secret."""
    form = {"name": "pipeline", "scope": "read", "days": "30"}
    shown = signed_in(acme.owner).post("/tokens/new/", form, headers={"Accept-Encoding": "gzip"})
    assert shown.status_code == 200
    assert "tnt_" in shown.content.decode()
    assert "Content-Encoding" not in shown.headers


def test_pages_that_show_a_secret_each_time_are_not_compressed(acme: House, operator: User, settings: Any) -> None:
    """An app's secret is the same until it is confirmed: lengths of many answers would tell of it."""
    settings.SECOND_FACTOR_FOR_OPERATORS = True
    on_the_way = stranger()
    assert present(on_the_way, operator).headers["Location"] == "/login/factor/"
    for client, path in ((signed_in(acme.owner), "/profile/factor/"), (on_the_way, "/login/factor/")):
        shown = client.get(path, headers={"Accept-Encoding": "gzip"})
        assert (shown.status_code, 'id="secret"' in shown.content.decode()) == (200, True)
        assert "Content-Encoding" not in shown.headers


def test_what_is_not_collected_is_compressed_for_who_takes_it(settings: Any) -> None:
    assert settings.WHITENOISE_USE_FINDERS
    source = (Path(__file__).parents[2] / "static" / "css" / "30-components.css").read_bytes()
    path = "/static/css/30-components.css"
    plain, small = Client().get(path), Client().get(path, headers={"Accept-Encoding": "gzip"})
    assert plain.getvalue() == gzip.decompress(small.content) == source
    assert "Content-Encoding" not in plain.headers
    assert "Accept-Encoding" in plain.headers["Vary"]
    assert small.headers["Content-Encoding"] == "gzip"
    assert small.headers["Last-Modified"] == plain.headers["Last-Modified"]
    font = Client().get("/static/fonts/geist.woff2", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in font.headers, "it is compressed already"


def test_the_player_of_recordings_is_what_its_makers_published() -> None:
    """asciinema-player 3.18.0 of the npm registry, unchanged, with its licence beside it."""
    folder = Path(__file__).parents[2] / "static" / "asciinema-player-3.18.0"
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in folder.iterdir()} == {
        "LICENSE.txt": "63422284ed65be54",
        "asciinema-player.css": "981fe7bc6042048b",
        "asciinema-player.min.js": "752c9b528b664f5b",
    }


def test_the_terminal_is_what_its_makers_published() -> None:
    """xterm.js 6.0.0 of the npm registry, unchanged, with its licence beside it."""
    static = Path(__file__).parents[2] / "static"
    folders = ("xterm-6.0.0", "xterm-addon-fit-0.11.0")
    files = {f"{name}/{file.name}": file for name in folders for file in (static / name).iterdir()}
    assert {name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for name, file in files.items()} == {
        "xterm-6.0.0/LICENSE.txt": "b569f629d00f2626",
        "xterm-6.0.0/xterm.css": "854a7c0fb70e8b1a",
        "xterm-6.0.0/xterm.mjs": "b336ec65a086c056",
        "xterm-addon-fit-0.11.0/LICENSE.txt": "e256f01188af527e",
        "xterm-addon-fit-0.11.0/addon-fit.mjs": "2d87e1bddc73be91",
    }
