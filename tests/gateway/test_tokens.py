"""Service accounts' tokens: how they are made, and every way in which they must not work (AN6; JWT-*)."""

from __future__ import annotations

import base64
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from gateway.options import DEFAULT_ISSUER
from kube.authentication.serviceaccounttokens import load_signing_key
from tests.gateway.callers import Caller
from tests.gateway.conftest import Server

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELF = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


@pytest.fixture(scope="module")
def account(alice: Caller) -> dict[str, Any]:
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tokens"}}
    return dict(alice.post(ACCOUNTS, body).body["metadata"])


def token_for(caller: Caller, **spec: Any) -> Any:
    return caller.post(f"{ACCOUNTS}/tokens/token", {"spec": spec})


def claims_of(token: str) -> dict[str, Any]:
    return dict(jwt.decode(token, options={"verify_signature": False}))


def works(server: Server, token: str) -> bool:
    answer = server.bearer(token).post(WHOAMI, SELF)
    if answer.status == 201:
        return True
    assert (answer.status, answer.reason) == (401, "Unauthorized")
    assert answer.headers["www-authenticate"] == 'Bearer realm="kubernetes"'
    return False


def test_a_request_for_another_uid_gets_no_token(alice: Caller, account: dict[str, Any]) -> None:
    """P5, in kube-apiserver's words: whoever asks for the account of before is told that it is another one now."""
    asked = {"metadata": {"name": "tokens", "namespace": "default", "uid": "of-before"}, "spec": {}}
    answer = alice.post(f"{ACCOUNTS}/tokens/token", asked)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.body["message"] == (
        'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "tokens": the UID in the token request '
        f"(of-before) does not match the UID of the service account ({account['uid']})"
    )
    assert answer.body["details"] == {"name": "tokens", "group": "authentication.k8s.io", "kind": "TokenRequest"}
    asked["metadata"]["uid"] = account["uid"]
    assert alice.post(f"{ACCOUNTS}/tokens/token", asked).status == 201


def test_token_names_tenant_account_and_times(server: Server, alice: Caller, account: dict[str, Any]) -> None:
    answer = token_for(alice, expirationSeconds=7200)
    assert answer.status == 201
    assert answer.headers["cache-control"] == "no-cache, private" or "no-store" in answer.headers["cache-control"]
    token = answer.body["status"]["token"]
    claims = claims_of(token)
    assert claims["sub"] == "system:serviceaccount:default:tokens"
    assert claims["kubernetes.io"]["tenant"] == "acme"
    assert claims["kubernetes.io"]["serviceaccount"] == {"name": "tokens", "uid": account["uid"]}
    assert claims["exp"] - claims["iat"] == 7200
    info = server.bearer(token).post(WHOAMI, SELF).body["status"]["userInfo"]
    assert info["username"] == "system:serviceaccount:default:tokens"
    assert info["extra"]["multi-tenancy.k8s.io/tenant"] == ["acme"]
    assert info["extra"]["authentication.kubernetes.io/credential-id"] == [f"JTI={claims['jti']}"]


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"expirationSeconds": 599}, 422),
        ({"expirationSeconds": 600}, 201),
        ({"expirationSeconds": 2**33}, 422),
        ({"expirationSeconds": "600"}, 400),
        ({"audiences": "x"}, 400),
        ({"audiences": [1]}, 400),
        ({"boundObjectRef": {"kind": "Secret", "apiVersion": "v1", "name": "none"}}, 404),
        ({"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}}, 400),
    ],
)
def test_token_request_is_checked(alice: Caller, account: dict[str, Any], spec: dict[str, Any], status: int) -> None:
    assert token_for(alice, **spec).status == status


def test_lifetime_is_capped(alice: Caller, account: dict[str, Any]) -> None:
    assert token_for(alice, expirationSeconds=10 * 365 * 86400).body["spec"]["expirationSeconds"] == 86_400


