"""Service-account tokens: what is accepted, and everything that is not."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import jwt as pyjwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.authentication import serviceaccounttokens
from kube.authentication.serviceaccounttokens import InvalidToken, Reference, ServiceAccountClaims
from kube.requests.logicalclusters import tenant_of

NOW = 1_800_000_000
ISSUER = "https://kubernetes.example"


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


EC_PEM = pem(ec.generate_private_key(ec.SECP256R1()))
RSA_PEM = pem(rsa.generate_private_key(65537, 2048))
EC_KEY, RSA_KEY = serviceaccounttokens.load_signing_key(EC_PEM), serviceaccounttokens.load_signing_key(RSA_PEM)
SIGNER = pyjwt.get_algorithm_by_name("ES256")
KEYS = (EC_KEY.public, RSA_KEY.public)

CLAIMS = ServiceAccountClaims(
    issuer=ISSUER,
    audiences=("api", "vault"),
    issued_at=NOW - 10,
    not_before=NOW - 10,
    expires_at=NOW + 7190,
    token_id="6c7c7c3e",
    tenant="t1",
    cluster="root:t1:ws",
    namespace="ns",
    account=Reference("sa", "uid-1"),
    secret=Reference("anchor", "uid-2"),
)


def verify(token: str, **changes: Any) -> ServiceAccountClaims:
    options = {"keys": KEYS, "issuers": [ISSUER], "audiences": ["api"], "now": NOW} | changes
    return serviceaccounttokens.verify(token, **options)


def forge(
    payload: dict[str, Any] | None = None,
    *,
    key: Any = EC_PEM,
    algorithm: str = "ES256",
    header: dict[str, Any] | None = None,
) -> str:
    body = json.dumps(CLAIMS.as_dict() | (payload or {})).encode()
    return pyjwt.api_jws.encode(body, key, algorithm=algorithm, headers=header)


@pytest.mark.parametrize("key", [EC_KEY, RSA_KEY], ids=["ES256", "RS256"])
def test_a_token_says_what_was_signed(key: serviceaccounttokens.SigningKey) -> None:
    """AN6."""
    token = serviceaccounttokens.sign(CLAIMS, key)
    assert serviceaccounttokens.is_token(token)
    assert verify(token) == CLAIMS
    assert serviceaccounttokens.unverified_issuer(token) == ISSUER
    assert serviceaccounttokens.unverified_audiences(token) == set(CLAIMS.audiences)
    assert CLAIMS.user == "system:serviceaccount:ns:sa"
    assert CLAIMS.groups == ("system:serviceaccounts", "system:serviceaccounts:ns")
    assert CLAIMS.as_dict()["kubernetes.io"] == {
        "namespace": "ns",
        "serviceaccount": {"name": "sa", "uid": "uid-1"},
        "tenant": "t1",
        "cluster": "root:t1:ws",
        "secret": {"name": "anchor", "uid": "uid-2"},
    }
    assert pyjwt.get_unverified_header(token)["kid"] == key.public.kid


@pytest.mark.parametrize("uid", ["uid-4", ""])
def test_a_token_of_a_pod_names_its_node(uid: str) -> None:
    """AN6: as kube-apiserver, a node that is not registered by its name alone."""
    claims = replace(CLAIMS, secret=None, pod=Reference("web", "uid-3"), node=Reference("worker", uid))
    assert verify(serviceaccounttokens.sign(claims, EC_KEY)) == claims
    bound = claims.as_dict()["kubernetes.io"]
    assert bound["pod"] == {"name": "web", "uid": "uid-3"}
    assert bound["node"] == ({"name": "worker", "uid": uid} if uid else {"name": "worker"})


def test_a_token_without_key_id_is_tried_with_every_key_of_its_algorithm() -> None:
    other = serviceaccounttokens.load_signing_key(pem(ec.generate_private_key(ec.SECP256R1()))).public
    assert verify(forge(), keys=(other, *KEYS)) == CLAIMS


@pytest.mark.parametrize(("seconds", "valid"), [(-11, False), (-10, True), (7189, True), (7190, False), (7191, False)])
def test_times_have_no_leeway(seconds: int, valid: bool) -> None:
    """JWT-08."""
    token = serviceaccounttokens.sign(CLAIMS, EC_KEY)
    if valid:
        assert verify(token, now=NOW + seconds) == CLAIMS
    else:
        with pytest.raises(InvalidToken):
            verify(token, now=NOW + seconds)


@pytest.mark.parametrize(
    "payload",
    [
        *({claim: None} for claim in ("exp", "iat", "nbf", "iss", "aud", "sub", "jti", "kubernetes.io")),
        *({"exp": value} for value in ("1900000000", 1e308, 2**63, True, -1, [1], 1.9e9, NOW - 11)),
        *({"iat": value} for value in ("1", 1.5, True, NOW + 10**10)),
        *({"nbf": value} for value in ("1", False, NOW + 7190)),
        *({"iss": value} for value in (f"{ISSUER}/", ISSUER.upper(), "https", [ISSUER], "")),
        *({"aud": value} for value in ("other", [], ["other"], [1], {"api": 1}, ["api"] * 65, "ap", [["api"]])),
        *({"sub": value} for value in ("system:serviceaccount:ns:other", "sa", ["x"], "")),
        {"jti": 1},
    ],
    ids=str,
)
def test_wrong_claims_are_refused(payload: dict[str, Any]) -> None:
    """JWT-05, JWT-07."""
    with pytest.raises(InvalidToken):
        verify(forge(payload))


@pytest.mark.parametrize(
    "bound",
    [
        {"tenant": "t2"},
        {"tenant": None},
        {"tenant": ""},
        {"tenant": "system"},
        {"cluster": None},
        {"cluster": "root"},
        {"cluster": "root:t2"},
        {"cluster": "root:T1"},
        {"cluster": "system:admin", "tenant": "t1"},
        {"namespace": "NS"},
        {"namespace": ""},
        {"namespace": "other"},
        {"serviceaccount": None},
        {"serviceaccount": {"name": "sa"}},
        {"serviceaccount": {"name": "sa", "uid": ""}},
        {"serviceaccount": {"name": "a:b", "uid": "x"}},
        {"serviceaccount": ["sa"]},
        {"secret": {"name": "x"}},
        {"secret": "x"},
        {"pod": {"name": 1, "uid": "x"}},
        {"pod": {"name": "x"}},
        {"node": {"name": "x"}},
        {"node": {"name": "x", "uid": ""}},
        {"node": {"name": "X Y", "uid": "x"}},
        {"pod": {"name": "x", "uid": "x"}, "node": {"name": "x", "uid": ""}},
    ],
    ids=str,
)
def test_a_token_that_does_not_agree_with_itself_is_refused(bound: dict[str, Any]) -> None:
    """AN6, JWT-10: a missing tenant is never system."""
    with pytest.raises(InvalidToken):
        verify(forge({"kubernetes.io": CLAIMS.as_dict()["kubernetes.io"] | bound}))


def unsigned(algorithm: str | None) -> str:
    header = {"typ": "JWT"} | ({"alg": algorithm} if algorithm else {})
    parts = (json.dumps(header), json.dumps(CLAIMS.as_dict()))
    return ".".join(base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in parts)


def public_pem(key: serviceaccounttokens.VerifyingKey) -> bytes:
    return key.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def hmac_token(secret: bytes) -> str:
    import hashlib
    import hmac

    body = unsigned("HS256")
    signature = base64.urlsafe_b64encode(hmac.digest(secret, body.encode(), hashlib.sha256)).rstrip(b"=").decode()
    return f"{body}.{signature}"


def segment(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


STRANGER = pem(ec.generate_private_key(ec.SECP256R1()))
BROUGHT: list[dict[str, Any]] = [
    {"jwk": serviceaccounttokens.load_signing_key(STRANGER).public.jwk()},
    {"jku": "https://evil.example/jwks"},
    {"x5u": "https://evil.example/chain.pem"},
    {"x5c": ["MIIB"]},
    {"kid": EC_KEY.public.kid, "jwk": serviceaccounttokens.load_signing_key(STRANGER).public.jwk()},
]
TWICE = '{"alg":"ES256","alg":"none"}'


@pytest.mark.parametrize(
    "token",
    [
        # JWT-01, JWT-02: the algorithm is not the token's choice
        *(f"{unsigned(algorithm)}.{signature}" for algorithm in ("none", "NoNe", None) for signature in ("", "AAAA")),
        *(hmac_token(public_pem(key)) for key in KEYS),
        forge(key=RSA_PEM, algorithm="PS256"),
        forge(key=RSA_PEM, algorithm="RS512"),
        # JWT-19: r = s = 0, another curve, headers that change the meaning
        f"{unsigned('ES256')}.{base64.urlsafe_b64encode(bytes(64)).rstrip(b'=').decode()}",
        forge(key=pem(ec.generate_private_key(ec.SECP384R1())), algorithm="ES384"),
        forge(header={"crit": ["b64"]}),
        forge(header={"zip": "DEF"}),
        forge(header={"enc": "A128GCM"}),
        # JWT-04, JWT-11: unknown keys
        forge(key=pem(ec.generate_private_key(ec.SECP256R1()))),
        forge(header={"kid": "../../dev/null"}),
        forge(header={"kid": "x' OR 1=1--"}),
        forge(header={"kid": "\ud800"}),
        # whoever brings a key along, or says where one is, has signed for nobody
        *(forge(key=STRANGER, header=header) for header in BROUGHT),
        f"{segment(TWICE)}.{segment(json.dumps(CLAIMS.as_dict()))}.",
        # JWT-20: no token at all, or far too much of one
        "",
        "a.b",
        "a.b.c",
        "." * 100_000,
        "a" * 5_000_000,
        "a.b.c.d.e",
        forge() + "\n",
        " " + forge(),
        forge() + "=",
        "\u00e9.b.c",
    ],
)
def test_forged_tokens_are_refused(token: str) -> None:
    with pytest.raises(InvalidToken) as refused:
        verify(token)
    assert token[:40] not in str(refused.value) or not token


def test_a_bent_signature_is_refused() -> None:
    head, body, signature = serviceaccounttokens.sign(CLAIMS, EC_KEY).split(".")
    bent = ("B" if signature[0] != "B" else "C") + signature[1:]
    with pytest.raises(InvalidToken):
        verify(f"{head}.{body}.{bent}")
    other = base64.urlsafe_b64encode(json.dumps(CLAIMS.as_dict() | {"sub": "x"}).encode()).rstrip(b"=").decode()
    with pytest.raises(InvalidToken):
        verify(f"{head}.{other}.{signature}")


def test_a_rotated_key_is_refused() -> None:
    """JWT-22."""
    with pytest.raises(InvalidToken):
        verify(serviceaccounttokens.sign(CLAIMS, EC_KEY), keys=(RSA_KEY.public,))


NAMES = ["iss", "aud", "sub", "iat", "nbf", "exp", "jti", "kubernetes.io"]
BOUND = ["tenant", "cluster", "namespace", "serviceaccount", "secret", "pod"]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([ISSUER, "api", "t2", "system", "root", "root:t2", "root:t2:ws", "system:admin", "kube-system"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*BOUND, "name", "uid"]), inner, max_size=4)
    ),
    max_leaves=6,
)


@settings(max_examples=60)
@given(
    st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3),
    st.dictionaries(st.sampled_from(BOUND), VALUES, max_size=3),
    st.dictionaries(st.sampled_from(["kid", "crit", "typ", "cty", "jku", "jwk", "x5c", "b64"]), VALUES, max_size=2),
)
def test_any_signed_claims_are_refused_or_agree(
    changed: dict[str, Any], bound: dict[str, Any], header: dict[str, Any]
) -> None:
    """JWT-07, JWT-10: even signed by a key of ours, a claim set gives the tenant of its logical cluster or nothing."""
    payload = {"kubernetes.io": CLAIMS.as_dict()["kubernetes.io"] | bound} | changed
    body = json.dumps(CLAIMS.as_dict() | payload).encode()
    head = json.dumps({"alg": "ES256"} | header)
    signed = f"{segment(head)}.{base64.urlsafe_b64encode(body).rstrip(b'=').decode()}"
    signature = SIGNER.sign(signed.encode(), SIGNER.prepare_key(EC_PEM))
    try:
        claims = verify(f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}")
    except InvalidToken:
        return
    said = json.loads(body)
    assert (claims.tenant, claims.cluster) == (said["kubernetes.io"]["tenant"], said["kubernetes.io"]["cluster"])
    assert claims.tenant == tenant_of(claims.cluster)
    assert claims.user == said["sub"]
    assert (claims.issuer, claims.not_before <= NOW < claims.expires_at) == (ISSUER, True)
    assert "api" in claims.audiences


@given(
    st.text(max_size=80) | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode() + ".e30.e30")
)
def test_any_text_is_refused(text: str) -> None:
    """P9."""
    with pytest.raises(InvalidToken):
        verify(text)
    assert serviceaccounttokens.unverified_issuer(text) is None
    assert not serviceaccounttokens.unverified_audiences(text)


@pytest.mark.parametrize(
    ("said", "read"),
    [("api", {"api"}), (["a", "b"], {"a", "b"}), (["a", 1, None], {"a"}), ({"a": 1}, set()), (None, set())],
)
def test_whom_a_token_is_for_is_read_in_whatever_form_it_is_said(said: Any, read: set[str]) -> None:
    assert serviceaccounttokens.unverified_audiences(forge({"aud": said})) == read


def test_nothing_is_signed_that_would_be_refused() -> None:
    for bad in (
        replace(CLAIMS, tenant="t2"),
        replace(CLAIMS, expires_at=NOW - 100),
        replace(CLAIMS, audiences=()),
        replace(CLAIMS, namespace="a/b"),
    ):
        with pytest.raises(ValueError):
            serviceaccounttokens.sign(bad, EC_KEY)


def test_keys_are_loaded_from_pem_and_weak_ones_refused() -> None:
    keys = serviceaccounttokens.load_verifying_keys(EC_PEM + public_pem(RSA_KEY.public))
    assert [key.algorithm for key in keys] == ["ES256", "RS256"]
    assert [key.kid for key in keys] == [key.kid for key in KEYS]
    for bad in (b"", b"x", pem(rsa.generate_private_key(65537, 1024)), pem(ec.generate_private_key(ec.SECP521R1()))):
        with pytest.raises(ValueError):
            serviceaccounttokens.load_verifying_keys(bad)


def test_a_signing_key_does_not_show_itself() -> None:
    """GW9."""
    assert repr(EC_KEY) == f"SigningKey({EC_KEY.public.kid})"


def test_published_keys_verify_and_hold_nothing_private() -> None:
    """AN6: other parties can check the tokens."""
    published = serviceaccounttokens.jwks(KEYS)["keys"]
    assert [key["alg"] for key in published] == ["ES256", "RS256"]
    for key, jwk in zip((EC_KEY, RSA_KEY), published, strict=True):
        assert set(jwk) <= {"kty", "crv", "x", "y", "n", "e", "use", "alg", "kid"}
        token = serviceaccounttokens.sign(CLAIMS, key)
        assert json.loads(pyjwt.api_jws.decode(token, pyjwt.PyJWK(jwk), algorithms=[jwk["alg"]]))["iss"] == ISSUER
    document = serviceaccounttokens.discovery_document(ISSUER, f"{ISSUER}/openid/v1/jwks", KEYS)
    assert document["issuer"] == ISSUER
    assert document["id_token_signing_alg_values_supported"] == ["ES256", "RS256"]
