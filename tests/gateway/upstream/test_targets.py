"""Paths inside a cluster are rebuilt from what was resolved here, and every reader finds the same in them (GW4)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from gateway.handlers.placednamespaces.forwarding import target_of
from gateway.http.messages import Request

PARTS = st.text(st.sampled_from("aZ0-._~/%:?#;&+ \\\x00é") | st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.sampled_from(["", "apps"]), PARTS, PARTS, st.sampled_from(["", "log"]))
def test_each_part_of_a_path_is_one_part(group: str, namespace: str, name: str, subresource: str) -> None:
    info = SimpleNamespace(
        group=group,
        version="v1",
        namespace=namespace,
        resource="pods",
        name=name,
        subresource=subresource,
        verb="get",
        rest="",
    )
    target = target_of(cast("Request", SimpleNamespace(info=info, parameters={}))).decode("ascii")
    root = ["api", "v1"] if not group else ["apis", group, "v1"]
    parts = ["", *root, "namespaces", namespace, "pods", name, *([subresource] if subresource else [])]
    assert [unquote(part) for part in target.split("/")] == parts
    assert not set("?#") & set(target)
