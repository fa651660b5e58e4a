"""An object of each kind that is kept, as people send them, and the way to each."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kube.kinds.builtins import BUILTINS
from tests.databases import ROOT
from tests.speaking import Answer, Speaker
from tests.story.product import eventually

NAMESPACE = "objects"
_SMALL = ROOT / "tests" / "conformance" / "objects.yaml"
_FULL = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class Sample:
    """An object, where its kind is listed, and whether it belongs into the system space alone."""

    body: dict[str, Any]
    path: str
    system: bool

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def own(self) -> str:
        """The path of the object itself."""
        return f"{self.path}/{self.name}"

    def __str__(self) -> str:
        return f"{self.body['kind']} {self.name}"


@cache
def samples() -> tuple[Sample, ...]:
    """As small as they can be, and with most that they can have; custom objects after their definitions."""
    text = json.dumps([*yaml.safe_load(_SMALL.read_text()), *yaml.safe_load_all(_FULL.read_text())])
    named = text.replace('"NAMESPACE"', json.dumps(NAMESPACE)).replace('"REQUEST"', json.dumps(_signing_request()))
    found: dict[tuple[str, str], Sample] = {}
    for sample in map(_sample, json.loads(named)):
        # Of two that are one object in two versions, the first is kept.
        found.setdefault((sample.body["kind"], sample.name), sample)
    return tuple(found.values())


def _signing_request() -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bob")])
    signed = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()


def _sample(body: dict[str, Any]) -> Sample:
    system = bool(body.pop("system", False))
    group, _, version = body["apiVersion"].rpartition("/")
    resource = BUILTINS.by_group_kind(group, body["kind"])
    # What is defined in the file itself is named as its kind, and lives in namespaces.
    plural, namespaced = (resource.plural, resource.namespaced) if resource else (f"{body['kind'].lower()}s", True)
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    place = f"/namespaces/{NAMESPACE}" if namespaced else ""
    return Sample(body, f"{root}{place}/{plural}", system)


def of_space(*, system: bool) -> Iterator[Sample]:
    """Those that can be made in a tenant's space, or in the system space alone."""
    return (sample for sample in samples() if sample.system == system)


def place(admin: Speaker, tenant: str = "") -> Speaker:
    """The administrator in a space where these can be made: a tenant's of its own, or the system's."""
    if tenant:
        body = {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": tenant}}
        answer = admin.send("POST", "/api/v1/tenants", body)
        assert answer.status in (201, 409), answer
        admin = admin.at(f"/clusters/root:{tenant}")
    answer = admin.send("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    assert answer.status in (201, 409), answer
    return admin


def posted(space: Speaker, sample: Sample) -> Answer:
    """The answer to whoever makes it; custom objects are served once their definition has been noticed."""
    return eventually(
        lambda: (answer := space.send("POST", sample.path, sample.body)).status != 404 and answer, within=300
    )


def deleted(sample: Sample, by: Speaker, seen_by: Speaker) -> Iterator[str]:
    """Delete it, whatever holds it; yields what is wrong."""
    by.send("PATCH", sample.own, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    gone = by.send("DELETE", f"{sample.own}?gracePeriodSeconds=0")
    if gone.status not in (200, 202):
        yield f"{sample}: deleted with {gone.status}: {gone.body}"
    else:
        eventually(lambda: seen_by.send("GET", sample.own).status == 404, within=300)


def chosen(body: Mapping[str, Any]) -> dict[str, Any]:
    """What people have chosen of an object, without what servers note in it as they go."""
    noted = ("resourceVersion", "managedFields", "generation")
    metadata = {name: value for name, value in body.get("metadata", {}).items() if name not in noted}
    return {**{name: value for name, value in body.items() if name != "status"}, "metadata": metadata}
