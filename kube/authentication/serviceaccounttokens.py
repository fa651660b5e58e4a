"""Service-account tokens: signed and verified JSON Web Tokens with the claims of AN6 (RFC 7519, RFC 9068 in spirit).

One wrapper with fixed options: the algorithm belongs to the key and is never the token's choice, every claim that
matters is required and of its exact type, and nothing larger than a real token is looked at.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt as pyjwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from kube.authentication.identity import SERVICE_ACCOUNT_PREFIX, SERVICE_ACCOUNTS
from kube.authentication.pki import pem_blocks
from kube.requests.logicalclusters import is_valid, tenant_of
from kube.requests.names import is_dns_label, is_dns_subdomain

TOKEN_MAX: Final = 16_384
"""Bytes of a token; real ones have about 1,200."""

LIFETIME_MAX: Final = 2**32
"""Seconds, as Kubernetes; policies ask for far less."""

_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]{1,2048}\.[A-Za-z0-9_-]{1,12288}\.[A-Za-z0-9_-]{1,2048}")
_PARTS: Final = 5
"""Parts that are looked at of what has more: an encrypted token has so many."""

_TIME_MAX: Final = 2**53
_REQUIRED: Final = ["exp", "iat", "nbf", "iss", "aud", "sub"]
_CURVES: Final = {"secp256r1": "ES256"}
_RSA_BITS_MIN: Final = 2048

PublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


class InvalidToken(Exception):
    """A token that is not accepted. The message never contains any of it."""


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key with the one algorithm it is used with; ``kid`` is derived from the key, as Kubernetes does."""

    key: PublicKey
    algorithm: str
    kid: str

    def jwk(self) -> dict[str, str]:
        """The JSON Web Key (RFC 7517)."""
        key = self.key
        jwk = RSAAlgorithm.to_jwk(key, True) if isinstance(key, rsa.RSAPublicKey) else ECAlgorithm.to_jwk(key, True)
        return {name: value for name, value in jwk.items() if isinstance(value, str)} | {
            "use": "sig",
            "alg": self.algorithm,
            "kid": self.kid,
        }


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key; ``repr`` shows none of it."""

    _key: PrivateKey
    public: VerifyingKey

    def __repr__(self) -> str:
        return f"SigningKey({self.public.kid})"

    def sign(self, payload: Mapping[str, Any]) -> str:
        """Any payload as a token of this key, unchecked; service accounts' go through ``sign`` of this module."""
        headers = {"kid": self.public.kid}
        return pyjwt.encode(dict(payload), self._key, algorithm=self.public.algorithm, headers=headers)


def _algorithm(key: object) -> str:
    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= _RSA_BITS_MIN:
        return "RS256"
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return _CURVES[key.curve.name]
    msg = f"keys must be RSA of at least {_RSA_BITS_MIN} bits, or ECDSA P-256"
    raise ValueError(msg)


def _verifying(key: object) -> VerifyingKey:
    algorithm = _algorithm(key)
    if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
        msg = "not a public key"
        raise TypeError(msg)
    der = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return VerifyingKey(key, algorithm, _encode(hashlib.sha256(der).digest()))


def load_signing_key(pem: bytes) -> SigningKey:
    """Read a private key without a password. Raises ``ValueError`` for any other kind than RSA or P-256."""
    key = serialization.load_pem_private_key(pem, None)
    public = _verifying(key.public_key())
    if isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        return SigningKey(key, public)
    msg = "not a private key that can sign"
    raise ValueError(msg)


def load_verifying_keys(pem: bytes) -> tuple[VerifyingKey, ...]:
    """Read all public keys of a PEM file; a private key counts as its public one. Raises ``ValueError``."""
    found = []
    for block in pem_blocks(pem):
        if b"PRIVATE KEY-----" in block:
            found.append(load_signing_key(block).public)
        else:
            found.append(_verifying(serialization.load_pem_public_key(block)))
    if not found:
        msg = "no key in PEM"
        raise ValueError(msg)
    return tuple(found)