def test_token_for_another_audience_is_no_credential_here(
    server: Server, alice: Caller, account: dict[str, Any]
) -> None:
    token = token_for(alice, audiences=["vault"]).body["status"]["token"]
    assert not works(server, token)


def test_token_ends_with_the_secret_that_it_is_bound_to(server: Server, alice: Caller, account: dict[str, Any]) -> None:
    """JWT-14."""
    secrets = "/api/v1/namespaces/default/secrets"
    alice.post(secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "anchor"}})
    bound = {"kind": "Secret", "apiVersion": "v1", "name": "anchor"}
    token = token_for(alice, boundObjectRef=bound).body["status"]["token"]
    assert works(server, token)
    alice.delete(f"{secrets}/anchor")
    assert not works(server, token)
    alice.post(secrets, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "anchor"}})
    assert not works(server, token)
    alice.delete(f"{secrets}/anchor")


def test_token_ends_with_the_pod_that_it_is_bound_to(server: Server, alice: Caller, account: dict[str, Any]) -> None:
    """JWT-14."""
    pods = "/api/v1/namespaces/default/pods"
    spec = {"serviceAccountName": "tokens", "containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bearer"}, "spec": spec}
    other = {**pod, "metadata": {"name": "other"}, "spec": {**spec, "serviceAccountName": "default"}}
    for body in (pod, other):
        assert alice.post(pods, body).status == 201
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "bearer"}
    assert token_for(alice, boundObjectRef={**reference, "name": "other"}).status == 400
    assert token_for(alice, boundObjectRef={**reference, "uid": "x"}).status == 409
    token = token_for(alice, boundObjectRef=reference).body["status"]["token"]
    info = server.bearer(token).post(WHOAMI, SELF).body["status"]["userInfo"]
    assert info["extra"]["authentication.kubernetes.io/pod-name"] == ["bearer"]
    alice.delete(f"{pods}/bearer", gracePeriodSeconds=0)
    assert not works(server, token)
    assert alice.post(pods, pod).status == 201
    assert not works(server, token)
    for name in ("bearer", "other"):
        alice.delete(f"{pods}/{name}", gracePeriodSeconds=0)


@pytest.mark.parametrize("kind", ["Secret", "Pod"])
def test_token_is_bound_to_the_object_of_the_whole_name(alice: Caller, account: dict[str, Any], kind: str) -> None:
    """JWT-14: a long name is not the one that it begins with, and what can be nobody's name is not found."""
    objects = f"/api/v1/namespaces/default/{kind.lower()}s"
    spec = {"serviceAccountName": "tokens", "containers": [{"name": "c", "image": "i"}]}
    names = ["n" * 64, "n" * 65, f"{'n' * 63}.{'n' * 63}.{'n' * 63}.{'n' * 61}"]
    made = {}
    for name in names:
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}
        answer = alice.post(objects, body | ({"spec": spec} if kind == "Pod" else {}))
        assert answer.status == 201
        made[name] = answer.body["metadata"]["uid"]
    for name, uid in made.items():
        answer = token_for(alice, boundObjectRef={"kind": kind, "apiVersion": "v1", "name": name, "uid": uid})
        assert claims_of(answer.body["status"]["token"])["kubernetes.io"][kind.lower()] == {"name": name, "uid": uid}
        assert answer.body["spec"]["boundObjectRef"]["name"] == name
    for name in (names[1] + "n", "n" * 254, "n" * 5000, "N", "a/b", "n\0", "ü"):
        answer = token_for(alice, boundObjectRef={"kind": kind, "apiVersion": "v1", "name": name})
        assert (answer.status, answer.reason) == (404, "NotFound"), name
    for name in names:
        alice.delete(f"{objects}/{name}")


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


