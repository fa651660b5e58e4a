"""What a write through a subresource can change of any object."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kube.kinds.builtins import BUILTINS
from kube.kinds.resources import Resource, Scale, Version
from kube.objects.patches import deep_copy
from kube.objects.subresources import part_of, written
from kube.validation.podparts import ephemeral_causes, resize_causes

Body = dict[str, Any]

ANSWERED = {"attach", "eviction", "exec", "log", "portforward", "proxy", "token"}
"""Subresources that write nothing of the object."""

PARTS = [
    (resource, part.name)
    for resource in BUILTINS
    for part in resource.preferred.subresources
    if part.name not in ANSWERED
]
CUSTOM = Resource(
    group="example.com",
    kind="Widget",
    plural="widgets",
    singular="widget",
    list_kind="WidgetList",
    namespaced=True,
    versions=(Version(name="v1"),),
    custom=True,
)
METADATA = ("labels", "annotations", "finalizers", "ownerReferences", "generateName")
CONTAINERS = ("containers", "initContainers")

words = st.text("abc", min_size=1, max_size=3)
values = st.recursive(words | st.integers(0, 9), lambda inner: st.dictionaries(words, inner, max_size=2), max_leaves=4)


@st.composite
def objects(draw: st.DrawFn) -> Body:
    """Anything that an object can hold, with the same two containers."""
    container = {name: draw(values) for name in ("image", "securityContext", "resources", "resizePolicy")}
    holders = {field: [{**container, "name": name, "command": draw(values)} for name in "ab"] for field in CONTAINERS}
    spec = {name: draw(values) for name in ("hostNetwork", "nodeName", "replicas", "finalizers", "ephemeralContainers")}
    status = {name: draw(values) for name in ("phase", "conditions", "certificate")}
    metadata = {name: draw(values) for name in METADATA}
    own = {"name": "x", "uid": "u", "resourceVersion": str(draw(st.integers(1, 9)))}
    body = {"spec": spec | holders | {"resources": draw(values)}, "status": status, "data": draw(words)}
    return {"apiVersion": "v1", "kind": "X", "metadata": metadata | own, **body}


def leaves(node: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Fields by their paths, two levels deep, and those of containers one by one."""
    if isinstance(node, list) and len(path) == 2:
        found = [leaves(item, (*path, item["name"])) for item in node]
        return {place: value for each in found for place, value in each.items()}
    if not isinstance(node, dict) or len(path) in (2, 4):
        return {path: node}
    return {place: value for name, held in node.items() for place, value in leaves(held, (*path, name)).items()}


def may(part: str, path: tuple[str, ...]) -> bool:
    """Whether Kubernetes lets this part write the field, by the words of its documentation."""
    if path[0] == "metadata":
        bound = part == "binding" and path[1] in ("labels", "annotations")
        return bound or path[1] == "resourceVersion" or part in ("status", "approval", "finalize")
    match part:
        case "status":
            return path[0] == "status"
        case "approval":
            return path == ("status", "conditions")
        case "scale":
            return path == ("spec", "replicas")
        case "finalize":
            return path == ("spec", "finalizers")
        case "ephemeralcontainers":
            return path == ("spec", "ephemeralContainers")
        case "binding":
            return path in (("spec", "nodeName"), ("status", "conditions"), ("status", "nominatedNodeName"))
        case "resize":
            of_container = path[:2] in {("spec", field) for field in CONTAINERS}
            return path == ("spec", "resources") or (of_container and path[-1] in ("resources", "resizePolicy"))
    raise AssertionError(part)


@settings(max_examples=30)
@given(old=objects(), new=objects())
def test_a_part_takes_its_own_fields_and_no_others(old: Body, new: Body) -> None:
    """Of every kind, by every subresource, with everything changed in one request (TS15)."""
    was, wanted = leaves(deep_copy(old)), leaves(deep_copy(new))
    for resource, name in PARTS:
        kept = leaves(written(resource, name, None, old, new))
        for path in was:
            if not may(name, path):
                assert kept[path] == was[path], (resource.kind, name, path)
            elif path[0] != "metadata":
                assert kept[path] == wanted[path], (resource.kind, name, path)
        assert kept.keys() == was.keys()
    assert (leaves(old), leaves(new)) == (was, wanted)


@given(old=objects(), new=objects())
def test_of_custom_objects_no_part_writes_metadata(old: Body, new: Body) -> None:
    scale = Scale(("spec", "replicas"), ("status", "replicas"))
    for name, field in (("status", ("status",)), ("scale", ("spec", "replicas"))):
        body = written(CUSTOM, name, scale, old, new)
        assert body["metadata"] == old["metadata"] | {"resourceVersion": new["metadata"]["resourceVersion"]}
        changed = {path for path, value in leaves(old).items() if leaves(body)[path] != value}
        assert all(path[: len(field)] == field for path in changed if path[0] != "metadata")


def test_metadata_that_the_status_leaves_alone() -> None:
    old = {"metadata": dict.fromkeys(METADATA, "old"), "status": {}}
    new = {"metadata": dict.fromkeys(METADATA, "new"), "status": {}}
    kept = {
        resource.qualified_name: {
            name
            for name, value in written(resource, "status", None, old, new)["metadata"].items()
            if value == "old"  # as it was
        }
        for resource, part in PARTS
        if part == "status"
    }
    assert kept["pods"] == {"ownerReferences"}
    assert kept["deployments.apps"] == {"labels"}
    assert kept["customresourcedefinitions.apiextensions.k8s.io"] == set(METADATA) - {"generateName"}
    assert kept["services"] == kept["namespaces"] == set()


def test_every_part_that_writes_has_its_rule() -> None:
    for resource, name in PARTS:
        assert part_of(resource, name, None).fields, (resource.kind, name)


containers = st.lists(st.fixed_dictionaries({"name": words, "image": words}), max_size=3, unique_by=lambda c: c["name"])


@given(containers, containers)
def test_ephemeral_containers_are_only_added(before: list[Body], after: list[Body]) -> None:
    causes = ephemeral_causes({"spec": {"ephemeralContainers": after}}, {"spec": {"ephemeralContainers": before}})
    assert bool(causes) == (not all(each in after for each in before))


amounts = st.dictionaries(st.sampled_from(("cpu", "memory", "ephemeral-storage")), st.integers(1, 3).map(str))
sized = st.builds(
    lambda name, requests: {"name": name, "resources": {"requests": requests}}, st.sampled_from("ab"), amounts
)
pods = st.lists(sized, min_size=1, max_size=2).map(lambda found: {"spec": {"containers": found}})


@given(pods, pods)
def test_a_resize_changes_cpu_and_memory_alone(old: Body, new: Body) -> None:
    if resize_causes(new, old):
        return
    for before, after in zip(old["spec"]["containers"], new["spec"]["containers"], strict=True):
        was, now = before["resources"]["requests"], after["resources"]["requests"]
        assert before["name"] == after["name"]
        assert set(was) <= set(now)
        assert {name for name in now if now[name] != was.get(name)} <= {"cpu", "memory"}
