"""Container images without a builder: archives as ``docker save`` writes them, each image of one layer."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any


def write_image(
    path: Path, names: Sequence[str], config: dict[str, Any], fill: Callable[[tarfile.TarFile], None]
) -> Path:
    """An archive at ``path``: what ``fill`` puts into the layer, run as ``config`` says, known by all these names."""
    layer = path.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        fill(tar)
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    made = {
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": list(names), "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        tar.add(layer, "layer.tar")
        for name, document in (("config.json", made), ("manifest.json", manifest)):
            data = json.dumps(document).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    layer.unlink()
    return path
