"""The identity inspector says who somebody would be, and why."""

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from access.authentication.inspector import IdentityInspector
from access.authentication.options import AuthenticationOptions
from kube.authentication import inspection, pki
from kube.authentication.authfiles import AuthFileError, entry
from kube.authentication.subjects import Identity
from tests.access.authentication.outside import signed
from tests.access.authentication.tables import ROWS

NOW = 1_800_000_000.0
SUBJECTS = yaml.safe_load((Path(__file__).parents[2] / "kube" / "certificate_subjects.yaml").read_text())
INSPECTOR = IdentityInspector(
    AuthenticationOptions(
        oidc_issuer_url="https://idp.example",
        oidc_client_id="tenantry",
        oidc_groups_claim="groups",
        oidc_tenant_claim="tenant",
    ),
    service_account_issuers=["https://before.example", "https://us.example"],
)


def inspect(text):
    return INSPECTOR.inspect(text, now=NOW)


def certificate(**subject):
    moment = datetime.fromtimestamp(NOW, UTC) - timedelta(minutes=1)
    authority = pki.make_authority("test", now=moment)
    return pki.make_client_certificate(authority, now=moment, lifetime=timedelta(hours=1), **subject)


def test_a_certificate_is_explained():
    """AN1, AN2."""
    new = inspect(certificate(user="bob", organizations=["tenant:t1"], units=["dev"]).certificate.decode())
    assert new.identity == Identity("bob", ("dev",), "t1")
    assert new.rule == inspection.NEW_FORM
    assert [(step.rule, step.matched) for step in new.steps] == [
        (inspection.NEW_FORM, True),
        (inspection.OLD_FORM, False),
    ]
    old = inspect(certificate(user="t1:bob", organizations=["dev"]).certificate.decode())
    assert (old.identity, old.rule) == (Identity("t1:bob", ("dev",), "t1"), inspection.OLD_FORM)
    assert old.steps[0].reason == "no O begins with tenant:"


def test_a_certificate_out_of_its_time_is_nobodys():
    """X509-07."""
    pem = certificate(user="bob", organizations=["tenant:t1"]).certificate.decode()
    late = INSPECTOR.inspect(pem, now=NOW + 7200)
    assert late.identity is None
    assert late.steps[0].reason == "it is not valid at this time"


def test_a_private_key_is_answered_by_a_warning():
    """It is not read."""
    found = inspect(certificate(user="bob", organizations=["tenant:t1"]).key.decode())
    assert found.kind == "private key"
    assert "replace it" in found.steps[0].reason


@pytest.mark.parametrize(
    ("text", "identity"),
    [
        ("/CN=tenantB:demo/O=app1/O=app2", Identity("tenantB:demo", ("app1", "app2"), "tenantB")),
        ("/CN=userA/O=tenant:tenantA/OU=app1", Identity("userA", ("app1",), "tenantA")),
        ("/CN=tenant:tenantA/O=app1", Identity("tenant:tenantA", ("app1",), "tenant")),
        ("subject=CN = userA, O = tenant:tenantA, OU = app1", Identity("userA", ("app1",), "tenantA")),
        ("CN=userA,O=tenant:tenantA,OU=app1", Identity("userA", ("app1",), "tenantA")),
        ("/CN=bob/O=tenant:t1/O=tenant:t2", None),
        ("/CN=bob/O=dev", None),
        ("O=tenant:all,CN=bob", None),
    ],
)
def test_a_subject_is_explained(text, identity):
    """AN1 to AN3, with the examples of Arktos' design."""
    found = inspect(text)
    assert (found.kind, found.identity) == ("subject", identity)
    assert bool(found.rule) is (identity is not None)
    assert all(step.matched or step.reason for step in found.steps)


@pytest.mark.parametrize("row", ROWS["token_lines"], ids=lambda row: row["line"])
def test_a_line_of_the_table_is_explained(row):
    """AN4."""
    found = inspect(row["line"])
    assert found.kind == "file line"
    if row.get("refused"):
        assert found.identity is None
        assert not found.rule
    else:
        assert found.identity == Identity(row["user"], tuple(row["groups"]), row["tenant"])
        assert found.rule
    assert "s3cret" not in repr(found)


CLAIMS = {"iss": "https://idp.example", "aud": "tenantry", "sub": "u1", "tenant": "t1", "exp": int(NOW) + 60}


def test_a_tokens_claims_are_explained():
    """AN8: the token itself, or its claims as JSON."""
    for text in (signed(CLAIMS), json.dumps(CLAIMS)):
        found = inspect(text)
        assert found.identity == Identity("https://idp.example#u1", (), "t1")
        assert found.rule == "OpenID Connect, https://idp.example"
        assert found.steps[0] == inspection.Step(inspection.SERVICE_ACCOUNT, False, "iss is another issuer")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"iss": "https://elsewhere.example"}, "iss is another issuer"),
        ({"aud": "x"}, "aud is another audience"),
        ({"azp": "x"}, "azp is another party"),
        ({"exp": 1}, "the token has expired"),
        ({"tenant": "all"}, "the tenant is empty, malformed or reserved"),
        ({"tenant": None}, "the claim 'tenant' names no tenant"),
    ],
)
def test_why_claims_are_nobodys_is_said(change, reason):
    """AN8."""
    found = inspect(json.dumps(CLAIMS | change))
    assert found.identity is None
    assert found.steps[-1].reason == reason


def test_a_service_accounts_claims_are_explained():
    """AN6, JWT-10."""
    account = {"name": "robot", "uid": "1"}
    bound = {"tenant": "t1", "cluster": "root:t1", "namespace": "ns", "serviceaccount": account}
    claims = {
        "iss": "https://us.example",
        "sub": "system:serviceaccount:ns:robot",
        "exp": int(NOW) + 60,
        "kubernetes.io": bound,
    }
    found = inspect(json.dumps(claims))
    assert (found.identity.user, found.identity.tenant) == ("system:serviceaccount:ns:robot", "t1")
    assert found.rule == inspection.SERVICE_ACCOUNT
    for wrong in ({**bound, "tenant": "t2"}, {**bound, "tenant": "system"}, {**bound, "namespace": "other"}):
        assert inspect(json.dumps({**claims, "kubernetes.io": wrong})).identity is None


@given(st.text(max_size=200) | st.text('CNOU=/,:tenat1 {}".', max_size=60) | st.sampled_from(["", "{", "-----BEGIN "]))
def test_any_text_is_explained_and_gives_no_tenant_but_the_rules_own(text):
    """No text raises; a line's identity is the one that the token file gives."""
    found = inspect(text)
    assert found.steps
    assert (found.identity is None) is (not found.rule)
    if found.kind == "file line" and found.identity is not None:
        assert entry(text.strip("\r\n")).tenant == found.identity.tenant
    elif found.kind == "file line":
        with pytest.raises(AuthFileError):
            entry(text.strip("\r\n"))


def test_what_is_pasted_is_not_logged(caplog):
    """GW9."""
    with caplog.at_level(logging.DEBUG):
        inspect("s3cret,alice,1,,,t1")
        inspect(signed(CLAIMS))
    assert not caplog.records


def test_a_token_that_says_no_tenant_is_the_default_tenants():
    """TS7."""
    claims = {name: value for name, value in CLAIMS.items() if name != "tenant"}
    for default, tenant in (("", ""), ("home", "home")):
        options = AuthenticationOptions(
            oidc_issuer_url="https://idp.example", oidc_client_id="tenantry", default_tenant=default
        )
        assert IdentityInspector(options).inspect(json.dumps(claims), now=NOW).identity.tenant == tenant
