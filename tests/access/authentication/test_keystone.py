"""Signing in by Keystone, and its roles, against a real Keystone (AN7, AN10)."""

import uuid

import pytest

from access.authentication.base import Credentials, Refused
from access.authentication.keystone import KeystoneAuthenticator
from access.authentication.keystoneclient import Domains, Keystone
from access.authorization.modes.keystone import KeystoneAuthorizer
from access.httpclient import HttpClient
from kube.authentication.identity import Principal
from kube.authorization import bootstrappolicy
from kube.authorization.rbacindex import PolicyIndex
from kube.requests.requestinfo import RequestInfo
from tests.access.authentication.keystones import NOT_INSTALLED, running
from tests.access.authentication.outside import OURS, US, bearer

NOW = 1_700_000_000.0


@pytest.fixture
def server():
    return running() or pytest.skip(NOT_INSTALLED)


class Counting(HttpClient):
    """Counts what is asked."""

    asked = 0

    async def request(self, *args, **more):
        self.asked += 1
        return await super().request(*args, **more)


class Place:
    """A domain that is a tenant, with project ``ns1`` and user ``bob``."""

    def __init__(self, server):
        self.name = f"t{uuid.uuid4().hex[:8]}"
        self.domain = server.make("domain", name=self.name)
        self.project = server.make("project", name="ns1", domain_id=self.domain)
        self.bob = server.make("user", name="bob", password="pw", domain_id=self.domain)


@pytest.fixture
def place(server):
    return Place(server)


PATIENCE = 300.0
"""A Keystone on a busy machine may take longer than the budget of a request; what that means has tests of its own."""


@pytest.fixture
async def transport():
    return Counting(timeout=PATIENCE)


@pytest.fixture
async def keystone(server, transport):
    keystone = Keystone(server.url, transport, budget=PATIENCE)
    yield keystone
    await keystone.close()


@pytest.fixture
def domains():
    return Domains({})


@pytest.fixture
def authenticator(keystone, domains):
    return KeystoneAuthenticator(keystone, domains)


async def test_the_domain_is_the_tenant(server, place, authenticator):
    """AN7."""
    principal = await authenticator.authenticate(bearer(server.token("bob", place.domain)), now=NOW)
    assert (principal.name, principal.uid, principal.tenant) == ("bob", place.bob, place.name)
    assert principal.groups == ("system:authenticated",)
    assert principal.extra["alpha.kubernetes.io/identity/user/domain/id"] == (place.domain,)
    assert principal.credential_id.startswith("KEYSTONE=")
    assert principal.not_after > NOW


async def test_users_of_one_name_in_two_domains_are_two(server, place, authenticator):
    """KEY-01."""
    other = Place(server)
    first = await authenticator.authenticate(bearer(server.token("bob", place.domain)), now=NOW)
    second = await authenticator.authenticate(bearer(server.token("bob", other.domain)), now=NOW)
    assert (first.tenant, first.uid) != (second.tenant, second.uid)


@pytest.mark.parametrize("token", ["junk", "gAAAAAB" + "x" * 180, "é", "a b", "a\r\nX-Auth-Token: b", "x" * 9000])
async def test_a_token_that_keystone_does_not_know_is_nobodys(authenticator, token):
    """KEY-05."""
    assert await authenticator.authenticate(bearer(token), now=NOW) is None


async def test_what_is_no_bearer_token_is_not_keystones(authenticator):
    """AN9."""
    assert await authenticator.authenticate(Credentials(), now=NOW) is None


