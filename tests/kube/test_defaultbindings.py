"""What a workspace type may name as the beginning of its workspaces (KC10, KC11)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kube.workspaces import defaultbindings
from kube.workspaces.defaultbindings import Export

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
ENTRIES = st.fixed_dictionaries({}, optional={"path": JUNK, "export": JUNK})


@given(st.one_of(JUNK, st.lists(st.one_of(ENTRIES, JUNK), max_size=3)), JUNK)
def test_whatever_a_type_says_is_judged_without_breaking(named: Any, lifecycle: Any) -> None:
    spec = {"defaultAPIBindings": named, "defaultAPIBindingLifecycle": lifecycle}
    causes = defaultbindings.causes(spec, "root:acme")
    for export in defaultbindings.wanted(spec, "root:acme"):
        assert isinstance(export.path, str)
        assert isinstance(export.name, str)
        if not causes:
            assert export.path.startswith(("root:acme", "root"))


@given(st.text("abc", min_size=1, max_size=300), st.text("abc", min_size=1, max_size=300))
def test_each_export_has_a_binding_of_its_own_name(one: str, other: str) -> None:
    names = []
    for name in (one, other):
        (_, _, _, place), body = defaultbindings.binding(
            "root:acme:team", Export("root:acme", name, "i"), (), kind="root:acme:t", uid="u", now="n"
        )
        assert place == body["metadata"]["name"]
        assert len(place) <= 253
        names.append(place)
    assert (names[0] == names[1]) == (one == other)
