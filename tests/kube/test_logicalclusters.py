"""Logical cluster paths, full paths and registry keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.requests import logicalclusters as clusters

LABELS = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)


@pytest.mark.parametrize(
    ("path", "tenant", "parent"),
    [
        ("root", "system", None),
        ("system:admin", "system", None),
        ("root:acme", "acme", "root"),
        ("root:acme:ws", "acme", "root:acme"),
        ("root:acme:ws:deep", "acme", "root:acme:ws"),
    ],
)
def test_a_path_has_a_tenant_and_a_parent(path: str, tenant: str, parent: str | None) -> None:
    """KC13."""
    assert clusters.is_valid(path)
    assert clusters.tenant_of(path) == tenant
    assert clusters.parent_of(path) == parent


@pytest.mark.parametrize(
    "path",
    [
        "",
        "root:",
        ":root",
        "root:system",
        "root:all",
        "root:Acme",
        "root:a.b",
        "root::a",
        "acme",
        "system",
        "system:x",
        "*",
        "root:*",
        "root:acme\n",
        "root:acme:",
        "root/acme",
        "ROOT",
        "root:acme:" + ":".join("abcdefghijklmnop"),
    ],
)
def test_what_cannot_exist_is_no_path(path: str) -> None:
    """KC12, URL-10."""
    assert not clusters.is_valid(path)
    try:
        assert clusters.tenant_of(path) not in {"", "system"}
    except ValueError:
        assert not path.startswith("root:") or path in {"root:", "root:system", "root::a"}


def test_workspaces_nest_but_not_in_the_bootstrap_cluster() -> None:
    assert clusters.child_of("root:acme", "ws") == "root:acme:ws"
    for path, name in [("system:admin", "x"), ("root:acme", "A"), ("root", "system"), ("root:acme", "a:b")]:
        with pytest.raises(ValueError, match="workspace"):
            clusters.child_of(path, name) if ":" not in name else clusters.child_of(path, name.upper())


@pytest.mark.parametrize(
    ("cluster", "arguments", "path"),
    [
        ("root", ("", "v1", "pods", "ns", "p"), "/api/v1/namespaces/ns/pods/p"),
        ("root:t1", ("", "v1", "pods", "default", "pod1"), "/api/v1/tenants/t1/namespaces/default/pods/pod1"),
        ("root:t1", ("", "v1", "persistentvolumes", "", "pv1"), "/api/v1/tenants/t1/persistentvolumes/pv1"),
        ("root:t1", ("", "v1", "namespaces", "n", "n"), "/api/v1/tenants/t1/namespaces/n"),
        (
            "root:t1",
            ("apps", "v1", "deployments", "n", ""),
            "/apis/apps/v1/tenants/t1/namespaces/n/deployments",
        ),
        ("root:t1:ws", ("", "v1", "pods", "n", "p"), "/clusters/root:t1:ws/api/v1/namespaces/n/pods/p"),
        (
            "system:admin",
            ("rbac.authorization.k8s.io", "v1", "clusterroles", "", "system:x y/%"),
            "/clusters/system:admin/apis/rbac.authorization.k8s.io/v1/clusterroles/system:x%20y%2F%25",
        ),
    ],
)
def test_full_paths(cluster: str, arguments: tuple[str, str, str, str, str], path: str) -> None:
    """TS4, TS5."""
    group, version, resource, namespace, name = arguments
    assert clusters.full_path(cluster, group, version, resource, namespace=namespace, name=name) == path


@pytest.mark.parametrize(
    ("cluster", "group", "resource", "namespace", "name", "key"),
    [
        (
            "root",
            "apiregistration.k8s.io",
            "apiservices",
            "",
            "v1.x",
            "/registry/apiregistration.k8s.io/apiservices/v1.x",
        ),
        ("root", "", "serviceaccounts", "kube-system", "jc", "/registry/serviceaccounts/kube-system/jc"),
        (
            "root:tenant-a",
            "",
            "namespaces",
            "kube-public",
            "kube-public",
            "/registry/namespaces/tenant-a/kube-public",
        ),
        (
            "root:tenant-a",
            "",
            "serviceaccounts",
            "kube-system",
            "jc",
            "/registry/serviceaccounts/tenant-a/kube-system/jc",
        ),
    ],
)
def test_registry_keys_follow_arktos(
    cluster: str, group: str, resource: str, namespace: str, name: str, *, key: str
) -> None:
    """TS9: the four examples of Arktos' design."""
    assert clusters.registry_key(cluster, resource, group=group, namespace=namespace, name=name) == key


@given(LABELS, st.lists(LABELS, max_size=4))
def test_children_and_parents_undo_each_other(tenant: str, names: list[str]) -> None:
    path = clusters.ROOT
    for name in [f"t{tenant}", *names]:
        child = clusters.child_of(path, name)
        assert clusters.parent_of(child) == path
        assert clusters.tenant_of(child) == f"t{tenant}"
        path = child
