"""Signing in by OpenID Connect tokens (AN8)."""

import asyncio
import base64
import contextlib
import json
from dataclasses import replace

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from access.authentication import oidc
from access.authentication.base import Credentials, Refused
from access.authentication.oidc import OidcAuthenticator, OidcIssuer
from access.httpclient import HttpClient
from kube.authentication.oidcclaims import ClaimRules
from tests.access.authentication.outside import (
    EC,
    EC_384,
    OTHER_RSA,
    RSA,
    bearer,
    jwk,
    providing,
    raw,
    signed,
    trusting,
)

NOW = 1_800_000_000


@pytest.fixture
async def provider():
    async with providing() as provider:
        yield provider


@pytest.fixture
async def authenticator(provider):
    authenticator = make(provider)
    yield authenticator
    await authenticator.close()


def make(provider, **changes):
    rules = ClaimRules(
        issuer=provider.url,
        username_claim="preferred_username",
        username_prefix="oidc:",
        groups_claim="groups",
        groups_prefix="oidc:",
        tenant_claim="tenant",
    )
    issuer = OidcIssuer(rules=replace(rules, **changes), audiences=("tenantry", "other"))
    return OidcAuthenticator(issuer, HttpClient(tls=trusting()))


def claims(provider, **changes):
    said = {
        "iss": provider.url,
        "aud": "tenantry",
        "sub": "u-1",
        "preferred_username": "alice",
        "groups": ["dev", "ops"],
        "tenant": "t1",
        "exp": NOW + 600,
        "iat": NOW - 10,
        "jti": "j-1",
    } | changes
    return {name: value for name, value in said.items() if value is not None}


async def test_a_valid_token_is_its_user(provider, authenticator):
    """AN8."""
    principal = await authenticator.authenticate(bearer(signed(claims(provider), kid="a")), now=NOW)
    assert (principal.name, principal.uid, principal.tenant) == ("oidc:alice", "u-1", "t1")
    assert principal.groups == ("oidc:dev", "oidc:ops", "system:authenticated")
    assert (principal.authenticator, principal.credential_id, principal.not_after) == ("oidc", "JTI=j-1", NOW + 600)


async def test_a_token_without_key_id_is_verified_by_every_key_of_its_kind(provider, authenticator):
    """AN8: providers that give no kid."""
    provider.keys = [jwk(EC, use="sig"), jwk(OTHER_RSA), jwk(RSA)]
    assert await authenticator.authenticate(bearer(signed(claims(provider))), now=NOW) is not None
    token = signed(claims(provider), EC, "ES256")
    assert await authenticator.authenticate(bearer(token), now=NOW) is not None


@pytest.mark.parametrize("algorithm", ["RS512", "PS256", "ES256", "ES384"])
async def test_every_asymmetric_algorithm_is_accepted(provider, authenticator, algorithm):
    """AN8."""
    provider.keys = [jwk(RSA, kid="r"), jwk(EC, kid="ES256"), jwk(EC_384, kid="ES384")]
    key = {"ES256": EC, "ES384": EC_384}.get(algorithm, RSA)
    token = signed(claims(provider), key, algorithm, kid=algorithm if key is not RSA else "r")
    assert await authenticator.authenticate(bearer(token), now=NOW) is not None


