"""From claims to users, and the files that say how (AN8)."""

import re

import pytest
import yaml
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from kube.authentication.authenticationconfig import AuthenticationConfigError, parse
from kube.authentication.oidcclaims import ClaimError, ClaimRules, identify
from kube.authentication.userinfo import tenant_reasons

ISSUER = "https://idp.example"
words = st.sampled_from(
    ["t1", "T1", "system", "System", "all", "*", "t1:x", "t1\0", "t1\n", "t\uff11", "\u212a8s", "x" * 64]
)
words |= st.sampled_from(["system:masters", "apis.kcp.io:binding:x", "ann", "a" * 257, "a\u2028b", ""])
NAMES = ["sub", "name", "email", "email_verified", "groups", "tenant"]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["tenant", "0", "t1"]), inner),
    max_leaves=8,
)
WELL_FORMED = {"sub": "u-1", "name": "ann", "email_verified": True, "tenant": "t1", "groups": ["dev"]}
CLAIMS = st.builds(
    lambda missing, other: {name: WELL_FORMED[name] for name in WELL_FORMED if name != missing} | other,
    st.sampled_from([*NAMES, None]),
    st.dictionaries(st.sampled_from([*NAMES, "Tenant", "tenant ", "tenants"]), words | values, max_size=3),
)
REACHING = settings(max_examples=3000, deadline=None, phases=[Phase.generate], derandomize=True)


def is_given_a_tenant(claims):
    rules = ClaimRules(issuer=ISSUER, username_claim="name", groups_claim="groups", tenant_claim="tenant")
    try:
        identity = identify(claims, rules)
    except ClaimError:
        return False
    return identity.groups != () and "Tenant" in claims


def test_the_claims_that_are_tried_are_not_all_refused():
    """The property below would hold if nothing were ever accepted."""
    assert find(CLAIMS, is_given_a_tenant, settings=REACHING)


@settings(max_examples=300)
@given(
    CLAIMS,
    st.sampled_from(["", "org-", "system", "a:"]),
    st.sampled_from(["", "tenant"]),
    st.sampled_from(["", "fixed"]),
)
def test_any_claims_give_the_tenant_of_the_rules_or_none(claims, prefix, claim, tenant):
    """No claim set yields a tenant that the rules don't give it; nothing but the documented error is raised."""
    rules = ClaimRules(
        issuer=ISSUER,
        username_claim="name",
        username_prefix="-",
        groups_claim="groups",
        tenant_claim=claim,
        tenant_prefix=prefix,
        tenant=tenant,
    )
    try:
        identity = identify(claims, rules)
    except ClaimError:
        return
    assert identity.name == claims["name"]
    assert not identity.name.startswith("system:")
    if tenant:
        assert identity.tenant == tenant
    elif claim:
        assert identity.tenant == prefix + claims["tenant"]
        assert isinstance(claims["tenant"], str)
        assert identity.tenant != "system"
        assert re.fullmatch("[A-Za-z0-9-]{1,63}", identity.tenant)
        assert not tenant_reasons(identity.tenant)
    else:
        assert identity.tenant is None


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ({}, "https://idp.example#u-1"),
        ({"username_prefix": "-"}, "u-1"),
        ({"username_prefix": ""}, "u-1"),
        ({"username_prefix": "x:"}, "x:u-1"),
        ({"username_claim": "email"}, "a@example.com"),
        ({"username_claim": "email", "username_prefix": "x:"}, "x:a@example.com"),
        ({"username_claim": "name"}, "https://idp.example#alice"),
    ],
)
def test_the_user_name_has_kubernetes_prefixes(rules, name):
    """AN8."""
    claims = {"sub": "u-1", "email": "a@example.com", "email_verified": True, "name": "alice"}
    assert identify(claims, ClaimRules(issuer=ISSUER, **rules)).name == name


@pytest.mark.parametrize("verified", [{}, {"email_verified": False}, {"email_verified": "true"}, {"email_verified": 1}])
def test_an_email_that_is_not_verified_is_nobody(verified):
    """JWT-16."""
    with pytest.raises(ClaimError, match="not verified"):
        identify({"sub": "u", "email": "a@b", **verified}, ClaimRules(issuer=ISSUER, username_claim="email"))


