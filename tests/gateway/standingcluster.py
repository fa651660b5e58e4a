"""An API server of the product, taken for somebody's cluster: what is posted there is covered everywhere."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import yaml

from kube.authentication import pki
from tests.gateway.callers import Caller
from tests.kubeapiserver import make_kubeconfig

MANIFESTS = Path("tenants/manifests")
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class Standing(Protocol):
    """Where it is."""

    url: str
    folder: Path

    @property
    def admin(self) -> Caller: ...


def prepare(server: Standing) -> str:
    """Apply what an operator applies to a cluster; the kubeconfig of the product's own account there."""
    documents = [
        body
        for file in ("tenant-roles.yaml", "gateway-role.yaml")
        for body in yaml.safe_load_all((MANIFESTS / file).read_text())
    ]
    for body in documents:
        if body.get("aggregationRule"):
            # A kube-apiserver's controller fills them in.
            body["rules"] = aggregated(body, documents)
            del body["aggregationRule"]
        answer = server.admin.post(f"{RBAC}/{body['kind'].lower()}s", body)
        assert answer.status in (201, 409), answer.body
    pem = server.folder / "pki"
    authority = pki.KeyPair((pem / "client-ca.crt").read_bytes(), (pem / "client-ca.key").read_bytes())
    made = pki.make_client_certificate(
        authority,
        "tenantry-gateway",
        organizations=["tenant:system"],
        now=datetime.now(UTC),
        lifetime=timedelta(days=1),
    )
    user = {
        "client-certificate-data": base64.b64encode(made.certificate).decode(),
        "client-key-data": base64.b64encode(made.key).decode(),
    }
    return make_kubeconfig(server.url, (pem / "ca.crt").read_text(), user)


def aggregated(role: dict[str, Any], among: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules of an aggregated ClusterRole."""
    wanted = [selector["matchLabels"] for selector in role["aggregationRule"]["clusterRoleSelectors"]]
    return [
        rule
        for other in among
        for labels in wanted
        if other["kind"] == "ClusterRole" and labels.items() <= (other["metadata"].get("labels") or {}).items()
        for rule in other.get("rules") or ()
    ]