@pytest.mark.parametrize(
    ("written", "known"), [("{}", True), ("{}\n", True), (" {}", False), ("{} {}", False), ("{}\n{}", False)]
)
def test_a_token_is_reviewed_as_it_is_taken_in_a_header(server: Server, written: str, known: bool) -> None:
    """AZ10: as by kube-apiserver, an end of line behind it does not count."""
    admin = server.admin
    admin.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tokens"}})
    token = token_for(admin).body["status"]["token"]
    for audiences in ({}, {"audiences": [claims_of(token)["aud"][0]]}):
        spec = {"token": written.format(token, token), **audiences}
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        answer = admin.post("/apis/authentication.k8s.io/v1/tokenreviews", review)
        assert answer.body["status"].get("authenticated", False) is known, answer.body["status"]


def test_token_ends_with_the_node_that_it_is_bound_to(server: Server) -> None:
    """JWT-14: Nodes are bound to as Secrets and Pods are; who asks is told which one (AZ10)."""
    admin, nodes = server.admin, "/api/v1/nodes"
    admin.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tokens"}})
    reference = {"kind": "Node", "apiVersion": "v1", "name": "token-node"}
    assert token_for(admin, boundObjectRef=reference).status == 404
    uid = admin.post(nodes, node("token-node")).body["metadata"]["uid"]
    refused = token_for(admin, boundObjectRef={**reference, "uid": "x"})
    assert (refused.status, refused.body["message"]) == (
        409,
        'Operation cannot be fulfilled on Node "token-node": the UID in the bound object reference (x) does not match '
        "the UID in record. The object might have been deleted and then recreated",
    )
    token = token_for(admin, boundObjectRef={**reference, "uid": uid}).body["status"]["token"]
    claims = claims_of(token)
    assert claims["kubernetes.io"]["node"] == {"name": "token-node", "uid": uid}
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    reviewed = admin.post("/apis/authentication.k8s.io/v1/tokenreviews", review).body["status"]["user"]
    for user in (reviewed, server.bearer(token).post(WHOAMI, SELF).body["status"]["userInfo"]):
        assert user["extra"]["authentication.kubernetes.io/node-name"] == ["token-node"]
        assert user["extra"]["authentication.kubernetes.io/node-uid"] == [uid]
        assert user["extra"]["authentication.kubernetes.io/credential-id"] == [f"JTI={claims['jti']}"]
        assert "authentication.kubernetes.io/pod-name" not in user["extra"]
    admin.delete(f"{nodes}/token-node")
    assert not works(server, token)
    admin.post(nodes, node("token-node"))
    assert not works(server, token)
    admin.delete(f"{nodes}/token-node")


