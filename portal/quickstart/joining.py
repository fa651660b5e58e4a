"""The cluster that the product runs in registers itself: a certificate of the gateway's user by the cluster's own signer.

The Pod's service account may make such requests and look at them, and nothing else: a person, or a controller that the
cluster's owner trusts, approves them (``kubectl certificate approve``). The gateway's rights are those of
``tenants/manifests/``, by the name that the fences know.
"""

from __future__ import annotations

import base64
import hashlib
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.utils import timezone
from kubernetes import client, config

from audit.recorder import Actor
from tenants.clusters.selfcheck import GATEWAY
from tenants.models import Cluster
from tenants.services.clustercredentials import cluster_credential_rotate
from tenants.services.clusters import cluster_check, cluster_register

_ACTOR = Actor(name="system:joincluster", operator=True)
_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
_LIFETIME: Final = timedelta(days=90)
_RENEW_BEFORE: Final = timedelta(days=45)
_LOOK_SECONDS: Final = 2.0


class NotJoined(Exception):
    """Why the cluster is not registered, and what to do."""


def cluster_join(*, name: str, client_url: str = "", approve: bool = False, patience: float = 600) -> str:
    """Register this cluster, or give it a new credential when the old one ends soon; what was done, in words.

    Raises ``NotJoined``, and what registering raises.
    """
    known = Cluster.objects.filter(name=name).first()
    if (
        known is not None
        and known.credential_expires_at
        and known.credential_expires_at > timezone.now() + _RENEW_BEFORE
    ):
        return f"{name} is registered; its credential holds until {known.credential_expires_at:%Y-%m-%d}."
    configuration = _inside()
    with client.ApiClient(configuration) as connection:
        key, certificate = _certificate(client.CertificatesV1Api(connection), approve=approve, patience=patience)
    kubeconfig = _kubeconfig(configuration, key, certificate)
    if known is not None and (known.sealed_credential or known.identity):
        # What operators have said of it stays, also where its credential was wiped.
        cluster_credential_rotate(actor=_ACTOR, name=name, kubeconfig=kubeconfig)
        done = "has a new credential"
    else:
        cluster_register(actor=_ACTOR, name=name, kubeconfig=kubeconfig, client_url=client_url)
        done = "is registered"
    wrong = cluster_check(actor=_ACTOR, name=name)
    return f"{name} {done}; " + (f"the check says: {wrong}" if wrong else "the check found nothing wrong.")


def _inside() -> Any:
    configuration = client.Configuration()
    try:
        load: Any = config.load_incluster_config
        load(client_configuration=configuration)
    except config.ConfigException:
        raise NotJoined("This is no Pod with a service account: the cluster around it cannot be asked.") from None
    return configuration


def _certificate(api: Any, *, approve: bool, patience: float) -> tuple[bytes, bytes]:
    """A key and its certificate, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, GATEWAY)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = request.public_bytes(serialization.Encoding.PEM)
    name = f"{GATEWAY}-{hashlib.sha256(pem).hexdigest()[:10]}"
    body = {
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": _SIGNER,
            "expirationSeconds": int(_LIFETIME.total_seconds()),
            "usages": ["client auth"],
        },
    }
    try:
        made = api.create_certificate_signing_request(body)
        if approve:
            condition = client.V1CertificateSigningRequestCondition(
                type="Approved", status="True", reason="Joining", message="by the installation itself"
            )
            made.status = client.V1CertificateSigningRequestStatus(conditions=[condition])
            api.replace_certificate_signing_request_approval(name, made)
        signed = _signed(api, name, patience)
    except client.ApiException as error:
        raise NotJoined(f"The cluster refuses the request for a certificate ({error.status} {error.reason}).") from None
    pkcs8 = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return pkcs8, signed


def _signed(api: Any, name: str, patience: float) -> bytes:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        status = api.read_certificate_signing_request(name).status
        if status is not None and status.certificate:
            return base64.b64decode(status.certificate)
        if status is not None and any(each.type in ("Denied", "Failed") for each in status.conditions or ()):
            raise NotJoined(f"The request {name} was denied: ask whoever owns the cluster.")
        time.sleep(_LOOK_SECONDS)
    raise NotJoined(f"Nobody has approved the request {name} in time: kubectl certificate approve {name}")


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
