"""Acting as somebody else (kube-apiserver's impersonation, within a tenant)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.authentication.impersonation import impersonate as impersonate_in
from kube.authentication.identity import MASTERS, TENANT_EXTRA, Principal
from kube.authentication.impersonation import impersonation_request_of, needed
from kube.authorization.decisions import Decision, Verdict
from kube.requests.logicalclusters import space_of, tenant_of
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import BadRequest, Forbidden


def user(name="alice", tenant="t1", groups=("system:authenticated",), **more):
    return Principal(name=name, tenant=tenant, groups=groups, authenticator="token-file", **more)


ADMIN = user("root", "system", (MASTERS, "system:authenticated"), credential_id="JTI=1", not_after=9.0)


class Rules:
    """May impersonate what is listed as resource/name, or everything; remembers what was asked."""

    def __init__(self, *allowed):
        self.allowed = allowed
        self.asked = []

    async def __call__(self, principal, info):
        self.asked.append(info)
        where = f"{info.namespace}/" if info.namespace else ""
        sub = f"/{info.subresource}" if info.subresource else ""
        known = "*" in self.allowed or f"{info.resource}{sub}:{where}{info.name}" in self.allowed
        return Decision(Verdict.ALLOW if known else Verdict.NO_OPINION, "test")


def impersonate(caller, headers, rules, cluster=""):
    """In a request for this logical cluster, or for the space of whoever is served."""

    def resolve(tenant):
        at = cluster or space_of(tenant or "system")
        return RequestInfo(method="GET", path="/", cluster=at, tenant=tenant_of(at), verb="get")

    return impersonate_in(caller, headers, resolve, rules)


def headers(*pairs):
    return [(f"Impersonate-{name}".encode(), value.encode()) for name, value in pairs]


async def test_without_headers_nobody_else_is_served():
    assert await impersonate(user(), [(b"authorization", b"Bearer x")], Rules()) is None


async def test_everything_asked_for_is_checked_where_the_request_goes():
    """Kubernetes' resources and verbs."""
    rules = Rules("*")
    acting = await impersonate(
        user(),
        headers(
            ("User", "bob"),
            ("Uid", "7"),
            ("Group", "dev"),
            ("Group", "ops"),
            ("Extra-Scopes", "a"),
            ("Extra-a%2Fb", "c"),
        ),
        rules,
    )
    assert [(info.group, info.resource, info.subresource, info.name, info.verb) for info in rules.asked] == [
        ("", "users", "", "bob", "impersonate"),
        ("authentication.k8s.io", "uids", "", "7", "impersonate"),
        ("", "groups", "", "dev", "impersonate"),
        ("", "groups", "", "ops", "impersonate"),
        ("authentication.k8s.io", "userextras", "scopes", "a", "impersonate"),
        ("authentication.k8s.io", "userextras", "a/b", "c", "impersonate"),
    ]
    assert {(info.cluster, info.tenant) for info in rules.asked} == {("root:t1", "t1")}
    assert (acting.name, acting.uid, acting.tenant) == ("bob", "7", "t1")
    assert acting.groups == ("dev", "ops", "system:authenticated")
    assert acting.extra == {"scopes": ("a",), "a/b": ("c",)}
    assert acting.authenticator == "impersonation"


async def test_two_group_headers_are_two_groups():
    """HDR-07: each is checked."""
    with pytest.raises(Forbidden, match='groups "ops" is forbidden: User "alice" cannot impersonate resource "groups"'):
        await impersonate(
            user(), headers(("User", "bob"), ("Group", "dev"), ("Group", "ops")), Rules("users:bob", "groups:dev")
        )


async def test_a_refusal_has_kube_apiservers_words():
    with pytest.raises(Forbidden) as refusal:
        await impersonate(user(), headers(("User", "bob")), Rules())
    assert refusal.value.message == (
        'users "bob" is forbidden: User "alice" cannot impersonate resource "users" in API group "" '
        "at the cluster scope"
    )
    with pytest.raises(Forbidden) as refusal:
        await impersonate(user(), headers(("User", "system:serviceaccount:ns:sa")), Rules())
    assert refusal.value.message == (
        'serviceaccounts "sa" is forbidden: User "alice" cannot impersonate resource "serviceaccounts" in API group "" '
        'in the namespace "ns"'
    )