@pytest.mark.parametrize("registered", [True, False])
def test_token_of_a_pod_names_its_node_and_does_not_end_with_it(server: Server, registered: bool) -> None:
    """As kube-apiserver: by name and UID, of a node that is not registered by name alone."""
    admin, pods, nodes = server.admin, "/api/v1/namespaces/default/pods", "/api/v1/nodes"
    admin.post(ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "tokens"}})
    name = "pod-node" if registered else "no-node"
    known = admin.post(nodes, node(name)).body["metadata"]["uid"] if registered else ""
    spec = {"serviceAccountName": "tokens", "nodeName": name, "containers": [{"name": "c", "image": "i"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "placed"}, "spec": spec}
    uid = admin.post(pods, pod).body["metadata"]["uid"]
    token = token_for(admin, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": "placed"}).body["status"][
        "token"
    ]
    named = {"name": name, "uid": known} if registered else {"name": name}
    claims = claims_of(token)["kubernetes.io"]
    assert (claims["pod"], claims["node"]) == ({"name": "placed", "uid": uid}, named)
    admin.delete(f"{nodes}/{name}")
    extra = server.bearer(token).post(WHOAMI, SELF).body["status"]["userInfo"]["extra"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [uid]
    assert extra["authentication.kubernetes.io/node-name"] == [name]
    assert extra.get("authentication.kubernetes.io/node-uid", []) == ([known] if registered else [])
    admin.delete(f"{pods}/placed", gracePeriodSeconds=0)
    assert not works(server, token)


def test_token_of_a_deleted_and_remade_account_stays_dead(server: Server, alice: Caller) -> None:
    """JWT-13."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "phoenix"}}
    alice.post(ACCOUNTS, body)
    token = alice.post(f"{ACCOUNTS}/phoenix/token", {"spec": {}}).body["status"]["token"]
    assert works(server, token)
    alice.delete(f"{ACCOUNTS}/phoenix")
    assert not works(server, token)
    alice.post(ACCOUNTS, body)
    assert not works(server, token)


class Forge:
    """Makes tokens with the server's own key, and without it."""

    def __init__(self, server: Server, account: dict[str, Any]) -> None:
        self.key = serialization.load_pem_private_key(
            (Path(server.folder) / "pki" / "service-account.key").read_bytes(), None
        )
        assert isinstance(self.key, ec.EllipticCurvePrivateKey)
        now = int(time.time())
        self.good = {
            "iss": DEFAULT_ISSUER,
            "aud": [DEFAULT_ISSUER],
            "sub": "system:serviceaccount:default:tokens",
            "iat": now,
            "nbf": now,
            "exp": now + 600,
            "jti": "1",
            "kubernetes.io": {
                "tenant": "acme",
                "cluster": "root:acme",
                "namespace": "default",
                "serviceaccount": {"name": "tokens", "uid": account["uid"]},
            },
        }

    def signed(self, key: Any = None, algorithm: str = "ES256", headers: Any = None, **changes: Any) -> str:
        claims = {name: value for name, value in {**self.good, **changes}.items() if value is not ...}
        return jwt.encode(claims, key or self.key, algorithm=algorithm, headers=headers)

    def within(self, **changes: Any) -> dict[str, Any]:
        return {"kubernetes.io": {**self.good["kubernetes.io"], **changes}}

    def hs256(self) -> str:
        public = self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        signed = f"{_segment({'alg': 'HS256', 'typ': 'JWT'})}.{_segment(self.good)}"
        return f"{signed}.{_segment(hmac.digest(public, signed.encode(), 'sha256'))}"


@pytest.fixture(scope="module")
def forge(server: Server, account: dict[str, Any]) -> Forge:
    return Forge(server, account)


def test_forge_works_when_nothing_is_wrong(server: Server, forge: Forge) -> None:
    """Without this the attacks below would prove nothing."""
    assert works(server, forge.signed())


def _segment(value: Any) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


ATTACKS: dict[str, Any] = {
    "alg none": lambda f: f"{_segment({'alg': 'none'})}.{_segment(f.good)}.",
    "alg None with a signature": lambda f: f"{_segment({'alg': 'NoNe'})}.{_segment(f.good)}.{_segment(b'x')}",
    "no alg": lambda f: f"{_segment({})}.{_segment(f.good)}.{_segment(b'x')}",
    "empty signature": lambda f: f.signed().rpartition(".")[0] + ".",
    "HS256 with the public key": lambda f: f.hs256(),
    "another key": lambda f: f.signed(key=ec.generate_private_key(ec.SECP256R1())),
    "another curve": lambda f: f.signed(key=ec.generate_private_key(ec.SECP384R1()), algorithm="ES384"),
    "null signature": lambda f: f.signed().rpartition(".")[0] + "." + _segment(b"\0" * 64),
    "critical header": lambda f: f.signed(headers={"crit": ["x"], "x": 1}),
    "foreign kid": lambda f: f.signed(headers={"kid": "../../dev/null"}),
    "kid is SQL": lambda f: f.signed(headers={"kid": "x' OR 1=1--"}),
    "kid is an absolute path": lambda f: f.signed(headers={"kid": "/etc/passwd"}),
    "kid is half a character": lambda f: _with_header(f, {"alg": "ES256", "kid": "\ud800"}),
    "kid is large": lambda f: f.signed(headers={"kid": "a" * 1500}),
    "kid is a list": lambda f: _with_header(f, {"alg": "ES256", "kid": ["a"]}),
    "the key in the header": lambda f: f.signed(key=STRANGER, headers={"jwk": load_signing_key(STRANGER).public.jwk()}),
    "the key elsewhere": lambda f: f.signed(key=STRANGER, headers={"jku": f"{DEFAULT_ISSUER}/openid/v1/jwks"}),
    "the chain elsewhere": lambda f: f.signed(key=STRANGER, headers={"x5u": "https://evil.example/chain.pem"}),
    "the chain in the header": lambda f: f.signed(key=STRANGER, headers={"x5c": ["MIIB"]}),
    "alg twice": lambda f: f"{_segment(TWO_ALGORITHMS)}.{_segment(f.good)}.",
    "the tenant twice": lambda f: jwt.api_jws.encode(_two_tenants(f), f.key, algorithm="ES256"),
    "padded": lambda f: f.signed() + "==",
    "a blank inside": lambda f: f.signed().replace(".", ". ", 1),
    "a tab inside": lambda f: f.signed().replace(".", ".\t", 1),
    "another alphabet": lambda f: f.signed()[:-4] + "+/+/",
    "unsigned segments swapped": lambda f: ".".join(reversed(f.signed().split("."))),
    "issuer with a slash": lambda f: f.signed(iss=DEFAULT_ISSUER + "/"),
    "issuer is a part": lambda f: f.signed(iss="https"),
    "issuer is a list": lambda f: _with_claims(f, iss=[DEFAULT_ISSUER]),
    "no exp": lambda f: f.signed(exp=...),
    "exp is text": lambda f: f.signed(exp="9999999999"),
    "exp is huge": lambda f: _with_claims(f, exp=1e308),
    "exp is beyond 64 bits": lambda f: _with_claims(f, exp=2**63),
    "exp is a fraction": lambda f: _with_claims(f, exp=time.time() + 600.5),
    "exp is not a number": lambda f: _with_claims(f, exp=float("nan")),
    "exp is endless": lambda f: _with_claims(f, exp=float("inf")),
    "exp is negative": lambda f: f.signed(exp=-1),
    "exp is a list": lambda f: _with_claims(f, exp=[int(time.time()) + 600]),
    "iat is text": lambda f: _with_claims(f, iat="1"),
    "nbf is true": lambda f: _with_claims(f, nbf=True),
    "exp is true": lambda f: f.signed(exp=True),
    "expired a second ago": lambda f: f.signed(exp=int(time.time()) - 1, iat=int(time.time()) - 600),
    "not yet": lambda f: f.signed(nbf=int(time.time()) + 30),
    "no audience": lambda f: f.signed(aud=...),
    "another audience": lambda f: f.signed(aud=["vault"]),
    "audience is an object": lambda f: _with_claims(f, aud={DEFAULT_ISSUER: True}),
    "audience in a list in a list": lambda f: _with_claims(f, aud=[[DEFAULT_ISSUER]]),
    "audience among numbers": lambda f: _with_claims(f, aud=[1, DEFAULT_ISSUER]),
    "audience is empty": lambda f: f.signed(aud=[]),
    "another tenant": lambda f: f.signed(**f.within(tenant="globex")),
    "another tenant's cluster": lambda f: f.signed(**f.within(tenant="globex", cluster="root:globex")),
    "the system tenant": lambda f: f.signed(**f.within(tenant="system", cluster="root")),
    "no tenant": lambda f: f.signed(**f.within(tenant=None)),
    "empty tenant": lambda f: f.signed(**f.within(tenant="")),
    "another namespace": lambda f: f.signed(**f.within(namespace="kube-system")),
    "another uid": lambda f: f.signed(**f.within(serviceaccount={"name": "tokens", "uid": "x"})),
    "no account": lambda f: f.signed(**f.within(serviceaccount=None)),
    "subject of another account": lambda f: f.signed(sub="system:serviceaccount:default:other"),
    "subject of a user": lambda f: f.signed(sub="admin"),
    "no kubernetes claims": lambda f: f.signed(**{"kubernetes.io": ...}),
    "many dots": lambda _: "a." * 5000,
    "large": lambda _: "A" * 40_000,
    "five parts": lambda f: f.signed() + ".a.b",
    "blank": lambda _: " ",
}


STRANGER = ec.generate_private_key(ec.SECP256R1()).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
)
TWO_ALGORITHMS = b'{"alg":"ES256","alg":"none"}'


def _two_tenants(forge: Forge) -> bytes:
    """What reads as acme's for whoever takes the first of two keys, and as globex's for whoever takes the last."""
    return json.dumps(forge.good).encode().replace(b'"tenant": "acme"', b'"tenant": "acme", "tenant": "globex"')


def _with_header(forge: Forge, header: dict[str, Any]) -> str:
    _, body, signature = forge.signed().split(".")
    return f"{_segment(header)}.{body}.{signature}"


def _with_claims(forge: Forge, **changes: Any) -> str:
    body = json.dumps({**forge.good, **changes}).encode()
    return jwt.api_jws.encode(body, forge.key, algorithm="ES256")


@pytest.mark.parametrize("attack", list(ATTACKS))
def test_forged_token_is_refused(server: Server, forge: Forge, attack: str) -> None:
    assert not works(server, ATTACKS[attack](forge))


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        ("Bearer {}", True),
        ("bearer {}", True),
        ("Bearer  {}", False),
        ("Bearer", False),
        ("Basic {}", False),
        ("{}", False),
    ],
)
def test_authorization_header_is_read_strictly(server: Server, forge: Forge, header: str, accepted: bool) -> None:
    """HDR-28."""
    answer = server.nobody.post(WHOAMI, SELF, headers={"Authorization": header.format(forge.signed())})
    assert (answer.status == 201) is accepted


