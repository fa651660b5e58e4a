"""Both authorities change while everything serves: whom clients trust, and whose client certificates are (GW12, AN1)."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kube.authentication import pki
from portal.rotation import authorities
from portal.rotation.files import CannotRotate
from tests.apiserver import OwnApiserver, running
from tests.databases import ROOT, migrated
from tests.speaking import Answer, speaker_of
from tests.story.product import eventually

REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ROOT_CA = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"


@pytest.fixture(scope="module")
def server() -> Iterator[OwnApiserver]:
    with migrated("authorities") as database, running(database) as server:
        yield server


def rotate(server: OwnApiserver, *arguments: str, refused: bool = False) -> str:
    command = [sys.executable, "manage.py", "rotate", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=server.environment, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == refused, done.stderr
    return done.stderr if refused else done.stdout


def whoami(kubeconfig: str) -> Answer:
    """Asked over a connection of its own: what is trusted is decided in the handshake."""
    speaker = speaker_of(kubeconfig)
    try:
        return speaker.send("POST", WHOAMI, REVIEW)
    finally:
        speaker.close()


def trusted(kubeconfig: str) -> list[x509.Certificate]:
    cluster = json.loads(kubeconfig)["clusters"][0]["cluster"]
    return list(pki.load_certificates(base64.b64decode(cluster["certificate-authority-data"])))


def sealed(server: OwnApiserver) -> str:
    """The credential by which the portal speaks to the API server."""
    script = (
        "import django; django.setup()\n"
        "from tenants.clusters import encryption\n"
        "from tenants.models import Cluster\n"
        "print(encryption.decrypt(bytes(Cluster.objects.get().sealed_credential)))"
    )
    environment = {**server.environment, "DJANGO_SETTINGS_MODULE": "portal.settings"}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def test_client_certificates_of_another_authority_are_believed_before_those_of_the_old_one_end(
    server: OwnApiserver,
) -> None:
    before, portals = server.kubeconfig.read_text(), sealed(server)
    assert "client-ca: done (both)" in rotate(server, "client-ca", "--spread", "3")
    after = server.kubeconfig.read_text()
    assert after != before
    for config in (before, after):
        user = whoami(config)["status"]["userInfo"]
        assert (user["username"], "system:masters" in user["groups"]) == ("admin", True)
    assert sealed(server) != portals
    for config in (portals, sealed(server)):
        assert whoami(config)["status"]["userInfo"]["username"] == "tenantry-gateway"
    rotate(server, "client-ca", "--finish")
    eventually(lambda: whoami(before).status == 401)
    assert whoami(after).status == 201
    assert whoami(sealed(server)).status == 201
    assert whoami(portals).status == 401


def test_clients_know_another_authority_before_the_server_shows_its_certificate(server: OwnApiserver) -> None:
    old = server.kubeconfig.read_text()
    assert "server-ca: done (announce)" in rotate(server, "server-ca")
    both = server.kubeconfig.read_text()
    assert [certificate in trusted(old) for certificate in trusted(both)] == [True, False]
    assert len(trusted(sealed(server))) == 2
    admin = speaker_of(both)

    def published() -> list[x509.Certificate]:
        return list(pki.load_certificates(admin.send("GET", ROOT_CA)["data"]["ca.crt"].encode()))

    eventually(lambda: published() == trusted(both))
    assert "know the old one alone for another 120 minutes" in rotate(server, "server-ca", refused=True)
    assert "announced already" in rotate(server, "server-ca", "--step", "announce", refused=True)
    assert "promote it first" in rotate(server, "server-ca", "--finish", refused=True)
    assert "server-ca: done (promote)" in rotate(server, "server-ca", "--spread", "0")

    def is_refused_by_its_client() -> bool:
        """A connection that was open before goes on; a new one by the old file alone fails in the handshake."""
        try:
            whoami(old)
        except ssl.SSLCertVerificationError:
            return True
        return False

    eventually(is_refused_by_its_client)
    assert whoami(both).status == 201
    assert admin.send("POST", WHOAMI, REVIEW).status == 201
    rotate(server, "server-ca", "--finish")
    new = server.kubeconfig.read_text()
    assert trusted(new) == [certificate for certificate in trusted(both) if certificate not in trusted(old)]
    assert whoami(new).status == 201
    eventually(lambda: published() == trusted(new))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Path:
    """A data folder with an authority, and nobody else who holds a copy."""
    settings.APISERVER_CA_FILE = None
    monkeypatch.setattr(authorities, "embedded_cluster_refresh", lambda: None)
    made = pki.make_authority("tenantry-client-ca", now=datetime.now(UTC))
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "client-ca.crt").write_bytes(made.certificate)
    (tmp_path / "pki" / "client-ca.key").write_bytes(made.key)
    return tmp_path / "pki"


def signs(bundle: Path) -> bool:
    """Whether the first key is that of the first certificate."""
    key = pki.pem_blocks(bundle.with_suffix(".key").read_bytes())[0]
    first = x509.load_pem_x509_certificate(bundle.read_bytes()).public_key()
    return serialization.load_pem_private_key(key, None).public_key() == first


@pytest.mark.parametrize("writes", range(3))
def test_a_promotion_that_was_interrupted_is_done_again(
    folder: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = folder / "client-ca.crt"
    old = bundle.read_bytes()
    authorities.announce(bundle)
    assert signs(bundle)
    write, left = authorities.files.write, [writes]

    def interrupted(path: Path, data: bytes) -> None:
        if not left[0]:
            raise InterruptedError
        left[0] -= 1
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(authorities.files, "write", interrupted)
        try:
            authorities.client_ca_promote(bundle, False)
        except InterruptedError:
            assert writes < 2
    if authorities.announced(bundle):
        authorities.client_ca_promote(bundle, False)
    assert signs(bundle)
    assert len(pki.load_certificates(bundle.read_bytes())) == 2
    authorities.finish(bundle)
    assert signs(bundle)
    assert bundle.read_bytes() != old
    with pytest.raises(CannotRotate, match="announce first"):
        authorities.client_ca_promote(bundle, False)


def test_an_authority_whose_key_is_kept_elsewhere_is_left_alone(folder: Path) -> None:
    before = (folder / "client-ca.crt").read_bytes()
    (folder / "client-ca.key").unlink()
    with pytest.raises(CannotRotate, match="bring the authority's key"):
        authorities.announce(folder / "client-ca.crt")
    assert sorted(os.listdir(folder)) == ["client-ca.crt"]
    assert (folder / "client-ca.crt").read_bytes() == before