async def test_a_service_account_has_its_groups_and_its_space():
    rules = Rules("serviceaccounts:ns/sa")
    acting = await impersonate(user(), headers(("User", "system:serviceaccount:ns:sa")), rules)
    assert acting.groups == ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated")
    assert acting.cluster == "root:t1"


@pytest.mark.parametrize("cluster", ["root:t1", "root:t1:w1", "root:t1:w1:deep", "root:t2"])
@pytest.mark.parametrize("name", ["bob", "system:serviceaccount:ns:sa"])
async def test_the_request_says_where_it_is_asked_and_where_alone_it_counts(cluster, name):
    """KC2, KC9: whoever is closed out of a workspace does not enter it as another, and comes no further as one."""
    for caller in (user(), user("system:serviceaccount:a:b", cluster="root:t1:w1")):
        rules = Rules("*")
        acting = await impersonate(caller, headers(("User", name), ("Group", "dev")), rules, cluster)
        assert {(info.cluster, info.tenant) for info in rules.asked} == {(cluster, tenant_of(cluster))}
        assert all(cluster == "root:t1" or cluster in info.path or "tenants/t2" in info.path for info in rules.asked)
        assert acting.scope == cluster
        # An account lives where it is asked for, never in another tenant.
        home = cluster if cluster != "root:t2" else "root:t1"
        assert acting.cluster == (home if ":" in name else None)


async def test_an_operator_names_the_tenant_and_is_checked_for_it():
    """Across tenants from the system tenant alone."""
    rules = Rules("*")
    acting = await impersonate(ADMIN, headers(("User", "bob"), ("Extra-multi-tenancy.k8s.io%2Ftenant", "t2")), rules)
    assert (acting.tenant, acting.extra, acting.credential_id, acting.not_after) == ("t2", {}, "JTI=1", 9.0)
    assert [(info.resource, info.subresource, info.name, info.cluster) for info in rules.asked] == [
        ("users", "", "bob", "root:t2"),
        ("userextras", TENANT_EXTRA, "t2", "root:t2"),
    ]
    account = await impersonate(
        ADMIN,
        headers(("User", "system:serviceaccount:ns:sa"), ("Extra-multi-tenancy.k8s.io%2Ftenant", "t2")),
        Rules("*"),
    )
    assert (account.tenant, account.cluster) == ("t2", "root:t2")


async def test_anonymous_belongs_to_no_tenant():
    for groups in ((), (("Group", "system:unauthenticated"),)):
        acting = await impersonate(ADMIN, headers(("User", "system:anonymous"), *groups), Rules("*"))
        assert (acting.tenant, acting.groups) == (None, ("system:unauthenticated",))
    acting = await impersonate(
        ADMIN, headers(("User", "system:anonymous"), ("Group", "system:authenticated")), Rules("*")
    )
    assert acting.groups == ("system:authenticated", "system:unauthenticated")


class Finer(Rules):
    """Allows what is listed as verb and path, or verb and resource."""

    async def __call__(self, principal, info):
        self.asked.append((principal, info))
        sub = f"/{info.subresource}" if info.subresource else ""
        what = (
            f"{info.namespace or '-'} {info.resource}.{info.group}{sub}:{info.name}" if info.is_resource else info.path
        )
        known = f"{info.verb} {what}" in self.allowed
        return Decision(Verdict.ALLOW if known else Verdict.NO_OPINION, "test")


ON = "impersonate-on:user-info:get /"
BOB = "impersonate:user-info - users.authentication.k8s.io:bob"
GROUPS = [("Group", name) for name in ("a", "b", "c", "d")]
EXTRAS = [("Extra-x.test%2Fa", value) for value in ("1", "2", "3")] + [("Extra-y.test%2Fb", "4")]
ACCOUNT = "system:serviceaccount:ns:sa"
BY_ACCOUNT = "impersonate:serviceaccount ns serviceaccounts.authentication.k8s.io:sa"