@pytest.mark.parametrize(("value", "groups"), [("dev", ("g:dev",)), (["dev", "ops"], ("g:dev", "g:ops")), (None, ())])
def test_groups_are_text_or_a_list(value, groups):
    """JWT-17."""
    rules = ClaimRules(issuer=ISSUER, groups_claim="groups", groups_prefix="g:")
    assert identify({"sub": "u", "groups": value}, rules).groups == groups


@pytest.mark.parametrize("claims", [{}, {"hd": "b"}, {"hd": ["a"]}, {"hd": None}])
def test_a_required_claim_must_have_its_value(claims):
    """AN8."""
    rules = ClaimRules(issuer=ISSUER, required={"hd": "a"})
    assert identify({"sub": "u", "hd": "a"}, rules).uid == "u"
    with pytest.raises(ClaimError, match="hd"):
        identify({"sub": "u", **claims}, rules)


def test_a_prefix_cannot_make_a_reserved_name():
    """AN8."""
    with pytest.raises(ClaimError, match="system:"):
        identify({"sub": "masters"}, ClaimRules(issuer=ISSUER, username_prefix="system:"))


def config(**changes):
    entry = {
        "issuer": {"url": ISSUER, "audiences": ["a", "b"]},
        "claimMappings": {
            "username": {"claim": "sub", "prefix": ""},
            "groups": {"claim": "groups", "prefix": "g:"},
            "tenant": {"claim": "org", "prefix": ""},
        },
        "claimValidationRules": [{"claim": "hd", "requiredValue": "example.com"}],
    } | changes
    return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": [entry]}


def test_kubernetes_structure_is_read():
    """AN8: several issuers in one file."""
    both = config()
    both["jwt"].append(
        {
            "issuer": {"url": "https://other.example", "audiences": ["c"], "audienceMatchPolicy": "MatchAny"},
            "claimMappings": {"username": {"claim": "email", "prefix": "o:"}, "tenant": {"name": "t9"}},
        }
    )
    first, second = parse(yaml.safe_dump(both).encode())
    assert first.rules == ClaimRules(
        issuer=ISSUER,
        username_prefix="-",
        groups_claim="groups",
        groups_prefix="g:",
        tenant_claim="org",
        required={"hd": "example.com"},
    )
    assert first.audiences == ("a", "b")
    assert (second.rules.tenant, second.rules.username_prefix) == ("t9", "o:")


MAPPED = {"claim": "sub", "prefix": ""}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"issuer": {"url": "http://idp.example", "audiences": ["a"]}}, r"jwt\[0\].issuer.url"),
        ({"issuer": {"url": ISSUER, "audiences": []}}, "audiences"),
        ({"issuer": {"url": ISSUER, "audiences": ["a"], "discoveryURL": "x"}}, "discoveryURL is not supported"),
        ({"claimMappings": {"username": {"expression": "claims.sub"}}}, "username.expression is not supported"),
        ({"claimMappings": {"username": {"claim": "sub"}}}, "needs claim and prefix"),
        ({"claimMappings": {"username": MAPPED, "tenant": {"name": "all"}}}, "tenant.name"),
        ({"claimMappings": {"username": MAPPED, "tenant": {"name": "a", "claim": "b"}}}, "either claim or name"),
        ({"claimMappings": {"username": MAPPED, "extra": []}}, "extra is not supported"),
        ({"claimValidationRules": [{"expression": "true"}]}, "expression is not supported"),
        ({"userValidationRules": []}, "userValidationRules is not supported"),
    ],
)
def test_a_configuration_that_would_let_more_in_is_refused(changes, field):
    """AN8."""
    with pytest.raises(AuthenticationConfigError, match=field):
        parse(yaml.safe_dump(config(**changes)).encode())


@given(st.binary(max_size=60) | st.recursive(st.text(max_size=5) | st.none(), st.lists).map(lambda v: str(v).encode()))
def test_any_file_is_read_or_refused(data):
    """Nothing but the documented error."""
    with pytest.raises(AuthenticationConfigError):
        parse(data)