def public_pem():
    return RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def hmac_forgery(body, secret):
    """RS256's public key taken as an HMAC secret; PyJWT would not make it, so by hand."""
    import hashlib
    import hmac

    head = raw(b'{"alg":"HS256","kid":"a"}', json.dumps(body).encode()).rstrip(".")
    signature = hmac.new(secret, head.encode(), hashlib.sha256).digest()
    return f"{head}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def by_hand(header, body):
    head = raw(header, body.encode()).rstrip(".")
    signature = RSA.sign(head.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{head}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


ATTACKS = {
    "alg none": lambda p: raw(b'{"alg":"none"}', json.dumps(claims(p)).encode()),
    "alg NoNe": lambda p: raw(b'{"alg":"NoNe","kid":"a"}', json.dumps(claims(p)).encode()),
    "no alg": lambda p: raw(b'{"kid":"a"}', json.dumps(claims(p)).encode(), b"x"),
    "empty signature": lambda p: signed(claims(p), kid="a").rpartition(".")[0] + ".",
    "signature of another": lambda p: (
        signed(claims(p), kid="a").rpartition(".")[0] + "." + signed(claims(p, sub="u-2"), kid="a").rpartition(".")[2]
    ),
    "HS256 by the public key": lambda p: hmac_forgery(claims(p), public_pem()),
    "HS256 by the modulus": lambda p: hmac_forgery(claims(p), jwk(RSA)["n"].encode()),
    "key of nobody": lambda p: signed(claims(p), OTHER_RSA, kid="a"),
    "kid is a path": lambda p: signed(claims(p), OTHER_RSA, kid="../../dev/null"),
    "kid is SQL": lambda p: signed(claims(p), OTHER_RSA, kid="x' OR 1=1--"),
    "kid is endless": lambda p: signed(claims(p), kid="a" * 1000),
    "kid is a list": lambda p: raw(b'{"alg":"RS256","kid":["a"]}', json.dumps(claims(p)).encode(), b"x"),
    "jwk in the header": lambda p: signed(claims(p), OTHER_RSA, kid="z", jwk=jwk(OTHER_RSA)),
    "the key elsewhere": lambda p: signed(claims(p), OTHER_RSA, kid="z", jku=f"{p.url}/other"),
    "the chain elsewhere": lambda p: signed(claims(p), OTHER_RSA, kid="z", x5u=f"{p.url}/chain.pem"),
    "the chain in the header": lambda p: signed(claims(p), OTHER_RSA, kid="z", x5c=["MIIB"]),
    "alg twice": lambda p: raw(b'{"alg":"RS256","alg":"none"}', json.dumps(claims(p)).encode()),
    "alg is a list": lambda p: raw(b'{"alg":["RS256"],"kid":"a"}', json.dumps(claims(p)).encode(), b"x"),
    "unknown crit": lambda p: signed(claims(p), kid="a", crit=["x"]),
    "unencoded payload": lambda p: signed(claims(p), kid="a", b64=False, crit=["b64"]),
    "compressed": lambda p: signed(claims(p), kid="a", zip="DEF"),
    "other audience": lambda p: signed(claims(p, aud="elsewhere"), kid="a"),
    "audience that contains ours": lambda p: signed(claims(p, aud="tenantry2"), kid="a"),
    "no audience": lambda p: signed(claims(p, aud=None), kid="a"),
    "audience of numbers": lambda p: signed(claims(p, aud=[1, "tenantry"]), kid="a"),
    "other party": lambda p: signed(claims(p, azp="elsewhere"), kid="a"),
    "expired": lambda p: signed(claims(p, exp=NOW), kid="a"),
    "no exp": lambda p: signed(claims(p, exp=None), kid="a"),
    "exp as text": lambda p: signed(claims(p, exp="9999999999"), kid="a"),
    "exp endless": lambda p: signed(claims(p, exp=1e308), kid="a"),
    "exp of 2^63": lambda p: signed(claims(p, exp=2**63), kid="a"),
    "exp a fraction": lambda p: signed(claims(p, exp=NOW + 600.5), kid="a"),
    "exp a list": lambda p: raw(b'{"alg":"RS256","kid":"a"}', json.dumps(claims(p, exp=[NOW + 600])).encode(), b"x"),
    "iat as text": lambda p: signed(claims(p, iat=str(NOW)), kid="a"),
    "audience an object": lambda p: signed(claims(p, aud={"tenantry": True}), kid="a"),
    "audience in a list in a list": lambda p: signed(claims(p, aud=[["tenantry"]]), kid="a"),
    "tenant an object": lambda p: signed(claims(p, tenant={"name": "t1"}), kid="a"),
    "exp true": lambda p: signed(claims(p, exp=True), kid="a"),
    "not yet": lambda p: signed(claims(p, nbf=NOW + 1), kid="a"),
    "a header twice": lambda p: by_hand(b'{"alg":"RS256","kid":"a","x":1,"x":2}', json.dumps(claims(p))),
    "iss in capitals": lambda p: signed(claims(p, ISS="https://elsewhere.test"), kid="a"),
    "aud in capitals": lambda p: signed(claims(p, Aud="elsewhere"), kid="a"),
    "sub with a long s": lambda p: signed(claims(p) | {"\u017fub": "u-2"}, kid="a"),
    "no tenant": lambda p: signed(claims(p, tenant=None), kid="a"),
    "empty tenant": lambda p: signed(claims(p, tenant=""), kid="a"),
    "tenant system": lambda p: signed(claims(p, tenant="system"), kid="a"),
    "tenant System": lambda p: signed(claims(p, tenant="System"), kid="a"),
    "tenant all": lambda p: signed(claims(p, tenant="all"), kid="a"),
    "tenant *": lambda p: signed(claims(p, tenant="*"), kid="a"),
    "tenant with a path": lambda p: signed(claims(p, tenant="t1/../t2"), kid="a"),
    "two tenants": lambda p: signed(claims(p, tenant=["t1", "t2"]), kid="a"),
    "tenant as number": lambda p: signed(claims(p, tenant=1), kid="a"),
    "no name": lambda p: signed(claims(p, preferred_username=None), kid="a"),
    "name with a line feed": lambda p: signed(claims(p, preferred_username="a\nb"), kid="a"),
    "no subject": lambda p: signed(claims(p, sub=None), kid="a"),
    "groups nested": lambda p: signed(claims(p, groups=[["dev"]]), kid="a"),
    "groups an object": lambda p: signed(claims(p, groups={"dev": True}), kid="a"),
    "10,000 groups": lambda p: signed(claims(p, groups=["g"] * 10_000), kid="a"),
    "201 groups": lambda p: signed(claims(p, groups=["g"] * 201), kid="a"),
}


@pytest.mark.parametrize("header", [{"typ": "at+jwt"}, {"typ": "JWT"}, {"cty": "x"}])
async def test_what_kubernetes_does_not_ask_about_decides_nothing(provider, authenticator, header):
    """AN8: the kind that the header names, and when the token was issued."""
    token = signed(claims(provider, iat=NOW + 3600), kid="a", **header)
    assert await authenticator.authenticate(bearer(token), now=NOW) is not None


@pytest.mark.parametrize("attack", ATTACKS)
async def test_an_attack_is_refused(provider, authenticator, attack):
    """JWT-01, JWT-02, JWT-04, JWT-07, JWT-10, JWT-17, JWT-19."""
    try:
        known = await authenticator.authenticate(bearer(ATTACKS[attack](provider)), now=NOW)
    except Refused as refusal:
        assert "eyJ" not in str(refusal)
    else:
        # Only what cannot be read, or is too long, is left to the others; nobody else takes it either.
        assert known is None
        assert attack in ("10,000 groups", "unencoded payload")


async def test_a_tampered_claim_is_refused(provider, authenticator):
    """JWT-10."""
    head, _, signature = signed(claims(provider), kid="a").split(".")
    body = raw(b"", json.dumps(claims(provider, tenant="t2")).encode()).split(".")[1]
    with pytest.raises(Refused, match="signature"):
        await authenticator.authenticate(bearer(f"{head}.{body}.{signature}"), now=NOW)


@pytest.mark.parametrize("change", ["{}/", "{}x", "HTTPS://127.0.0.1", "https"])
async def test_a_token_of_another_issuer_is_not_ours(provider, authenticator, change):
    """JWT-05: the issuer is compared whole."""
    token = signed(claims(provider, iss=change.format(provider.url)), kid="a")
    assert await authenticator.authenticate(bearer(token), now=NOW) is None
    listed = raw(b'{"alg":"RS256"}', json.dumps(claims(provider, iss=[provider.url])).encode(), b"x")
    assert await authenticator.authenticate(bearer(listed), now=NOW) is None
    assert provider.asked == 0


@pytest.mark.parametrize(
    "credentials",
    [
        Credentials(),
        bearer("abc"),
        bearer("a.b.c"),
        bearer("." * 100_000),
        bearer("x" * 5_000_000),
        bearer("e30.e30.e30.e30.e30"),
        bearer("eyJ.eyJ."),
        Credentials(authorization="Basic eyJ"),
    ],
)
async def test_what_is_no_token_is_not_ours(authenticator, credentials):
    """JWT-20."""
    assert await authenticator.authenticate(credentials, now=NOW) is None


async def test_leeway_is_a_setting_and_zero_by_default(provider):
    """AN8; JWT-08."""
    lenient = make(provider)
    lenient = OidcAuthenticator(replace(lenient._issuer, leeway=30.0), HttpClient(tls=trusting()))
    token = bearer(signed(claims(provider, exp=NOW - 20, iat=NOW - 100), kid="a"))
    assert (await lenient.authenticate(token, now=NOW)).not_after == NOW + 10
    with pytest.raises(Refused, match="expired"):
        await lenient.authenticate(token, now=NOW + 10)
    await lenient.close()


async def test_a_new_key_is_found_and_an_old_one_ends(provider, authenticator):
    """JWT-22."""
    old, new = bearer(signed(claims(provider), kid="a")), bearer(signed(claims(provider), OTHER_RSA, kid="b"))
    assert await authenticator.authenticate(old, now=NOW) is not None
    provider.keys = [jwk(OTHER_RSA, kid="b")]
    assert await authenticator.authenticate(new, now=NOW + oidc.REFETCH_SECONDS) is not None
    with pytest.raises(Refused):
        await authenticator.authenticate(old, now=NOW + oidc.REFETCH_SECONDS)


async def test_a_withdrawn_key_ends_though_nobody_asks_for_another(provider, authenticator):
    """JWT-22."""
    old = bearer(signed(claims(provider), kid="a"))
    assert await authenticator.authenticate(old, now=NOW) is not None
    provider.keys = []
    assert await authenticator.authenticate(old, now=NOW + oidc.FRESH_SECONDS - 1) is not None
    with pytest.raises(Refused):
        await authenticator.authenticate(old, now=NOW + oidc.FRESH_SECONDS)


async def test_unknown_key_ids_ask_the_provider_once_a_minute(provider, authenticator):
    """JWT-04: no storm by a thousand made-up key ids."""

    async def attempt(number, now):
        with pytest.raises(Refused):
            await authenticator.authenticate(bearer(signed(claims(provider), OTHER_RSA, kid=f"k{number}")), now=now)

    await asyncio.gather(*(attempt(number, NOW) for number in range(40)))
    assert provider.asked == 2
    await asyncio.gather(*(attempt(number, NOW + 59) for number in range(20)))
    assert provider.asked == 2
    await asyncio.gather(*(attempt(number, NOW + 60) for number in range(20)))
    assert provider.asked == 4


async def test_a_provider_that_is_away_ends_its_users_after_an_hour(provider, authenticator):
    """AN8: fail closed, but not at once."""
    token = bearer(signed(claims(provider, exp=NOW + 10_000), kid="a"))
    assert await authenticator.authenticate(token, now=NOW) is not None
    provider.down = True
    assert await authenticator.authenticate(token, now=NOW + oidc.STALE_SECONDS - 1) is not None
    with pytest.raises(Refused, match="does not answer"):
        await authenticator.authenticate(token, now=NOW + oidc.STALE_SECONDS + oidc.RETRY_SECONDS)
    asked = provider.asked
    with pytest.raises(Refused):
        await authenticator.authenticate(token, now=NOW + oidc.STALE_SECONDS + oidc.RETRY_SECONDS + 1)
    assert provider.asked == asked
    provider.down = False
    assert await authenticator.authenticate(token, now=NOW + oidc.STALE_SECONDS + 2 * oidc.RETRY_SECONDS) is not None


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://elsewhere.example"},
        {"jwks_uri": "http://127.0.0.1/jwks"},
        {"jwks_uri": "https://user@127.0.0.1/jwks"},
        {"jwks_uri": ["https://127.0.0.1/jwks"]},
        {"jwks_uri": "file:///etc/passwd"},
    ],
)
async def test_a_discovery_document_that_leads_elsewhere_is_refused(provider, authenticator, document):
    """OIDC-08."""
    provider.document = document
    with pytest.raises(Refused, match="keys cannot be had"):
        await authenticator.authenticate(bearer(signed(claims(provider), kid="a")), now=NOW)


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits")
async def test_keys_for_other_uses_and_weak_keys_verify_nothing(provider, authenticator):
    """JWT-19."""
    weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    provider.keys = [
        jwk(RSA, kid="a", use="enc"),
        jwk(RSA, kid="a", alg="HS256"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        {"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "a"},
        {"kty": "RSA", "n": "!", "e": "AQAB", "kid": "a"},
        jwk(weak, kid="w"),
        "nonsense",
    ]
    for token in (signed(claims(provider), kid="a"), jwt.encode(claims(provider), weak, "RS256", {"kid": "w"})):
        with pytest.raises(Refused, match="signature"):
            await authenticator.authenticate(bearer(token), now=NOW)


def number(value):
    return base64.urlsafe_b64encode(value.to_bytes((value.bit_length() + 7) // 8)).rstrip(b"=").decode()


@pytest.mark.parametrize(("bits", "exponent_bits"), [(2048, 2000), (3072, 3000), (2048, 32), (8200, 17), (80_000, 17)])
async def test_keys_that_take_long_to_compare_with_are_none(provider, authenticator, monkeypatch, bits, exponent_bits):
    """JWT-19: a provider with 64 such keys would hold everybody's requests for seconds by one token without a key id."""
    compared = []
    monkeypatch.setattr(oidc._JWS, "decode", lambda token, key, algorithms: compared.append(key))
    slow = {
        "kty": "RSA",
        "n": number(2**bits - 1),
        "e": number(2 ** (exponent_bits - 1) + 2 ** (exponent_bits // 2) + 1),
    }
    provider.keys = [slow] * 64
    with pytest.raises(Refused, match="signature"):
        await authenticator.authenticate(bearer(signed(claims(provider))), now=NOW)
    assert compared == []


async def test_others_are_served_between_one_key_and_the_next(provider, authenticator, monkeypatch):
    """JWT-19: a token without a key id is compared with one key in a turn of the loop."""
    provider.keys = [jwk(OTHER_RSA)] * 20
    turn, turns, decode = [0], [], oidc._JWS.decode

    def compared(*args, **more):
        turns.append(turn[0])
        return decode(*args, **more)

    monkeypatch.setattr(oidc._JWS, "decode", compared)
    task = asyncio.ensure_future(authenticator.verify(signed(claims(provider)), now=NOW))
    while not task.done():
        turn[0] += 1
        await asyncio.sleep(0)
    with pytest.raises(Refused, match="signature"):
        task.result()
    assert len(set(turns)) == len(turns) == 20


@pytest.mark.parametrize("name", ["iat", "nbf", "jti", "groups", "azp", "nonce"])
async def test_a_claim_that_is_null_is_one_that_is_not_there(provider, authenticator, name):
    """JWT-20: no provider makes the server fail by what it signs."""
    token = bearer(signed({**claims(provider), name: None}, kid="a"))
    principal = await authenticator.authenticate(token, now=NOW)
    assert principal.name == "oidc:alice"
    assert principal.issued_at == (0 if name == "iat" else NOW - 10)


def test_an_issuer_without_https_or_client_id_stops_the_start():
    """OIDC-08."""
    with pytest.raises(ValueError, match="https"):
        OidcIssuer(rules=ClaimRules(issuer="http://idp.example"), audiences=("x",))
    with pytest.raises(ValueError, match="client id"):
        OidcIssuer(rules=ClaimRules(issuer="https://idp.example"), audiences=())
    with pytest.raises(ValueError, match="algorithms"):
        OidcIssuer(rules=ClaimRules(issuer="https://idp.example"), audiences=("x",), algorithms=frozenset({"HS256"}))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(data=st.binary(max_size=200) | st.text("eyJ.-_=", max_size=60).map(str.encode))
async def test_any_bytes_are_nobody_or_refused(authenticator, data):
    """Parsing raises nothing but the documented error."""
    credentials = Credentials(authorization="Bearer " + data.decode("latin-1"))
    with contextlib.suppress(Refused):
        assert await authenticator.authenticate(credentials, now=NOW) is None