async def test_the_default_domain_and_system_need_the_mapping(server, keystone, authenticator):
    """AN7: the operators' tenant is nobody's by a name."""
    with pytest.raises(Refused, match="no tenant"):
        await authenticator.authenticate(bearer(server.admin), now=NOW)
    mapped = KeystoneAuthenticator(keystone, Domains({"default": "system"}))
    assert (await mapped.authenticate(bearer(server.admin), now=NOW)).is_system
    try:
        domain = server.make("domain", name="system")
    except RuntimeError:
        domain = server.call("GET", "/domains?name=system")["domains"][0]["id"]
    name = uuid.uuid4().hex
    server.make("user", name=name, password="pw", domain_id=domain)
    with pytest.raises(Refused, match="no tenant"):
        await authenticator.authenticate(bearer(server.token(name, domain)), now=NOW)


async def test_a_user_with_a_reserved_name_is_refused(server, place, authenticator):
    """Names that begin with system: are ours."""
    server.make("user", name="system:admin", password="pw", domain_id=place.domain)
    with pytest.raises(Refused, match="system:"):
        await authenticator.authenticate(bearer(server.token("system:admin", place.domain)), now=NOW)


async def test_a_revoked_token_ends_within_the_ttl(server, place, authenticator, transport):
    """KEY-04: 30 seconds."""
    token = server.token("bob", place.domain)
    assert await authenticator.authenticate(bearer(token), now=NOW) is not None
    server.revoke(token)
    assert await authenticator.authenticate(bearer(token), now=NOW + 29.9) is not None
    assert transport.asked == 1
    assert await authenticator.authenticate(bearer(token), now=NOW + 30) is None


async def test_an_expired_token_ends_though_it_is_remembered(server, place, authenticator):
    """AN10."""
    token = bearer(server.token("bob", place.domain))
    end = (await authenticator.authenticate(token, now=NOW)).not_after
    assert await authenticator.authenticate(token, now=end - 1) is not None
    assert await authenticator.authenticate(token, now=end) is None


@pytest.mark.parametrize("token", OURS.values(), ids=OURS)
async def test_a_token_of_our_own_issuer_is_never_sent_out(keystone, domains, transport, token):
    """KEY-08: in whatever form it comes."""
    authenticator = KeystoneAuthenticator(keystone, domains, own_issuers=frozenset({US}))
    assert await authenticator.authenticate(bearer(token), now=NOW) is None
    assert transport.asked == 0


async def test_keystone_away_refuses(place, domains):
    """AN9."""
    keystone = Keystone("http://127.0.0.1:1", HttpClient(timeout=2))
    with pytest.raises(Refused, match="no answer"):
        await KeystoneAuthenticator(keystone, domains).authenticate(bearer("token"), now=NOW)
    await keystone.close()


async def test_the_tenant_follows_the_domains_id(server, place, keystone, tmp_path):
    """KEY-02: over renaming, a new domain of the old name, and a restart."""
    pins = tmp_path / "domains.json"
    before = KeystoneAuthenticator(keystone, Domains({}, pins=pins))
    assert (await before.authenticate(bearer(server.token("bob", place.domain)), now=NOW)).tenant == place.name
    server.call("PATCH", f"/domains/{place.domain}", {"domain": {"name": f"{place.name}-old"}})
    usurper = server.make("domain", name=place.name)
    server.make("user", name="eve", password="pw", domain_id=usurper)
    after = KeystoneAuthenticator(keystone, Domains({}, pins=pins))
    with pytest.raises(Refused, match="no tenant"):
        await after.authenticate(bearer(server.token("eve", usurper)), now=NOW)
    assert (await after.authenticate(bearer(server.token("bob", place.domain)), now=NOW)).tenant == place.name
    mapped = KeystoneAuthenticator(keystone, Domains({usurper: "t-new"}, pins=pins))
    assert (await mapped.authenticate(bearer(server.token("eve", usurper)), now=NOW)).tenant == "t-new"


async def test_a_domain_with_no_tenant_is_refused(server, place, keystone):
    """AN7: issue 4."""
    known: dict[str, str] = {}

    async def tenant_uid(name):
        return known.get(name, "")

    authenticator = KeystoneAuthenticator(keystone, Domains({}, tenant_uid=tenant_uid))
    token = bearer(server.token("bob", place.domain))
    with pytest.raises(Refused, match="no tenant"):
        await authenticator.authenticate(token, now=NOW)
    known[place.name] = "uid"
    assert (await authenticator.authenticate(token, now=NOW)).tenant == place.name
    known.clear()
    with pytest.raises(Refused, match="no tenant"):
        await authenticator.authenticate(token, now=NOW)


