"""The cluster that the product runs in registers itself: a certificate of the gateway's user by the cluster's own signer.

The Pod's service account may make such requests and look at them, and nothing else: a person, or a controller that the
cluster's owner trusts, approves them (``kubectl certificate approve``). The gateway's rights are those of
``tenants/manifests/``, by the name that the fences know.

Whoever approves takes his time, and a cluster forgets a request after a day, a signed one after an hour. So the key of a request
that waits is kept for as long, sealed, in Redis: the next run goes on with that request, and asks anew only where it is gone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import redis
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.cache import cache
from django.utils import timezone
from kubernetes import client, config

from audit.recorder import Actor
from kube.authentication.kubeconfig import read_kubeconfig
from kube.authentication.pki import load_certificates
from tenants.clusters.encryption import DecryptionError, decrypt, encrypt
from tenants.clusters.selfcheck import GATEWAY
from tenants.models import Cluster
from tenants.services.clustercredentials import cluster_credential_rotate
from tenants.services.clusters import cluster_check, cluster_register

_ACTOR = Actor(name="system:joincluster", operator=True)
_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
_LIFETIME: Final = timedelta(days=90)
_RENEW_BEFORE: Final = timedelta(days=45)
_LOOK_SECONDS: Final = 2.0
_PENDING_SECONDS: Final = 24 * 3600
"""A cluster removes a request that nobody has decided after a day."""


class NotJoined(Exception):
    """Why the cluster is not registered, and what to do."""


def cluster_join(*, name: str, client_url: str = "", approve: bool = False, patience: float = 600) -> str:
    """Register this cluster, or give it a new credential when the old one ends soon; what was done, in words.

    Raises ``NotJoined``, and what registering raises.
    """
    known = Cluster.objects.filter(name=name).first()
    if known is not None and known.credential_expires_at and _holds(known, known.credential_expires_at):
        return f"{name} is registered; its credential holds until {known.credential_expires_at:%Y-%m-%d}."
    configuration = _inside()
    with client.ApiClient(configuration) as connection:
        api = client.CertificatesV1Api(connection)
        key, certificate = _certificate(api, cluster=name, approve=approve, patience=patience)
    kubeconfig = _kubeconfig(configuration, key, certificate)
    if known is not None and (known.sealed_credential or known.identity):
        # What operators have said of it stays, also where its credential was wiped.
        cluster_credential_rotate(actor=_ACTOR, name=name, kubeconfig=kubeconfig)
        done = "has a new credential"
    else:
        cluster_register(actor=_ACTOR, name=name, kubeconfig=kubeconfig, client_url=client_url)
        done = "is registered"
    cache.delete(_place(name))
    wrong = cluster_check(actor=_ACTOR, name=name)
    return f"{name} {done}; " + (f"the check says: {wrong}" if wrong else "the check found nothing wrong.")


def _holds(cluster: Cluster, ends: datetime) -> bool:
    """Whether more is left than is waited for: of a certificate that the cluster has made short, half of its life."""
    left = ends - timezone.now()
    return left > _RENEW_BEFORE or left > _life(cluster) / 2


def _life(cluster: Cluster) -> timedelta:
    """How long the credential's certificate holds in all; as long as one is asked for, where nobody can read it."""
    try:
        credential = read_kubeconfig(decrypt(cluster.sealed_credential or b"")).client_certificate
        certificate, *_ = load_certificates(credential)
    except (DecryptionError, ValueError):
        return _LIFETIME
    return certificate.not_valid_after_utc - certificate.not_valid_before_utc


def _inside() -> Any:
    configuration = client.Configuration()
    try:
        load: Any = config.load_incluster_config
        load(client_configuration=configuration)
    except config.ConfigException:
        raise NotJoined("This is no Pod with a service account: the cluster around it cannot be asked.") from None
    return configuration


def _certificate(api: Any, *, cluster: str, approve: bool, patience: float) -> tuple[bytes, bytes]:
    """A key and its certificate, in PEM: of the request that waits, or of another one."""
    try:
        name, key = _pending(api, cluster) or _asked(api, cluster)
        if approve:
            _approve(api, name)
        return key, _signed(api, name, cluster, patience)
    except client.ApiException as error:
        raise NotJoined(f"The cluster refuses the request for a certificate ({error.status} {error.reason}).") from None
    except redis.RedisError as error:
        raise NotJoined(f"Redis, which keeps the request's key, is away ({type(error).__name__}).") from None


def _pending(api: Any, cluster: str) -> tuple[str, bytes] | None:
    """The request that an earlier run has made and its key, while the cluster has it and a sealing key opens it."""
    sealed: bytes | None = cache.get(_place(cluster))
    if sealed is None:
        return None
    try:
        name, key = json.loads(decrypt(sealed))
        api.read_certificate_signing_request(name)
    except DecryptionError:
        return None
    except client.ApiException as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    return name, key.encode()


def _asked(api: Any, cluster: str) -> tuple[str, bytes]:
    """A new request and its key, which is kept before anybody can approve."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, GATEWAY)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = request.public_bytes(serialization.Encoding.PEM)
    name = f"{GATEWAY}-{hashlib.sha256(pem).hexdigest()[:10]}"
    pkcs8 = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    cache.set(_place(cluster), encrypt(json.dumps([name, pkcs8.decode()])), _PENDING_SECONDS)
    body = {
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": _SIGNER,
            "expirationSeconds": int(_LIFETIME.total_seconds()),
            "usages": ["client auth"],
        },
    }
    api.create_certificate_signing_request(body)
    return name, pkcs8


def _approve(api: Any, name: str) -> None:
    made = api.read_certificate_signing_request(name)
    if made.status is not None and made.status.conditions:
        return
    condition = client.V1CertificateSigningRequestCondition(
        type="Approved", status="True", reason="Joining", message="by the installation itself"
    )
    made.status = client.V1CertificateSigningRequestStatus(conditions=[condition])
    api.replace_certificate_signing_request_approval(name, made)


def _signed(api: Any, name: str, cluster: str, patience: float) -> bytes:
    until = time.monotonic() + patience
    while True:
        status = api.read_certificate_signing_request(name).status
        if status is not None and status.certificate:
            return base64.b64decode(status.certificate)
        if status is not None and any(each.type in ("Denied", "Failed") for each in status.conditions or ()):
            cache.delete(_place(cluster))
            raise NotJoined(f"The request {name} was denied: ask whoever owns the cluster.")
        if time.monotonic() >= until:
            break
        time.sleep(_LOOK_SECONDS)
    raise NotJoined(
        f"Nobody has approved the request {name} yet: kubectl certificate approve {name} within a day; "
        "the next run of this command goes on with it, within an hour of the approval."
    )


def _place(cluster: str) -> str:
    return f"portal:joining:{cluster}"


def _kubeconfig(configuration: Any, key: bytes, certificate: bytes) -> str:
    authority = Path(configuration.ssl_ca_cert).read_bytes()
    user = {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
    cluster = {"server": configuration.host, "certificate-authority-data": _base64(authority)}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "cluster", "cluster": cluster}],
            "users": [{"name": GATEWAY, "user": user}],
            "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": GATEWAY}}],
            "current-context": "cluster",
        }
    )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
