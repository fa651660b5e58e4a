"""The columns of ``kubectl get`` for every built-in kind, with the cells as kube-apiserver fills them."""

from __future__ import annotations

from typing import Final

from kube.objects.columns import cluster, networking, storage, workloads
from kube.objects.columns.shapes import Column, Shape

SHAPES: Final[dict[tuple[str, str], Shape]] = {
    **workloads.SHAPES,
    **networking.SHAPES,
    **storage.SHAPES,
    **cluster.SHAPES,
}
"""(group, kind) → shape."""

__all__ = ["SHAPES", "Column", "Shape"]