def finer(resource, *names):
    plural, slash, part = resource.partition("/")
    return [f"impersonate:user-info - {plural}.authentication.k8s.io{slash}{part}:{name}" for name in names]


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ([("User", "bob")], [ON, BOB]),
        ([("User", "bob"), ("Uid", "7")], [ON, BOB, *finer("uids", "7")]),
        ([("User", "bob"), ("Group", "a"), ("Group", "b")], [ON, BOB, *finer("groups", "a", "b")]),
        ([("User", "bob"), *GROUPS], [ON, BOB, *finer("groups", "a", "b", "c", "d")]),
        ([("User", "bob"), *GROUPS], [ON, BOB, *finer("groups", "*")]),
        ([("User", "bob"), ("Extra-x.test%2Fa", "1")], [ON, BOB, *finer("userextras/x.test/a", "1")]),
        ([("User", "bob"), *EXTRAS], [ON, BOB, *finer("userextras/*", "*")]),
        ([("User", ACCOUNT)], ["impersonate-on:serviceaccount:get /", BY_ACCOUNT]),
        ([("User", "bob")], ["impersonate - users.:bob"]),
    ],
)
async def test_the_finer_rights_are_as_good_as_the_one_for_everything_as_long_as_none_is_missing(asked, held):
    """Constrained impersonation, as Kubernetes 1.36 has it: for a verb on a thing, and for who it is."""
    acting = await impersonate(user(), headers(*asked), Finer(*held))
    assert acting == await impersonate(user(), headers(*asked), Rules("*"))
    for right in held:
        with pytest.raises(Forbidden, match=r'User "alice" cannot impersonate resource "(users|serviceaccounts)"'):
            await impersonate(user(), headers(*asked), Finer(*(other for other in held if other != right)))


@pytest.mark.parametrize(
    ("asked", "held"),
    [
        ([("User", "bob"), ("Group", "a")], [ON, BOB, *finer("groups", "*")]),
        ([("User", "bob"), ("Extra-scopes", "a")], [ON, BOB, *finer("userextras/scopes", "a")]),
        ([("User", "bob"), ("Extra-x.test%2Fa", "")], [ON, BOB, *finer("userextras/x.test/a", "")]),
        (
            [("User", ACCOUNT), ("Group", "a")],
            ["impersonate-on:serviceaccount:get /", BY_ACCOUNT, *finer("groups", "a")],
        ),
        ([("User", ACCOUNT)], [ON, "impersonate:user-info ns serviceaccounts.authentication.k8s.io:sa"]),
        ([("User", "bob"), ("Group", MASTERS)], [ON, BOB, *finer("groups", MASTERS)]),
        ([("User", "system:node:n1")], [ON, *finer("users", "system:node:n1")]),
    ],
)
async def test_what_the_finer_rights_do_not_reach(asked, held):
    """A star is asked for with four at least; extra has keys with a domain; an account or a node is nothing but its name."""
    with pytest.raises(Forbidden):
        await impersonate(ADMIN, headers(*asked), Finer(*held))


async def test_a_node_is_one_of_the_nodes_by_the_finer_rights_alone():
    """AZ4."""
    asked = headers(("User", "system:node:n1"))
    held = ("impersonate-on:arbitrary-node:get /", "impersonate:arbitrary-node - nodes.authentication.k8s.io:n1")
    for rules in (Rules("*"), Finer(*held)):
        assert (await impersonate(ADMIN, asked, rules)).groups == ("system:nodes", "system:authenticated")
    plain = Finer("impersonate - users.:system:node:n1", held[1])
    assert (await impersonate(ADMIN, asked, plain)).groups == ("system:authenticated",)
    grouped = headers(("User", "system:node:n1"), ("Group", "dev"))
    assert (await impersonate(ADMIN, grouped, Rules("*"))).groups == ("dev", "system:authenticated")


async def test_an_agent_is_the_node_that_it_runs_on_and_no_other():
    """AZ4: by a right that is the same on every node; nobody else says of itself where it runs."""
    on = "authentication.kubernetes.io/node-name"
    agent = user(
        "system:serviceaccount:kube-system:agent", "system", cluster="root", extra={on: ("n1",), "a/b": ("c",)}
    )
    held = ("impersonate-on:associated-node:get /", "impersonate:associated-node - nodes.authentication.k8s.io:*")
    rules = Finer(*held)
    acting = await impersonate(agent, headers(("User", "system:node:n1")), rules)
    assert (acting.name, acting.groups) == ("system:node:n1", ("system:nodes", "system:authenticated"))
    keys = {"authentication.kubernetes.io/associated-node-keys": ("a/b", on)}
    assert [principal.extra for principal, _ in rules.asked] == [keys, keys]
    stranger = user("system:serviceaccount:kube-system:agent", "system", extra={on: ("n1",)})
    for caller, node in ((agent, "n2"), (stranger, "n1")):
        with pytest.raises(Forbidden):
            await impersonate(caller, headers(("User", f"system:node:{node}")), Finer(*held))