async def test_a_domain_does_not_follow_the_name_of_its_tenant_to_another_customer(tmp_path):
    """KEY-02: the first customer's domain gets nothing of the second's, over a restart too."""
    known = {"acme": "first"}

    async def tenant_uid(name):
        return known.get(name, "")

    pins = tmp_path / "domains.json"
    domains = Domains({}, pins=pins, tenant_uid=tenant_uid)
    assert await domains.tenant_of("d1", "acme") == "acme"
    known["acme"] = "second"
    for each in (domains, Domains({}, pins=pins, tenant_uid=tenant_uid)):
        assert await each.tenant_of("d1", "acme") is None
        assert await each.tenant_of("d2", "acme") == "acme"
        assert await each.tenant_of("d3", "acme") is None
        assert each.domain_of("acme") == "d2"


def test_two_domains_of_one_tenant_stop_the_start():
    """KEY-01."""
    with pytest.raises(ValueError, match="one tenant"):
        Domains({"a": "t1", "b": "t1"})
    with pytest.raises(ValueError, match="reserved"):
        Domains({"a": "all"})


POLICY = PolicyIndex.build(bootstrap=bootstrappolicy.INDEX)


def asking(tenant, namespace="ns1", verb="create", resource="pods"):
    cluster = "root" if tenant == "system" else f"root:{tenant}"
    return RequestInfo(
        method="POST",
        path="/",
        cluster=cluster,
        tenant=tenant,
        verb=verb,
        is_resource=True,
        version="v1",
        resource=resource,
        namespace=namespace,
    )


class Clock:
    now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def authorizer(keystone, domains, clock):
    async def policy_of(cluster):
        return POLICY

    return KeystoneAuthorizer(keystone, domains, policy_of, clock=clock)


async def test_a_role_in_a_project_counts_in_the_namespace_alone(server, place, authenticator, authorizer):
    """AN10: namespace → project."""
    server.assign(place.bob, "member", f"projects/{place.project}")
    server.make("project", name="ns2", domain_id=place.domain)
    bob = await authenticator.authenticate(bearer(server.token("bob", place.domain)), now=NOW)
    decision = await authorizer.authorize(bob, asking(place.name))
    assert decision.allowed
    assert (decision.reason, decision.rule) == ('Keystone role "member" in project "ns1"', 'ClusterRole "edit"')
    for request in (
        asking(place.name, "ns2"),
        asking(place.name, "absent"),
        asking(place.name, ""),
        asking(place.name, resource="rolebindings"),
        asking("system", ""),
    ):
        assert not (await authorizer.authorize(bob, request)).allowed


async def test_a_role_in_the_domain_counts_in_the_tenants_space(server, place, authenticator, authorizer):
    """AN10: tenant → domain."""
    server.assign(place.bob, "reader", f"domains/{place.domain}")
    bob = await authenticator.authenticate(bearer(server.token("bob", place.domain)), now=NOW)
    assert (await authorizer.authorize(bob, asking(place.name, "", "list"))).allowed
    assert not (await authorizer.authorize(bob, asking(place.name, "", "create"))).allowed
    assert not (await authorizer.authorize(bob, asking(place.name, "ns1", "list"))).allowed


async def test_a_role_in_the_system_counts_in_the_system_space(server, keystone, clock):
    """AN10: cluster → system."""

    async def policy_of(cluster):
        return POLICY

    domains = Domains({"default": "system"})
    admin = await KeystoneAuthenticator(keystone, domains).authenticate(bearer(server.admin), now=NOW)
    authorizer = KeystoneAuthorizer(keystone, domains, policy_of, role_names={"admin": "cluster-admin"}, clock=clock)
    assert (await authorizer.authorize(admin, asking("system", "", "list", "nodes"))).allowed


