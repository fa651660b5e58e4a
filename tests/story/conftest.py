"""One product for the whole story."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.story.product import Product


@pytest.fixture(scope="session")
def product() -> Iterator[Product]:
    """A first start in an empty folder, with databases of its own."""
    with tempfile.TemporaryDirectory(prefix="tenantry-story-") as folder:
        Path(folder).chmod(0o711)
        product = Product(Path(folder) / "data")
        product.start()
        yield product
        product.stop()
