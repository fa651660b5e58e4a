"""The catalog and the discovery documents made from it."""

from __future__ import annotations

import pytest

from kube.kinds.builtins import BUILTINS, OWN, TENANT_BUILTINS
from kube.kinds.resources import (
    ALL_VERBS,
    Catalog,
    Resource,
    Version,
    api_version,
    parse_api_version,
    version_order,
)
from kube.openapi import discovery


def custom(group: str, kind: str, *versions: str) -> Resource:
    return Resource(
        group=group,
        kind=kind,
        plural=f"{kind.lower()}s",
        singular=kind.lower(),
        list_kind=f"{kind}List",
        namespaced=True,
        versions=tuple(Version(name=name) for name in versions),
        custom=True,
    )


def test_a_resource_is_found_by_its_plural_and_by_its_kind() -> None:
    deployments = BUILTINS.find("apps", "v1", "deployments")
    assert deployments is not None
    assert deployments is BUILTINS.by_kind("apps", "v1", "Deployment")
    assert deployments.qualified_name == "deployments.apps"
    assert BUILTINS.find("apps", "v1beta1", "deployments") is None
    assert BUILTINS.find("", "v1", "deployments") is None


def test_events_of_both_groups_are_one_storage() -> None:
    core, named = BUILTINS.find("", "v1", "events"), BUILTINS.find("events.k8s.io", "v1", "events")
    assert core is not None and named is not None
    assert core.storage_key == named.storage_key == ("", "events")


@pytest.mark.parametrize(
    "plural",
    [
        "nodes",
        "tenants",
        "componentstatuses",
        "csidrivers",
        "csinodes",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "flowschemas",
    ],
)
def test_what_belongs_to_the_system_does_not_exist_in_tenant_spaces(plural: str) -> None:
    """AD4, ADM: cluster-scoped is not system, and system is not shown to tenants."""
    assert any(resource.plural == plural for resource in BUILTINS)
    assert not any(resource.plural == plural for resource in TENANT_BUILTINS)


@pytest.mark.parametrize("plural", ["priorityclasses", "runtimeclasses"])
def test_what_operators_show_is_read_in_tenant_spaces_and_never_written(plural: str) -> None:
    assert [set(found.verbs) for found in TENANT_BUILTINS if found.plural == plural] == [{"get", "list", "watch"}]
    assert [set(found.verbs) for found in BUILTINS if found.plural == plural] == [set(ALL_VERBS)]


@pytest.mark.parametrize("plural", ["namespaces", "clusterroles", "customresourcedefinitions", "persistentvolumes"])
def test_tenant_spaces_hold_cluster_scoped_objects_of_their_own(plural: str) -> None:
    """TS3."""
    assert any(resource.plural == plural and not resource.namespaced for resource in TENANT_BUILTINS)


def test_tenant_spaces_hold_workspaces_and_exports_of_their_own() -> None:
    """KC13."""
    for resource in OWN:
        assert TENANT_BUILTINS.by_group_resource(resource.group, resource.plural) is resource


def test_a_later_resource_takes_precedence() -> None:
    """TS12."""
    published, own = custom("x.io", "Thing", "v1"), custom("x.io", "Thing", "v2")
    catalog = TENANT_BUILTINS.extended([published]).extended([own])
    assert catalog.find("x.io", "v2", "things") is own
    assert catalog.find("x.io", "v1", "things") is None


def test_versions_are_in_kubernetes_order() -> None:
    names = [
        "foo10",
        "v1alpha1",
        "v10",
        "v2beta1",
        "v2",
        "foo1",
        "v1",
        "v3alpha2",
        "v11beta2",
        "v1beta1",
        "v01",
    ]
    ordered = sorted(names, key=version_order)
    assert ordered == [
        "v10",
        "v2",
        "v1",
        "v11beta2",
        "v2beta1",
        "v1beta1",
        "v3alpha2",
        "v1alpha1",
        "foo1",
        "foo10",
        "v01",
    ]


@pytest.mark.parametrize("text", ["", "/", "a/", "/v1", "a/b/c"])
def test_a_malformed_api_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unexpected GroupVersion string"):
        parse_api_version(text)


def test_api_versions_round_trip() -> None:
    assert [parse_api_version(api_version(*pair)) for pair in (("", "v1"), ("apps", "v1"))] == [
        ("", "v1"),
        ("apps", "v1"),
    ]


def test_groups_come_in_the_real_servers_order_with_the_preferred_version_first() -> None:
    document = discovery.api_group_list(BUILTINS.extended([custom("b.io", "X", "v1"), custom("a.io", "Y", "v1")]))
    names = [group["name"] for group in document["groups"]]
    assert names[:4] == ["apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io"]
    assert [name for name in names if name in {"a.io", "abac.authorization.kubernetes.io", "b.io"}] == [
        "a.io",
        "abac.authorization.kubernetes.io",
        "b.io",
    ]
    autoscaling = discovery.api_group(BUILTINS, "autoscaling")
    assert autoscaling is not None
    assert autoscaling["preferredVersion"] == {"groupVersion": "autoscaling/v2", "version": "v2"}
    assert [entry["version"] for entry in autoscaling["versions"]] == ["v2", "v1"]


def test_an_unknown_group_or_version_has_no_document() -> None:
    assert discovery.api_group(BUILTINS, "nope") is None
    assert discovery.api_group(BUILTINS, "") is None
    assert discovery.api_resource_list(BUILTINS, "apps", "v9") is None


def test_a_version_lists_its_resources_with_their_subresources() -> None:
    document = discovery.api_resource_list(BUILTINS, "apps", "v1")
    assert document is not None
    by_name = {entry["name"]: entry for entry in document["resources"]}
    assert list(by_name)[:4] == ["controllerrevisions", "daemonsets", "daemonsets/status", "deployments"]
    assert by_name["deployments"] == {
        "name": "deployments",
        "singularName": "deployment",
        "namespaced": True,
        "kind": "Deployment",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["deploy"],
        "categories": ["all"],
        "storageVersionHash": "8aSe+NMegvE=",
    }
    assert by_name["deployments/scale"] == {
        "name": "deployments/scale",
        "singularName": "",
        "namespaced": True,
        "group": "autoscaling",
        "version": "v1",
        "kind": "Scale",
        "verbs": ["get", "patch", "update"],
    }


@pytest.mark.parametrize("version", discovery.AGGREGATED_VERSIONS)
def test_aggregated_discovery_says_the_same_as_the_lists(version: str) -> None:
    for core in (True, False):
        document = discovery.aggregated(BUILTINS, core=core, version=version)
        assert document["apiVersion"] == f"apidiscovery.k8s.io/{version}"
        for group in document["items"]:
            name = group["metadata"].get("name", "")
            assert core == (name == "")
            for entry in group["versions"]:
                plain = discovery.api_resource_list(BUILTINS, name, entry["version"])
                assert plain is not None
                flat = [
                    full
                    for resource in entry["resources"]
                    for full in (
                        resource["resource"],
                        *(f"{resource['resource']}/{p['subresource']}" for p in resource.get("subresources", ())),
                    )
                ]
                assert flat == [resource["name"] for resource in plain["resources"]]


def test_short_names_are_unique_within_a_group() -> None:
    seen: set[tuple[str, str]] = set()
    for resource in BUILTINS:
        for name in (resource.plural, resource.singular, *resource.short_names):
            if name == resource.singular == resource.plural and (resource.group, name) in seen:
                continue
            assert (resource.group, name) not in seen
            seen.add((resource.group, name))


def test_an_empty_catalog_has_no_groups() -> None:
    assert Catalog(()).groups() == {}
