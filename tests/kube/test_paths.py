"""From raw request lines to resolved requests: one reading of every path, and no second one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.paths import parse, query_parameters, resolve
from kube.requestinfo import RequestInfo
from kube.status import BadRequest, MethodNotAllowed, NotFound, StatusError


def ask(
    path: str | bytes,
    method: str = "GET",
    *,
    query: bytes = b"",
    tenant: str | None = "t1",
    default: str | None = None,
) -> RequestInfo:
    raw = path.encode() if isinstance(path, str) else path
    return resolve(parse(method, raw, query), tenant, default)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        # verb, group, version, resource, subresource, namespace, name
        ("GET", "/api/v1/namespaces/a/pods/p", ("get", "", "v1", "pods", "", "a", "p")),
        ("HEAD", "/api/v1/namespaces/a/pods/p", ("get", "", "v1", "pods", "", "a", "p")),
        ("GET", "/api/v1/namespaces/a/pods", ("list", "", "v1", "pods", "", "a", "")),
        ("GET", "/api/v1/namespaces/a/pods/", ("list", "", "v1", "pods", "", "a", "")),
        ("GET", "/api/v1/pods", ("list", "", "v1", "pods", "", "", "")),
        ("GET", "/api/v1/namespaces", ("list", "", "v1", "namespaces", "", "", "")),
        ("GET", "/api/v1/namespaces/a", ("get", "", "v1", "namespaces", "", "a", "a")),
        ("PUT", "/api/v1/namespaces/a/finalize", ("update", "", "v1", "namespaces", "finalize", "a", "a")),
        ("PATCH", "/api/v1/namespaces/a/status", ("patch", "", "v1", "namespaces", "status", "a", "a")),
        ("POST", "/api/v1/namespaces/a/pods", ("create", "", "v1", "pods", "", "a", "")),
        ("POST", "/api/v1/namespaces/a/pods/p/exec", ("create", "", "v1", "pods", "exec", "a", "p")),
        ("DELETE", "/api/v1/namespaces/a/pods/p", ("delete", "", "v1", "pods", "", "a", "p")),
        ("DELETE", "/api/v1/namespaces/a/pods", ("deletecollection", "", "v1", "pods", "", "a", "")),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            ("patch", "apps", "v1", "deployments", "scale", "a", "d"),
        ),
        ("GET", "/apis/g.io/v1beta1/things/x", ("get", "g.io", "v1beta1", "things", "", "", "x")),
        ("GET", "/api/v1/watch/pods", ("watch", "", "v1", "pods", "", "", "")),
        ("GET", "/api/v1/watch/namespaces/a/pods/p", ("watch", "", "v1", "pods", "", "a", "p")),
        (
            "GET",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode%20x",
            ("get", "rbac.authorization.k8s.io", "v1", "clusterroles", "", "", "system:node x"),
        ),
    ],
)
def test_verbs_and_parts_are_those_of_kubernetes(method: str, path: str, expected: tuple[str, ...]) -> None:
    """TS4, TS6."""
    info = ask(path, method)
    found = (info.verb, info.group, info.version, info.resource, info.subresource, info.namespace, info.name)
    assert found == expected
    assert info.is_resource
    assert (info.tenant, info.cluster) == ("t1", "root:t1")


@pytest.mark.parametrize(
    ("path", "tenant", "default", "cluster", "owner", "full"),
    [
        (
            "/api/v1/namespaces/a/pods/p",
            "t1",
            None,
            "root:t1",
            "t1",
            "/api/v1/tenants/t1/namespaces/a/pods/p",
        ),
        (
            "/api/v1/namespaces/a/pods/p",
            "t1",
            "dt",
            "root:t1",
            "t1",
            "/api/v1/tenants/t1/namespaces/a/pods/p",
        ),
        (
            "/api/v1/namespaces/a/pods/p",
            None,
            "dt",
            "root:dt",
            "dt",
            "/api/v1/tenants/dt/namespaces/a/pods/p",
        ),
        ("/api/v1/namespaces/a/pods/p", None, None, "root", "system", "/api/v1/namespaces/a/pods/p"),
        ("/api/v1/namespaces/a/pods/p", "system", "dt", "root", "system", "/api/v1/namespaces/a/pods/p"),
        (
            "/api/v1/tenants/t2/namespaces/a/pods/p",
            "t1",
            None,
            "root:t2",
            "t2",
            "/api/v1/tenants/t2/namespaces/a/pods/p",
        ),
        (
            "/api/v1/tenants/t2/persistentvolumes/v",
            "system",
            None,
            "root:t2",
            "t2",
            "/api/v1/tenants/t2/persistentvolumes/v",
        ),
        (
            "/apis/apps/v1/tenants/t2/deployments",
            "t1",
            None,
            "root:t2",
            "t2",
            "/apis/apps/v1/tenants/t2/deployments",
        ),
        ("/api/v1/tenants/t2/namespaces/a", "t1", None, "root:t2", "t2", "/api/v1/tenants/t2/namespaces/a"),
        (
            "/api/v1/watch/tenants/t2/namespaces/b/pods",
            "t1",
            None,
            "root:t2",
            "t2",
            "/api/v1/tenants/t2/namespaces/b/pods",
        ),
        ("/clusters/root/api/v1/pods", "t1", None, "root", "system", "/api/v1/pods"),
        ("/clusters/root:t2/api/v1/pods", "t1", None, "root:t2", "t2", "/api/v1/tenants/t2/pods"),
        ("/clusters/root%3At2/api/v1/pods", "t1", None, "root:t2", "t2", "/api/v1/tenants/t2/pods"),
        ("/clusters/root:t2/api/v1/tenants/t2/pods", "t1", None, "root:t2", "t2", "/api/v1/tenants/t2/pods"),
        ("/clusters/root/api/v1/tenants/t2/pods", "t1", None, "root:t2", "t2", "/api/v1/tenants/t2/pods"),
        (
            "/clusters/root:t1:ws/api/v1/pods",
            "t1",
            None,
            "root:t1:ws",
            "t1",
            "/clusters/root:t1:ws/api/v1/pods",
        ),
        ("/clusters/system:admin/version", "t1", None, "system:admin", "system", "/version"),
        ("/clusters/root:t2", "t1", None, "root:t2", "t2", "/"),
        ("/clusters/root:t2/", "t1", None, "root:t2", "t2", "/"),
        ("/api", "t1", None, "root:t1", "t1", "/api"),
        ("/apis/apps/v1/", "t1", None, "root:t1", "t1", "/apis/apps/v1/"),
        ("/openapi/v3/apis/apps/v1", "t1", None, "root:t1", "t1", "/openapi/v3/apis/apps/v1"),
        ("/healthz", None, None, "root", "system", "/healthz"),
        ("/", "t1", None, "root:t1", "t1", "/"),
        (
            "/api/v1/namespaces/a/pods",
            "tenantA",
            None,
            "root:tenantA",
            "tenantA",
            "/api/v1/tenants/tenantA/namespaces/a/pods",
        ),
    ],
)
def test_short_full_and_cluster_paths_name_one_space(
    path: str, tenant: str | None, default: str | None, *, cluster: str, owner: str, full: str
) -> None:
    """TS4 to TS8, TS13, KC13; URL-19, URL-25: resolution fills in and decides nothing."""
    info = ask(path, tenant=tenant, default=default)
    assert (info.cluster, info.tenant, info.path) == (cluster, owner, full)


@pytest.mark.parametrize("tenant", ["t1", "system", None])
@pytest.mark.parametrize(
    ("path", "name", "subresource"),
    [
        ("/api/v1/tenants", "", ""),
        ("/api/v1/tenants/t2", "t2", ""),
        ("/api/v1/tenants/t2/status", "t2", "status"),
        ("/api/v1/tenants/t2/finalize", "t2", "finalize"),
        ("/api/v1/tenants/system", "system", ""),
        ("/api/v1/watch/tenants", "", ""),
    ],
)
def test_tenant_objects_live_in_the_system_space_whoever_asks(
    path: str, name: str, subresource: str, tenant: str | None
) -> None:
    """TS1, URL-16."""
    info = ask(path, tenant=tenant)
    assert (info.cluster, info.tenant, info.resource) == ("root", "system", "tenants")
    assert (info.name, info.subresource) == (name, subresource)
    assert info.path == path.replace("/watch", "")


def test_reading_across_tenants_names_no_tenant() -> None:
    """TS14."""
    for path in (
        "/api/v1/tenants/*/pods",
        "/api/v1/tenants/%2A/pods",
        "/clusters/root/api/v1/tenants/*/pods",
    ):
        info = ask(path, tenant="system")
        assert info.all_tenants
        assert (info.cluster, info.tenant, info.verb, info.path) == (
            "root",
            "system",
            "list",
            "/api/v1/tenants/*/pods",
        )
    assert ask("/api/v1/tenants/*/pods", query=b"watch=1").verb == "watch"


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT", "PATCH"])
def test_writing_across_tenants_is_not_possible(method: str) -> None:
    """TS14."""
    with pytest.raises(MethodNotAllowed):
        ask("/api/v1/tenants/*/pods", method)


@pytest.mark.parametrize(
    "path",
    [
        # URL-01, URL-02: dots are never collapsed, in any spelling
        "/api/v1/namespaces/a/../b/secrets",
        "/api/v1/tenants/t1/../t2/namespaces/b/secrets",
        "/api/v1/namespaces/a/%2e%2e/b/secrets",
        "/api/v1/namespaces/a/%2E./b/secrets",
        "/api/v1/namespaces/a/.%2e/b/secrets",
        "/api/v1/namespaces/a/./secrets",
        "/api/v1/namespaces/a/pods/p%2Eq",
        "/version/../api/v1/secrets",
        "/healthz/..",
        # URL-04: an encoded slash is no separator
        "/api/v1/namespaces/b%2Fsecrets",
        "/api/v1/namespaces/b%2fsecrets",
        "/api/v1/namespaces/b%5Csecrets",
        # URL-05, URL-07: empty segments
        "//evil.example/api/v1/namespaces/a/secrets",
        "/api/v1/namespaces//secrets",
        "/api/v1//namespaces/a/secrets",
        "/api//v1/namespaces/a/pods",
        "/api/v1/tenants//namespaces",
        "/api/v1/pods//",
        "//",
        # URL-13, URL-14: control characters, bytes that are not UTF-8
        "/api/v1/namespaces/a/pods/p%00",
        "/api/v1/tenants/t1%0a/namespaces/a/pods",
        "/api/v1/namespaces/a%0d/pods",
        "/api/v1/namespaces/a/pods/p%09",
        "/api/v1/namespaces/a/pods/p%20",
        "/api/v1/namespaces/a/pods/%ff%fe",
        "/api/v1/namespaces/a/pods/%c0%ae%c0%ae",
        "/api/v1/namespaces/a/pods/p\x00",
        "/api/v1/namespaces/a/pods/p q",
        "/api/v1/namespaces/a/pods/\u00e9",
        "/api/v1/namespaces/a\\..\\b/pods",
        "/api/v1/namespaces/a/pods?x",
        "/api/v1/namespaces/a/pods#x",
        # broken encodings, absolute form, no path at all
        "/api/v1/namespaces/a/pods/%zz",
        "/api/v1/namespaces/a/pods/%2",
        "http://evil/api/v1/namespaces/b/pods",
        "",
        "api/v1/pods",
    ],
)
def test_malformed_paths_are_refused(path: str) -> None:
    with pytest.raises(BadRequest):
        ask(path)


@pytest.mark.parametrize(
    "path",
    [
        # URL-02: encoded twice is a literal name that no object can have
        "/api/v1/namespaces/a/pods/%252e%252e",
        "/api/v1/namespaces/%252e%252e/pods",
        # URL-10, URL-11: no case folding, no normalisation
        "/api/v1/Namespaces/a/pods",
        "/api/v1/tenants/T1/pods",
        "/api/V1/pods",
        "/apis/Apps/v1/deployments",
        "/api/v1/tenants/t%EF%BC%91/pods",
        "/api/v1/tenants/t1%E2%80%8B/pods",
        "/api/v1/tenants/%E2%84%AA/pods",
        "/api/v1/namespaces/A/pods",
        "/clusters/root:T1/api/v1/pods",
        # URL-16: reserved names, and no second name of the system space
        "/api/v1/tenants/system/namespaces/a/pods",
        "/api/v1/tenants/all/pods",
        "/api/v1/tenants/status/namespaces",
        "/api/v1/tenants/finalize/pods",
        "/api/v1/tenants/namespaces/a/pods",
        "/api/v1/tenants/t1/status/namespaces/b/pods",
        "/api/v1/tenants/t1/status/pods",
        # URL-17: a second tenants segment
        "/api/v1/tenants/t1/tenants/t2/pods",
        "/api/v1/tenants/t1/tenants",
        "/api/v1/namespaces/a/tenants/t2/pods",
        "/api/v1/tenants/t1/namespaces/a/tenants/t2/pods",
        "/clusters/root:t1/api/v1/tenants/t2/pods",
        "/clusters/root:t1/api/v1/tenants/*/pods",
        "/clusters/system:admin/api/v1/tenants/t2/pods",
        # TS14 lists and nothing else
        "/api/v1/tenants/*/pods/p",
        "/api/v1/tenants/*/namespaces/a/pods",
        "/api/v1/tenants/*/namespaces/a",
        # URL-19
        "/api/v1/proxy/namespaces/b/pods/x",
        "/api/v1/watch",
        "/api/v1/watch/namespaces/a/pods/p/log",
        # clusters that cannot exist
        "/clusters",
        "/clusters/",
        "/clusters/*/api/v1/pods",
        "/clusters/root:system/api/v1/pods",
        "/clusters/system:other/api/v1/pods",
        "/clusters/acme/api/v1/pods",
        "/clusters/root:t1:/api/v1/pods",
        # more segments than anything serves
        "/api/v1/namespaces/a/pods/p/log/x",
        "/api/v1/namespaces/a/namespaces/b/pods",
        "/healthz%E2%84%AA",
    ],
)
def test_paths_that_name_nothing_are_not_found(path: str) -> None:
    with pytest.raises(NotFound):
        ask(path)


@pytest.mark.parametrize("path", ["/API/v1/pods", "/api", "/apis", "/apis/apps", "/metrics", "/api/v1"])
def test_everything_else_is_no_resource(path: str) -> None:
    info = ask(path)
    assert not info.is_resource
    assert (info.path, info.verb) == (path, "get")


@pytest.mark.parametrize(
    ("query", "verb"),
    [
        (b"watch=1", "watch"),
        (b"watch=true", "watch"),
        (b"watch", "watch"),
        (b"watch=", "watch"),
        (b"watch=nope", "watch"),
        (b"watch=TRUE", "watch"),
        (b"watch=0", "list"),
        (b"watch=False", "list"),
        (b"watch=false&watch=true", "list"),
        (b"watch=true&watch=false", "watch"),
        (b"Watch=1", "list"),
        (b"", "list"),
    ],
)
def test_watch_is_read_as_kubernetes_reads_it(query: bytes, verb: str) -> None:
    """URL-20."""
    assert ask("/api/v1/pods", query=query).verb == verb
    assert ask("/api/v1/namespaces/a/pods/p", query=query).verb == "get"


def test_a_field_selector_names_the_object_of_a_list() -> None:
    info = ask("/api/v1/namespaces/a/pods", query=b"watch=1&fieldSelector=metadata.name%3Dp")
    assert (info.verb, info.name, info.path) == ("watch", "p", "/api/v1/tenants/t1/namespaces/a/pods")
    assert ask("/api/v1/pods", query=b"fieldSelector=metadata.name%3Da%2Fb").name == ""
    assert ask("/api/v1/pods", query=b"fieldSelector=broken").name == ""
    assert ask("/api/v1/namespaces/a/pods", "DELETE", query=b"fieldSelector=metadata.name%3Dp").name == ""


def test_the_legacy_watch_is_translated_into_the_modern_one() -> None:
    """URL-19: what is authorised, the path and the parameters say the same."""
    parsed = parse("GET", b"/api/v1/watch/namespaces/a/pods/p", b"fieldSelector=spec.x%3D1&watch=0")
    assert parsed.parameters == {"watch": ("true",), "fieldSelector": ("metadata.name=p,spec.x=1",)}
    assert resolve(parsed, "t1", None).path == "/api/v1/tenants/t1/namespaces/a/pods"
    with pytest.raises(MethodNotAllowed):
        parse("DELETE", b"/api/v1/watch/namespaces/a/pods/p")


@pytest.mark.parametrize("method", ["delete", "get", "TRACE", "CONNECT", "OPTIONS", "PROPFIND", "PATCH\u00a0", ""])
def test_unknown_methods_are_refused_before_anything_else(method: str) -> None:
    """URL-23."""
    with pytest.raises(MethodNotAllowed):
        ask("/api/v1/pods", method)


def test_a_proxied_path_keeps_its_rest_and_its_trailing_slash() -> None:
    info = ask("/api/v1/namespaces/a/services/http:s:80/proxy/x/y%20z/")
    assert (info.name, info.subresource, info.rest) == ("http:s:80", "proxy", "x/y%20z/")
    assert info.path == "/api/v1/tenants/t1/namespaces/a/services/http:s:80/proxy/x/y%20z/"
    with pytest.raises(BadRequest):
        ask("/api/v1/namespaces/a/services/s/proxy/../../secrets")


def test_long_requests_are_refused() -> None:
    """URL-29."""
    with pytest.raises(StatusError) as refused:
        ask("/" + "a" * 65536)
    assert refused.value.code == 414
    with pytest.raises(StatusError):
        ask("/api/v1" + "/a" * 10_000)
    with pytest.raises(BadRequest):
        ask("/api/v1/pods", query=b"&".join(b"a=1" for _ in range(5000)))


@pytest.mark.parametrize("query", [b"a=%zz", b"a=%ff", b"a=%", b"a= b", b"a=\x00", b"a=\xc3\xa9"])
def test_malformed_queries_are_refused(query: bytes) -> None:
    with pytest.raises(BadRequest):
        query_parameters(query)


def test_queries_keep_every_value_in_order() -> None:
    assert query_parameters(b"command=a&command=b%20c&x=1+2&y&z=a;b") == {
        "command": ("a", "b c"),
        "x": ("1 2",),
        "y": ("",),
        "z": ("a;b",),
    }


SEGMENT = st.sampled_from(
    [
        "api",
        "apis",
        "v1",
        "apps",
        "tenants",
        "t1",
        "t2",
        "system",
        "*",
        "namespaces",
        "a",
        "pods",
        "p",
        "status",
        "watch",
        "clusters",
        "root",
        "root:t2",
        "root:t2:w",
        "system:admin",
        "..",
        ".",
        "",
        "%2e%2e",
        "%2F",
        "%61",
        "T1",
        "proxy",
        "%25",
        "%00",
        "finalize",
        "a%20b",
        "a;b",
        "secrets",
        "rbac.authorization.k8s.io",
        "%C3%A9",
    ]
)


@given(
    st.lists(SEGMENT, max_size=9),
    st.sampled_from(["GET", "POST", "DELETE", "PUT"]),
    st.sampled_from(["t1", "system"]),
)
def test_a_resolved_path_resolves_to_itself_for_everybody(segments: list[str], method: str, tenant: str) -> None:
    """TS5, promise P1: the full path is canonical, and no reader can take it for another space."""
    try:
        info = ask("/" + "/".join(segments), method, tenant=tenant)
    except StatusError as error:
        assert error.code in {400, 404, 405}
        return
    if not info.is_resource:
        again = resolve(parse(method, f"/clusters/{info.cluster}{info.path}".encode()), "t9", None)
        assert (again.cluster, again.path) == (info.cluster, info.path)
        return
    assert re.fullmatch(r"(/([A-Za-z0-9_~!$&'()*+,;=:@.-]|%[0-9A-F]{2})+)+/?", info.path)
    seen_as = "system" if info.cluster == "root" else "t9"
    query = b"watch=1" if info.verb == "watch" else b""
    again = resolve(parse(method, info.path.encode(), query), seen_as, None)
    unnamed = {"list", "watch"}
    for attribute in (
        "cluster",
        "tenant",
        "path",
        "verb",
        "group",
        "resource",
        "subresource",
        "namespace",
        "all_tenants",
    ):
        assert getattr(again, attribute) == getattr(info, attribute)
    assert info.verb in unnamed or again.name == info.name
    if "t2" not in segments and not any(segment.startswith("root:t2") for segment in segments):
        assert info.tenant in {tenant, "system"} or info.tenant in segments


@given(st.binary(max_size=60), st.binary(max_size=30))
def test_any_bytes_are_resolved_or_refused(path: bytes, query: bytes) -> None:
    """P9: hostile input never gives a 500."""
    try:
        info = resolve(parse("GET", b"/api/v1/" + path, query), "t1", None)
    except StatusError as error:
        assert error.code in {400, 404, 405}
        return
    assert info.path.isascii()
