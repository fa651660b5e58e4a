"""The columns of ``kubectl get`` for every built-in kind, with the cells as kube-apiserver fills them."""

from __future__ import annotations

from typing import Final

from kube.objects.columns import cluster, networking, storage, workloads
from kube.objects.columns.base import Column, TableConvertor

CONVERTORS: Final[dict[tuple[str, str], TableConvertor]] = {
    **workloads.CONVERTORS,
    **networking.CONVERTORS,
    **storage.CONVERTORS,
    **cluster.CONVERTORS,
}
"""(group, kind) → columns and cells."""

__all__ = ["CONVERTORS", "Column", "TableConvertor"]