def _encode(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


@dataclass(frozen=True, slots=True)
class Reference:
    """An object that a token names. ``uid`` is empty for the node of a pod that nobody has registered."""

    name: str
    uid: str

    def as_dict(self) -> dict[str, str]:
        """The claim."""
        return {"name": self.name, "uid": self.uid} if self.uid else {"name": self.name}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAccountClaims:
    """What a verified token says (AN6). Times are Unix seconds; whether the account still exists is not said here.

    ``tenant`` is always the tenant of ``cluster``, the logical cluster in which the account lives. A token ends with what it is
    bound to: a secret, a pod or a node. Beside a pod ``node`` only says where that ran.
    """

    issuer: str
    audiences: tuple[str, ...]
    issued_at: int
    not_before: int
    expires_at: int
    token_id: str
    tenant: str
    cluster: str
    namespace: str
    account: Reference
    secret: Reference | None = None
    pod: Reference | None = None
    node: Reference | None = None

    @property
    def user(self) -> str:
        """The user name, without the tenant, as Kubernetes has it."""
        return f"{SERVICE_ACCOUNT_PREFIX}{self.namespace}:{self.account.name}"

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of every service account of this namespace, ``system:authenticated`` left to the caller."""
        return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{self.namespace}")

    def as_dict(self) -> dict[str, Any]:
        """The claim set."""
        bound: dict[str, Any] = {
            "namespace": self.namespace,
            "serviceaccount": self.account.as_dict(),
            "tenant": self.tenant,
            "cluster": self.cluster,
        }
        for kind, reference in (("secret", self.secret), ("pod", self.pod), ("node", self.node)):
            if reference is not None:
                bound[kind] = reference.as_dict()
        return {
            "iss": self.issuer,
            "aud": list(self.audiences),
            "iat": self.issued_at,
            "nbf": self.not_before,
            "exp": self.expires_at,
            "jti": self.token_id,
            "sub": self.user,
            "kubernetes.io": bound,
        }


def sign(claims: ServiceAccountClaims, key: SigningKey) -> str:
    """A token. Raises ``ValueError`` for claims that ``verify`` would refuse."""
    try:
        _claims(claims.as_dict())
    except InvalidToken as error:
        raise ValueError(str(error)) from error
    return key.sign(claims.as_dict())


def is_token(text: str) -> bool:
    """Whether this has the shape of a signed token: three parts of base64url, none of them too long."""
    return len(text) <= TOKEN_MAX and _SHAPE.fullmatch(text) is not None


def unverified_issuer(token: str) -> str | None:
    """Who the token says has signed it, to choose a verifier by; ``None`` when it says nothing readable.

    Nothing may be believed because of this.
    """
    issuer = _unverified_claims(token).get("iss")
    return issuer if isinstance(issuer, str) else None


def may_be_of(token: str, issuers: Collection[str]) -> bool:
    """Whether one of these may have issued the token, so that it is nothing for others to see (KEY-08).

    It is read as leniently as anybody may read it, whatever its length and what has come into it on its way; what begins as
    a signed token does and does not say whose it is may be anybody's. What is encrypted is nobody's of ours.
    """
    said = [_object(part) for part in token.split(".", _PARTS)]
    if any(isinstance(issuer := each.get("iss"), str) and issuer in issuers for each in said if each is not None):
        return True
    return len(said) > 2 and said[0] is not None and "enc" not in said[0] and said[1] is None


def _object(part: str) -> Mapping[str, Any] | None:
    """A part of a token that holds an object, however it is written; ``None`` for any other."""
    try:
        value = json.loads(base64.urlsafe_b64decode(part.encode("ascii", "ignore") + b"==="))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def unverified_audiences(token: str) -> frozenset[str]:
    """Whom the token says it is for, to choose what it is asked about by. Nothing may be believed because of this."""
    said = _unverified_claims(token).get("aud")
    return frozenset(each for each in (said if isinstance(said, list) else [said]) if isinstance(each, str))


def _unverified_claims(token: str) -> Mapping[str, Any]:
    """What the token says, empty when that is nothing readable."""
    if not is_token(token):
        return {}
    body = token.split(".")[1]
    try:
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, RecursionError, binascii.Error):
        return {}
    return claims if isinstance(claims, dict) else {}


def _header(token: str) -> Mapping[str, Any]:
    if not is_token(token):
        raise InvalidToken("not a signed token")
    try:
        header = pyjwt.get_unverified_header(token)
    except (pyjwt.PyJWTError, ValueError, RecursionError) as error:
        raise InvalidToken("the header cannot be read") from error
    if "crit" in header or "b64" in header or "zip" in header or "enc" in header:
        raise InvalidToken("the header asks for what is not supported")
    return header


def verify(
    token: str, *, keys: Iterable[VerifyingKey], issuers: Sequence[str], audiences: Sequence[str], now: float
) -> ServiceAccountClaims:
    """The claims of a token that one of the keys has signed, or ``InvalidToken``.

    ``issuers`` are compared whole; at least one of ``audiences`` must be in the token. ``now`` is in Unix seconds and
    there is no leeway: the second after ``exp`` is too late (JWT-08). A ``kid`` chooses the key, without one all keys
    of the algorithm are tried.
    """
    header = _header(token)
    kid, algorithm = header.get("kid"), header.get("alg")
    if kid is not None and not isinstance(kid, str):
        raise InvalidToken("the key id is no string")
    for key in keys:
        if key.algorithm != algorithm or kid not in (None, key.kid):
            continue
        try:
            payload = pyjwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                options={
                    "require": _REQUIRED,
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": False,
                    "verify_iss": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
        except pyjwt.InvalidSignatureError:
            continue
        except (pyjwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise InvalidToken("the claims cannot be read, or some are missing") from error
        claims = _claims(payload)
        if claims.issuer not in issuers:
            raise InvalidToken("the issuer is not known")
        if not set(claims.audiences) & set(audiences):
            raise InvalidToken("the token is for another audience")
        if not claims.not_before <= now < claims.expires_at:
            raise InvalidToken("the token is not valid now")
        return claims
    raise InvalidToken("no key of ours has signed it")


def _time(payload: Mapping[str, Any], claim: str) -> int:
    value = payload.get(claim)
    if type(value) is not int or not 0 <= value <= _TIME_MAX:
        raise InvalidToken(f"{claim} is no time")
    return value


def _text(payload: Mapping[str, Any], claim: str) -> str:
    value = payload.get(claim)
    if not isinstance(value, str) or not value or len(value) > 2048:
        raise InvalidToken(f"{claim} is missing or no string")
    return value


def _reference(bound: Mapping[str, Any], kind: str, *, identified: bool = True) -> Reference | None:
    value = bound.get(kind)
    if value is None:
        return None
    if not isinstance(value, dict) or set(value) not in ({"name", "uid"}, {"name"}):
        raise InvalidToken(f"the {kind} is malformed")
    name = _text(value, "name")
    uid = _text(value, "uid") if identified or "uid" in value else ""
    if not is_dns_subdomain(name):
        raise InvalidToken(f"the {kind} has no name that it could have")
    return Reference(name, uid)


def _claims(payload: Mapping[str, Any]) -> ServiceAccountClaims:
    """Check every claim's type and that they agree with each other (JWT-07, JWT-10)."""
    bound = payload.get("kubernetes.io")
    if not isinstance(bound, dict):
        raise InvalidToken("there is no kubernetes.io claim")
    audiences = payload.get("aud")
    if isinstance(audiences, str):
        audiences = [audiences]
    if not isinstance(audiences, list) or not 0 < len(audiences) <= 64:
        raise InvalidToken("aud is missing or no list")
    if not all(isinstance(audience, str) and 0 < len(audience) <= 2048 for audience in audiences):
        raise InvalidToken("aud is no list of strings")
    tenant, cluster, namespace = _text(bound, "tenant"), _text(bound, "cluster"), _text(bound, "namespace")
    if not is_valid(cluster) or tenant_of(cluster) != tenant:
        raise InvalidToken("tenant and cluster do not agree")
    account = _reference(bound, "serviceaccount")
    if account is None or not is_dns_label(namespace):
        raise InvalidToken("the service account is missing or malformed")
    issued_at, not_before, expires_at = (_time(payload, claim) for claim in ("iat", "nbf", "exp"))
    if expires_at <= not_before or not 0 < expires_at - issued_at <= LIFETIME_MAX:
        raise InvalidToken("the times do not agree")
    pod = _reference(bound, "pod")
    claims = ServiceAccountClaims(
        issuer=_text(payload, "iss"),
        audiences=tuple(audiences),
        issued_at=issued_at,
        not_before=not_before,
        expires_at=expires_at,
        token_id=_text(payload, "jti"),
        tenant=tenant,
        cluster=cluster,
        namespace=namespace,
        account=account,
        secret=_reference(bound, "secret"),
        pod=pod,
        node=_reference(bound, "node", identified=pod is None),
    )
    if payload.get("sub") != claims.user:
        raise InvalidToken("sub does not name the service account")
    return claims


def jwks(keys: Iterable[VerifyingKey]) -> dict[str, Any]:
    """The key set of ``/openid/v1/jwks`` (RFC 7517)."""
    return {"keys": [key.jwk() for key in keys]}


def discovery_document(issuer: str, jwks_uri: str, keys: Iterable[VerifyingKey]) -> dict[str, Any]:
    """The document of ``/.well-known/openid-configuration``, with the fields that Kubernetes gives."""
    return {
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": sorted({key.algorithm for key in keys}),
    }
