"""Static files: under hashed names that browsers keep for ever once they are collected, as they are before."""

from __future__ import annotations

from django.contrib.staticfiles.storage import StaticFilesStorage
from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedOnceCollected(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Reads the manifest that ``collectstatic`` wrote (``manage.py bootstrap`` runs it); the quickstart has none."""

    def url(self, name: str | None, force: bool = False) -> str:
        """The address of a file."""
        if not self.hashed_files:
            return StaticFilesStorage.url(self, name)
        return str(super().url(name, force))
