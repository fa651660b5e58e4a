"""What a request line says besides its path: method, query, length; and whole lines as anybody may send them."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube.requests.requestinfo import parse, query_parameters, resolve
from kube.requests.status import BadRequest, MethodNotAllowed, NotFound, StatusError
from tests.kube.requestlines import ask


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
    assert resolve(parsed, "t1").path == "/api/v1/tenants/t1/namespaces/a/pods"
    with pytest.raises(MethodNotAllowed):
        parse("DELETE", b"/api/v1/watch/namespaces/a/pods/p")


@pytest.mark.parametrize("method", ["delete", "get", "TRACE", "CONNECT", "OPTIONS", "PROPFIND", "PATCH\u00a0", ""])
def test_unknown_methods_are_refused_before_anything_else(method: str) -> None:
    """URL-23."""
    with pytest.raises(MethodNotAllowed):
        ask("/api/v1/pods", method)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/healthz",
        "/api/v1/namespaces/a/pods/p",
        "/api/v1/namespaces/a/pods/p/log",
        "/apis/g.io/v1/namespaces/a/things/t/proxy",
        "/services/apiexport/root:t1/e/clusters/root:t2/api/v1/namespaces/a/pods/p/proxy/",
    ],
)
def test_only_what_listens_in_a_pod_is_asked_for_its_options(path: str) -> None:
    """URL-23; as ``RequestInfoFactory`` has it, without a verb."""
    assert (
        ask("/api/v1/namespaces/a/pods/p/proxy/x", "OPTIONS").verb,
        ask("/api/v1/namespaces/a/services/s/proxy", "OPTIONS").verb,
    ) == ("", "")
    with pytest.raises(MethodNotAllowed):
        ask(path, "OPTIONS")


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


@pytest.mark.parametrize("part", ["status", "finalize"])
@pytest.mark.parametrize(
    "prefix", ["/api/v1", "/apis/example.com/v1", "/clusters/root:t1/api/v1", "/api/v1/tenants/t1"]
)
@pytest.mark.parametrize("rest", ["", "/one"])
def test_no_resource_is_called_as_a_part_of_a_tenant_or_a_namespace(prefix: str, part: str, rest: str) -> None:
    """TS5: behind ``tenants/<name>`` or ``namespaces/<name>`` nobody could tell them apart."""
    if prefix.endswith("/t1") and not rest:
        assert (ask(f"{prefix}/{part}").resource, ask(f"{prefix}/{part}").subresource) == ("tenants", part)
        return
    with pytest.raises(NotFound):
        ask(f"{prefix}/{part}{rest}")


@example(segments=["api", "v1", "finalize"], method="GET", tenant="t1")
@example(segments=["apis", "rbac.authorization.k8s.io", "v1", "finalize", "a"], method="PUT", tenant="t1")
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
        again = resolve(parse(method, f"/clusters/{info.cluster}{info.path}".encode()), "t9")
        assert (again.cluster, again.path) == (info.cluster, info.path)
        return
    assert re.fullmatch(r"(/([A-Za-z0-9_~!$&'()*+,;=:@.-]|%[0-9A-F]{2})+)+/?", info.path)
    seen_as = "system" if info.cluster == "root" else "t9"
    query = b"watch=1" if info.verb == "watch" else b""
    again = resolve(parse(method, info.path.encode(), query), seen_as)
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
        info = resolve(parse("GET", b"/api/v1/" + path, query), "t1")
    except StatusError as error:
        assert error.code in {400, 404, 405}
        return
    assert info.path.isascii()
