"""From raw paths to resolved requests: one reading of every path, and no second one."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.requests.requestinfo import PARAMETERS_MAX, WORDS_MAX, query_parameters
from kube.requests.status import BadRequest, MethodNotAllowed, NotFound
from tests.kube.requestlines import ask


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
    ("path", "tenant", "cluster", "owner", "full"),
    [
        (
            "/api/v1/namespaces/a/pods/p",
            "t1",
            "root:t1",
            "t1",
            "/api/v1/tenants/t1/namespaces/a/pods/p",
        ),
        ("/api/v1/namespaces/a/pods/p", None, "root", "system", "/api/v1/namespaces/a/pods/p"),
        ("/api/v1/namespaces/a/pods/p", "system", "root", "system", "/api/v1/namespaces/a/pods/p"),
        (
            "/api/v1/tenants/t2/namespaces/a/pods/p",
            "t1",
            "root:t2",
            "t2",
            "/api/v1/tenants/t2/namespaces/a/pods/p",
        ),
        (
            "/api/v1/tenants/t2/persistentvolumes/v",
            "system",
            "root:t2",
            "t2",
            "/api/v1/tenants/t2/persistentvolumes/v",
        ),
        (
            "/apis/apps/v1/tenants/t2/deployments",
            "t1",
            "root:t2",
            "t2",
            "/apis/apps/v1/tenants/t2/deployments",
        ),
        ("/api/v1/tenants/t2/namespaces/a", "t1", "root:t2", "t2", "/api/v1/tenants/t2/namespaces/a"),
        (
            "/api/v1/watch/tenants/t2/namespaces/b/pods",
            "t1",
            "root:t2",
            "t2",
            "/api/v1/tenants/t2/namespaces/b/pods",
        ),
        ("/clusters/root/api/v1/pods", "t1", "root", "system", "/api/v1/pods"),
        ("/clusters/root:t2/api/v1/pods", "t1", "root:t2", "t2", "/api/v1/tenants/t2/pods"),
        ("/clusters/root%3At2/api/v1/pods", "t1", "root:t2", "t2", "/api/v1/tenants/t2/pods"),
        ("/clusters/root:t2/api/v1/tenants/t2/pods", "t1", "root:t2", "t2", "/api/v1/tenants/t2/pods"),
        ("/clusters/root/api/v1/tenants/t2/pods", "t1", "root:t2", "t2", "/api/v1/tenants/t2/pods"),
        (
            "/clusters/root:t1:ws/api/v1/pods",
            "t1",
            "root:t1:ws",
            "t1",
            "/clusters/root:t1:ws/api/v1/pods",
        ),
        ("/clusters/system:admin/version", "t1", "system:admin", "system", "/version"),
        ("/clusters/root:t2", "t1", "root:t2", "t2", "/"),
        ("/clusters/root:t2/", "t1", "root:t2", "t2", "/"),
        ("/api", "t1", "root:t1", "t1", "/api"),
        ("/apis/apps/v1/", "t1", "root:t1", "t1", "/apis/apps/v1/"),
        ("/openapi/v3/apis/apps/v1", "t1", "root:t1", "t1", "/openapi/v3/apis/apps/v1"),
        ("/healthz", None, "root", "system", "/healthz"),
        ("/", "t1", "root:t1", "t1", "/"),
        (
            "/api/v1/namespaces/a/pods",
            "tenantA",
            "root:tenantA",
            "tenantA",
            "/api/v1/tenants/tenantA/namespaces/a/pods",
        ),
    ],
)
def test_short_full_and_cluster_paths_name_one_space(
    path: str, tenant: str | None, *, cluster: str, owner: str, full: str
) -> None:
    """TS4 to TS7, TS13, KC13; URL-19, URL-25: resolution fills in and decides nothing."""
    info = ask(path, tenant=tenant)
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


def test_a_proxied_path_keeps_its_rest_and_its_trailing_slash() -> None:
    info = ask("/api/v1/namespaces/a/services/http:s:80/proxy/x/y%20z/")
    assert (info.name, info.subresource, info.rest) == ("http:s:80", "proxy", "x/y%20z/")
    assert info.path == "/api/v1/tenants/t1/namespaces/a/services/http:s:80/proxy/x/y%20z/"
    with pytest.raises(BadRequest):
        ask("/api/v1/namespaces/a/services/s/proxy/../../secrets")


def test_a_command_has_as_many_words_as_people_give_it_and_nothing_else_has() -> None:
    """GW4: ``kubectl exec pod -- rm a b c …``; the rest of a query is never so long."""
    words = [f"f{number}" for number in range(WORDS_MAX)]
    command = b"&".join(b"command=" + word.encode() for word in words)
    others = b"&".join(b"p%d=x" % number for number in range(PARAMETERS_MAX))
    read = query_parameters(command + b"&" + others)
    assert read["command"] == tuple(words)
    assert len(read) == PARAMETERS_MAX + 1
    for query in (others + b"&more=x", command + b"&command=x&" + others, b"&" * PARAMETERS_MAX):
        with pytest.raises(BadRequest, match=r"the query has \d+ parameters, of which \d+ are read"):
            query_parameters(query)
    with pytest.raises(BadRequest, match="no UTF-8"):
        query_parameters(b"command=%ff")


@given(st.lists(st.tuples(st.text(min_size=1, max_size=4), st.text(max_size=6)), max_size=5))
def test_a_query_says_what_was_written_into_it(pairs: list[tuple[str, str]]) -> None:
    query = urlencode(pairs).encode()
    expected: dict[str, list[str]] = {}
    for name, value in pairs:
        expected.setdefault(name, []).append(value)
    assert query_parameters(query) == {name: tuple(values) for name, values in expected.items()}


@given(st.from_regex(r"([a-c&=+\\]|%[0-9A-Fa-f]{2}|\\[nux][0-9a-f]{4})*", fullmatch=True))
def test_a_query_is_read_as_the_standard_library_reads_it(query: str) -> None:
    try:
        expected = parse_qs(query, True, errors="strict", max_num_fields=None)
    except ValueError:
        with pytest.raises(BadRequest):
            query_parameters(query.encode())
        return
    assert query_parameters(query.encode()) == {name: tuple(values) for name, values in expected.items()}