FORBIDDEN = {
    "another tenant": headers(("User", "bob"), ("Extra-multi-tenancy.k8s.io%2Ftenant", "t2")),
    "the system tenant": headers(("User", "bob"), ("Extra-multi-tenancy.k8s.io%2ftenant", "system")),
    "masters": headers(("User", "bob"), ("Group", "system:masters")),
    "system user": headers(("User", "system:admin")),
    "system group": headers(("User", "bob"), ("Group", "system:nodes")),
    "kcp's groups": headers(("User", "bob"), ("Group", "system:kcp:admin")),
    "credential id": headers(("User", "bob"), ("Extra-authentication.kubernetes.io%2Fcredential-id", "JTI=2")),
    "a warrant": headers(("User", "bob"), ("Extra-authorization.kcp.io%2Fwarrant", "{}")),
}


@pytest.mark.parametrize("attack", FORBIDDEN)
async def test_what_no_permission_gives_is_forbidden(attack):
    """HDR-01, HDR-05; kcp GHSA-c7xh."""
    with pytest.raises(Forbidden):
        await impersonate(user(), FORBIDDEN[attack], Rules("*"))


async def test_only_masters_make_masters():
    asked = headers(("User", "bob"), ("Group", MASTERS))
    assert MASTERS in (await impersonate(ADMIN, asked, Rules("*"))).groups
    with pytest.raises(Forbidden, match="masters"):
        await impersonate(user("ops", "system"), asked, Rules("*"))


async def test_a_user_of_no_tenant_impersonates_nobody():
    with pytest.raises(Forbidden):
        await impersonate(user(tenant=None), headers(("User", "bob")), Rules("*"))


BAD = {
    "empty user": headers(("User", "")),
    "group without user": headers(("Group", "dev")),
    "uid without user": headers(("Uid", "1")),
    "extra without user": headers(("Extra-a", "b")),
    "two users": headers(("User", "bob"), ("User", "eve")),
    "unknown header": headers(("User", "bob"), ("Tenant", "t2")),
    "misspelt header": headers(("Users", "bob")),
    "no key": headers(("User", "bob"), ("Extra-", "x")),
    "no account": headers(("User", "system:serviceaccount:ns")),
    "account with a path": headers(("User", "system:serviceaccount:ns:../x")),
    "line feed": [(b"impersonate-user", b"bob\nsystem:masters")],
    "not UTF-8": [(b"impersonate-user", b"\xff")],
    "binding prefix": headers(("User", "apis.kcp.io:binding:bob")),
    "empty group": headers(("User", "bob"), ("Group", "")),
    "many groups": headers(("User", "bob"), *(("Group", f"g{number}") for number in range(300))),
    "two tenants": headers(("User", "b"), *(("Extra-multi-tenancy.k8s.io%2Ftenant", name) for name in ("t1", "t2"))),
    "tenant all": headers(("User", "bob"), ("Extra-multi-tenancy.k8s.io%2Ftenant", "all")),
}


@pytest.mark.parametrize("asked", BAD)
async def test_headers_that_mean_nothing_are_bad_requests(asked):
    """HDR-04, HDR-01: an empty user is never the caller itself."""
    with pytest.raises(BadRequest):
        await impersonate(ADMIN, BAD[asked], Rules("*"))


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"user", b"USER", b"uid", b"group", b"extra-a", b"extra-%2", b"extra-%ff", b"x"]).map(
                lambda name: b"Impersonate-" + name
            ),
            st.binary(max_size=12) | st.sampled_from([b"bob", b"system:serviceaccount:a:b", b"system:masters"]),
        ),
        max_size=6,
    )
)
def test_any_headers_are_read_or_bad(pairs):
    """Nothing but the documented error; whatever is read is checked in full."""
    try:
        wish = impersonation_request_of(pairs)
    except BadRequest:
        return
    assert (wish is None) is (not pairs)
    if wish is not None:
        assert wish.user
        names = {permission.name for need in needed(wish) for permission in need.each}
        assert set(wish.groups) <= names