async def test_answers_are_remembered_and_cross_neither_users_nor_scopes(
    server, place, authenticator, authorizer, transport
):
    """AN10."""
    server.assign(place.bob, "member", f"projects/{place.project}")
    server.make("user", name="eve", password="pw", domain_id=place.domain)
    bob = await authenticator.authenticate(bearer(server.token("bob", place.domain)), now=NOW)
    eve = await authenticator.authenticate(bearer(server.token("eve", place.domain)), now=NOW)
    asked = transport.asked
    for _ in range(5):
        assert (await authorizer.authorize(bob, asking(place.name))).allowed
        assert not (await authorizer.authorize(eve, asking(place.name))).allowed
        assert not (await authorizer.authorize(bob, asking(place.name, "ns2"))).allowed
    assert transport.asked == asked + 3
    # Whoever carries another's credential id, but is somebody else, has none of its roles.
    posing = Principal(
        name="eve", uid=eve.uid, tenant=place.name, authenticator="keystone", credential_id=bob.credential_id
    )
    assert not (await authorizer.authorize(posing, asking(place.name))).allowed
    impersonated = Principal(
        name="bob", uid=bob.uid, tenant=place.name, authenticator="impersonation", credential_id=bob.credential_id
    )
    assert not (await authorizer.authorize(impersonated, asking(place.name))).allowed


async def test_a_token_that_is_not_shown_again_is_forgotten(server, place, authenticator, keystone):
    """GW9: in memory alone, and not for long."""
    await authenticator.authenticate(bearer(server.token("bob", place.domain)), now=NOW)
    await authenticator.authenticate(bearer(server.token("bob", place.domain)), now=NOW + 89)
    assert len(keystone._shown) == 2
    await authenticator.authenticate(bearer(server.token("bob", place.domain)), now=NOW + 90)
    assert len(keystone._shown) == 2


async def test_a_role_taken_away_ends_within_the_ttl(server, place, authenticator, authorizer, clock):
    """AN10."""
    server.assign(place.bob, "member", f"projects/{place.project}")
    token = bearer(server.token("bob", place.domain))
    bob = await authenticator.authenticate(token, now=NOW)
    assert (await authorizer.authorize(bob, asking(place.name))).allowed
    server.assign(place.bob, "member", f"projects/{place.project}", method="DELETE")
    clock.now = NOW + 29.9
    assert (await authorizer.authorize(bob, asking(place.name))).allowed
    clock.now = NOW + 30
    assert not (await authorizer.authorize(bob, asking(place.name))).allowed


async def test_a_delegated_token_has_no_rights_beyond_its_scope(server, place, authenticator, authorizer):
    """An application credential of one project is not its user."""
    other = server.make("project", name="ns2", domain_id=place.domain)
    for project in (place.project, other):
        server.assign(place.bob, "member", f"projects/{project}")
    own = server.token("bob", place.domain, {"project": {"id": place.project}})
    made = server.call(
        "POST",
        f"/users/{place.bob}/application_credentials",
        {"application_credential": {"name": "ci", "secret": "s", "roles": [{"name": "reader"}]}},
        **{"X-Auth-Token": own},
    )["application_credential"]
    token = server.issue(
        {
            "identity": {
                "methods": ["application_credential"],
                "application_credential": {"id": made["id"], "secret": "s"},
            }
        }
    )
    ci = await authenticator.authenticate(bearer(token), now=NOW)
    assert ci.name == "bob"
    assert (await authorizer.authorize(ci, asking(place.name, "ns1", "list"))).allowed
    assert not (await authorizer.authorize(ci, asking(place.name, "ns1", "create"))).allowed
    assert not (await authorizer.authorize(ci, asking(place.name, "ns2", "list"))).allowed