@pytest.mark.parametrize("parameter", ["access_token", "token"])
def test_token_in_the_query_is_no_credential(server: Server, forge: Forge, parameter: str) -> None:
    """HDR-29."""
    assert server.nobody.get("/api", **{parameter: forge.signed()}).status == 401


def test_certificate_wins_over_a_token(server: Server, alice: Caller, forge: Forge) -> None:
    answer = alice.post(WHOAMI, SELF, headers={"Authorization": f"Bearer {forge.signed()}"})
    assert answer.body["status"]["userInfo"]["username"] == "alice"


def test_token_review_tells_a_tenant_about_its_own_tokens_only(
    server: Server, alice: Caller, gina: Caller, forge: Forge
) -> None:
    """AZ10."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": forge.signed()}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    own = alice.post(path, body).body
    assert own["status"]["authenticated"]
    assert own["status"]["user"]["username"] == "system:serviceaccount:default:tokens"
    assert not own["spec"].get("token")
    assert "authenticated" not in gina.post(path, body).body["status"]
    assert not server.admin.post(path, {**body, "spec": {"token": "x"}}).body["status"].get("authenticated")


def test_others_ask_whether_a_token_for_them_is_good(alice: Caller, gina: Caller, account: dict[str, Any]) -> None:
    """AN6, AZ10: TokenReview with audiences, as the services that tokens are made for send it."""
    spec = {"audiences": ["vault", "registry"]}
    token = alice.post(f"{ACCOUNTS}/tokens/token", {"spec": spec}).body["status"]["token"]
    path = "/apis/authentication.k8s.io/v1/tokenreviews"

    def review(who: Caller, *audiences: str) -> Any:
        return who.post(path, {"spec": {"token": token, "audiences": list(audiences)}}).body["status"]

    good = review(alice, "elsewhere", "vault")
    assert (good["authenticated"], good["audiences"]) == (True, ["vault"])
    assert good["user"]["username"] == "system:serviceaccount:default:tokens"
    for refused in (review(alice), review(alice, "elsewhere"), review(alice, DEFAULT_ISSUER), review(gina, "vault")):
        assert "authenticated" not in refused
    assert alice.post(path, {"spec": {"token": token, "audiences": ["a"] * 33}}).status == 400
