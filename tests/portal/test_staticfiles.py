"""Static files in the production shape and before anything is collected."""

from __future__ import annotations

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
