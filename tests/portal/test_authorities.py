"""Both authorities change while everything serves: whom clients trust, and whose client certificates are (GW12, AN1)."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
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
HOUR = timedelta(hours=1)
CLIENTS = ("admin", "tenantry-gateway", "tenantry-monitoring")
ROOT_CA = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"


@pytest.fixture(scope="module")
def server() -> Iterator[OwnApiserver]:
    with migrated("authorities") as database, running(database) as server:
        yield server


ELSEWHERE = {"APISERVER_PORT": "1", "APISERVER_URL": "https://elsewhere.example.org"}
"""What whoever rotates need not know: his shell is none of the parts."""


def rotate(server: OwnApiserver, *arguments: str, refused: bool = False, **given: str) -> str:
    command = [sys.executable, "manage.py", "rotate", *arguments]
    environment = {**server.environment, **ELSEWHERE, **given}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
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


def told(server: OwnApiserver, script: str) -> str:
    """What a program of the installation says."""
    setup = (
        "import django; django.setup()\nfrom tenants.clusters import encryption\nfrom tenants.models import Cluster\n"
    )
    environment = {**server.environment, "DJANGO_SETTINGS_MODULE": "portal.settings"}
    command = [sys.executable, "-c", setup + script]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


def sealed(server: OwnApiserver) -> str:
    """The credential by which the portal speaks to the API server."""
    return told(server, "print(encryption.decrypt(bytes(Cluster.objects.get().sealed_credential)))")


def said_of_it(server: OwnApiserver) -> dict[str, Any]:
    """Everything that is known of the embedded cluster but its credential, and what comes of probes and checks."""
    row = json.loads(told(server, "import json; print(json.dumps(Cluster.objects.values().get(), default=str))"))
    mere = ("sealed_credential", "credential_expires_at", "ca_data")
    probed = ("checks", "checked_at", "identity", "version", "latency_ms", "last_seen_at", "last_error")
    return {name: value for name, value in row.items() if name not in (*mere, *probed)}


@pytest.fixture(scope="module")
def said(server: OwnApiserver) -> dict[str, Any]:
    """What an operator has said of the embedded cluster."""
    told(
        server,
        "Cluster.objects.update(client_url='https://api.example.org', tenant_role='tenantry-tenant-edit',"
        " ingress_domain='apps.example.org', limits_events=True, opened='storageclasses.storage.k8s.io/fast',"
        " credential_kinds=['gateway'], is_default=False)",
    )
    return said_of_it(server)


STEPS = ("announce", "promote", "finish")
ROTATED = {"client-certificates": ("both",), "client-ca": STEPS, "server-ca": STEPS}


@pytest.mark.parametrize("name", ROTATED)
def test_a_rotation_changes_nothing_that_is_said_of_the_embedded_cluster_but_its_credential(
    server: OwnApiserver, said: dict[str, Any], name: str
) -> None:
    before = sealed(server)
    for step in ROTATED[name]:
        rotate(server, name, "--step", step, "--spread", "0")
        assert said_of_it(server) == said
    assert sealed(server) != before

    def served() -> bool:
        """Once the server has read what it shows itself with from now on, which it does by itself."""
        try:
            return whoami(sealed(server)).status == 201
        except ssl.SSLCertVerificationError:
            return False

    eventually(served)


def test_another_bootstrap_changes_nothing_that_is_said_of_the_embedded_cluster(
    server: OwnApiserver, said: dict[str, Any]
) -> None:
    """Each release begins with one; here it finds a certificate that is to be made anew."""
    before = sealed(server)
    for suffix in ("crt", "key"):
        (server.kubeconfig.parent / "pki" / f"tenantry-gateway.{suffix}").unlink()
    told(server, "from portal.quickstart.bootstrap import bootstrap; bootstrap()")
    assert sealed(server) != before
    assert said_of_it(server) == said
    told(server, "Cluster.objects.update(ca_data='', sealed_credential=None)")
    told(server, "from portal.quickstart.bootstrap import bootstrap; bootstrap()")
    assert said_of_it(server) == said
    assert whoami(sealed(server)).status == 201


def test_client_certificates_are_made_anew_and_nobody_notices(server: OwnApiserver) -> None:
    """The operators', the portal's and Prometheus', while each of them goes on with the one that it has."""
    folder = server.kubeconfig.parent / "pki"
    told(
        server,
        "from portal.quickstart.keys import MONITORING_USER\nfrom gateway.http.certificates import client_kubeconfig\n"
        "from portal.quickstart.ownapiserver import options\n"
        "client_kubeconfig(options(), MONITORING_USER, organizations=['tenant:system'], units=['system:monitoring'])",
    )
    certificates = {path: path.read_bytes() for path in (folder / f"{name}.crt" for name in CLIENTS)}
    bystander, before, portals = (folder / "server.crt").read_bytes(), server.kubeconfig.read_text(), sealed(server)
    asking, ended = threading.Event(), threading.Event()
    answers: list[int] = []

    def ask() -> None:
        while not ended.is_set():
            answers.extend(whoami(config).status for config in (before, portals))
            asking.set()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        asking.wait()
        assert "client-certificates: done (both)" in rotate(server, "client-certificates", "--spread", "0")
    finally:
        ended.set()
        thread.join()
    assert set(answers) == {201}
    after, portal = server.kubeconfig.read_text(), sealed(server)
    assert after != before
    assert portal != portals
    for config, user in (
        (before, "admin"),
        (after, "admin"),
        (portals, "tenantry-gateway"),
        (portal, "tenantry-gateway"),
    ):
        assert whoami(config)["status"]["userInfo"]["username"] == user
    for path, old in certificates.items():
        (was,), (now,) = pki.load_certificates(old), pki.load_certificates(path.read_bytes())
        assert (now.subject, now.issuer) == (was.subject, was.issuer)
        assert now.not_valid_after_utc > was.not_valid_after_utc
    assert (folder / "server.crt").read_bytes() == bystander


