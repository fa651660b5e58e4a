"""Static files in the production shape and before anything is collected."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.test import Client

from portal.staticfiles import HashedOnceCollected


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


def test_the_player_of_recordings_is_what_its_makers_published() -> None:
    """asciinema-player 3.18.0 of the npm registry, unchanged, with its licence beside it."""
    folder = Path(__file__).parents[2] / "static" / "asciinema-player-3.18.0"
    assert {file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:16] for file in folder.iterdir()} == {
        "LICENSE.txt": "63422284ed65be54",
        "asciinema-player.css": "981fe7bc6042048b",
        "asciinema-player.min.js": "752c9b528b664f5b",
    }
