"""The product's own API server as a cluster: registered once, and given another credential when its files say another one.

What operators have said of it since is theirs: a new credential changes none of it.
"""

from __future__ import annotations

import base64
from typing import Final

import orjson
from django.conf import settings

from audit.recorder import Actor
from gateway.http.certificates import client_kubeconfig
from gateway.options import Options
from kube.authentication import pki
from tenants.clusters import encryption
from tenants.models import Cluster
from tenants.services.clustercredentials import own_credential_renew
from tenants.services.clusters import cluster_change, cluster_register

EMBEDDED_CLUSTER: Final = "embedded"
GATEWAY_USER: Final = "tenantry-gateway"
"""The user of the embedded cluster whose rights are ``tenants/manifests/embedded-gateway-role.yaml``."""

_ACTOR: Final = Actor(name="system:bootstrap", operator=True)


def options() -> Options:
    """Where this process finds the installation's keys."""
    return Options(
        database_url=settings.DATABASE_URL,
        data_folder=settings.DATA_DIR,
        keys_folder=settings.KEYS_DIR,
        external_ca_file=settings.APISERVER_CA_FILE,
        secure_port=settings.APISERVER_PORT,
    )


def cluster_register_or_renew(given: Options) -> None:
    """Register it; where it is known, see that its credential is that of the files, and its addresses those of the settings."""
    kubeconfig = _kubeconfig(given, settings.APISERVER_INTERNAL_URL)
    client_url = settings.APISERVER_URL if settings.APISERVER_URL != settings.APISERVER_INTERNAL_URL else ""
    known = Cluster.objects.filter(name=EMBEDDED_CLUSTER).first()
    if known is None or known.kind != Cluster.Kind.EMBEDDED:
        cluster_register(
            actor=_ACTOR,
            name=EMBEDDED_CLUSTER,
            kubeconfig=kubeconfig,
            kind=Cluster.Kind.EMBEDDED,
            client_url=client_url,
            is_default=known is None or known.is_default,
        )
        return
    if not known.sealed_credential or encryption.decrypt(known.sealed_credential) != kubeconfig:
        own_credential_renew(actor=_ACTOR, name=EMBEDDED_CLUSTER, kubeconfig=kubeconfig)
    if client_url and known.client_url != client_url:
        cluster_change(actor=_ACTOR, name=EMBEDDED_CLUSTER, client_url=client_url)


def cluster_renew() -> None:
    """Give it the credential of the files, where it is registered and has one.

    Its address stays, for this process may know another one, and so does a CA that the installation has not made.
    """
    known = Cluster.objects.filter(name=EMBEDDED_CLUSTER, kind=Cluster.Kind.EMBEDDED).first()
    if known is None or not known.sealed_credential:
        return
    given = options()
    config = orjson.loads(_kubeconfig(given, known.server))
    own = pki.load_certificates((given.pki_folder / "ca.crt").read_bytes())
    if not set(own) & set(pki.load_certificates(known.ca_data.encode())):
        config["clusters"][0]["cluster"]["certificate-authority-data"] = base64.b64encode(
            known.ca_data.encode()
        ).decode()
    kubeconfig = orjson.dumps(config, option=orjson.OPT_INDENT_2).decode()
    if encryption.decrypt(known.sealed_credential) != kubeconfig:
        own_credential_renew(actor=_ACTOR, name=EMBEDDED_CLUSTER, kubeconfig=kubeconfig)


def _kubeconfig(given: Options, server: str) -> str:
    return client_kubeconfig(given, GATEWAY_USER, server=server, organizations=["tenant:system"])