def announced(server: OwnApiserver) -> str:
    """A kubeconfig by the authority that waits to sign: who holds its key, behind the one that signs, could make it."""
    certificate, key = (
        pki.pem_blocks((server.kubeconfig.parent / "pki" / f"client-ca.{suffix}").read_bytes())[-1]
        for suffix in ("crt", "key")
    )
    made = pki.make_client_certificate(
        pki.KeyPair(certificate, key), "soon", organizations=["tenant:system"], now=datetime.now(UTC), lifetime=HOUR
    )
    config = json.loads(server.kubeconfig.read_text())
    config["users"][0]["user"] = {
        "client-certificate-data": base64.b64encode(made.certificate).decode(),
        "client-key-data": base64.b64encode(made.key).decode(),
    }
    return json.dumps(config)


def test_client_certificates_of_another_authority_are_believed_before_those_of_the_old_one_end(
    server: OwnApiserver,
) -> None:
    before, portals = server.kubeconfig.read_text(), sealed(server)
    assert "client-ca: done (announce)" in rotate(server, "client-ca", "--step", "announce")
    eventually(lambda: whoami(announced(server)).status == 201)
    assert "client-ca: done (promote)" in rotate(server, "client-ca", "--step", "promote")
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


def test_client_certificates_are_made_anew_in_copies_of_the_secrets(server: OwnApiserver, tmp_path: Path) -> None:
    """As docs/operators/operations.md has it for a cluster: the entries in a folder, and the authority's key beside them."""
    pki_folder, copies = server.kubeconfig.parent / "pki", tmp_path / "keys"
    copies.mkdir()
    for path in pki_folder.glob("[a-z]*"):
        if path.stem not in ("admin", "ca"):
            (copies / path.name).write_bytes(path.read_bytes())
    (copies / "ca.crt").write_bytes((pki_folder / "ca.crt").read_bytes())
    before, portals = {path.name: path.read_bytes() for path in copies.iterdir()}, sealed(server)
    rotate(server, "client-certificates", "--spread", "0", TENANTRY_KEYS_DIR=str(copies))
    changed = {path.name for path in copies.iterdir() if path.read_bytes() != before.get(path.name)}
    assert {name for name in changed if not name.startswith("tenantry-monitoring")} - {".lock"} == {
        "tenantry-gateway.crt",
        "tenantry-gateway.key",
    }
    for config in (portals, sealed(server)):
        assert whoami(config)["status"]["userInfo"]["username"] == "tenantry-gateway"
    assert sealed(server) != portals


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Path:
    """A data folder with an authority, and nobody else who holds a copy."""
    settings.APISERVER_CA_FILE = None
    monkeypatch.setattr(authorities.ownapiserver, "cluster_renew", lambda: None)
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
