"""Keys change while everything serves: nobody is refused, and what the old key signed lasts as long as it would have (GW12)."""

from __future__ import annotations

import io
import os
import re
import ssl
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from itertools import chain, product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt
import pyotp
import pytest
import time_machine
from cryptography.fernet import Fernet
from django.apps import apps
from django.core import signing
from django.core.management import CommandError, call_command
from django.db.models import BinaryField
from django.utils import timezone

from audit.actions import Action
from audit.checkpoints import private_keys
from audit.models import AuditEntry
from audit.recorder import Actor
from gateway.http.certificates import client_kubeconfig, prepare
from gateway.options import Options
from kube.authentication.pki import pem_blocks
from kube.authentication.serviceaccounttokens import load_signing_key, load_verifying_keys
from portal.doctor.keys import key_files, sealing_keys
from portal.http import secretkeys
from portal.quickstart.keys import keys_make
from portal.quickstart.ownapiserver import GATEWAY_USER
from portal.rotation.files import CannotRotate
from portal.rotation.keys import ROTATIONS, rotate
from portal.signin import factors
from tenants.clusters import encryption
from tenants.clusters.sealed import columns
from tenants.models import Cluster, Recording, RecordingChunk, Webhook
from tenants.services.notices import webhook_create
from tests import factories
from tests.apiserver import OwnApiserver, running, started
from tests.databases import ROOT, migrated
from tests.gateway.test_restarts import listeners
from tests.portal.test_stored_texts import full_house
from tests.speaking import Speaker
from tests.story.product import eventually

REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


def manage(server: OwnApiserver, *arguments: str) -> str:
    command = [sys.executable, "manage.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=server.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Asking(threading.Thread):
    """A service account that asks who it is, again and again, with each token that it has had so far."""

    def __init__(self, space: Speaker, authority: Path) -> None:
        super().__init__(daemon=True)
        self.space = space
        self.context = ssl.create_default_context(cafile=authority)
        self.tokens: list[str] = []
        self.refused: list[str] = []
        self.asked = 0
        self.over = threading.Event()

    def another_token(self) -> str:
        path = "/api/v1/namespaces/default/serviceaccounts/default/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        answer = self.space.send("POST", path, body)
        assert answer.status == 201, answer
        self.tokens.append(str(answer.body["status"]["token"]))
        return self.tokens[-1]

    def bearing(self, token: str) -> Speaker:
        return Speaker(self.space.url, self.context, {"Authorization": f"Bearer {token}"}, self.space.prefix)

    def run(self) -> None:
        speakers: dict[str, Speaker] = {}
        while not self.over.is_set():
            for token in tuple(self.tokens):
                speaker = speakers.setdefault(token, self.bearing(token))
                answer = speaker.send("POST", WHOAMI, REVIEW)
                self.asked += 1
                if answer.status != 201:
                    self.refused.append(f"{answer.status} {answer.body}")


def test_a_servers_keys_and_certificate_change_under_requests() -> None:
    """Two servers with one folder: what one signs with the new key, the other one accepts at once."""
    with migrated("rotation") as database, running(database, flags=("--permit-port-sharing",)) as server:
        second = started(server, flags=("--permit-port-sharing",))
        server.processes.append(second)
        folder = Path(server.environment["TENANTRY_DATA_DIR"]) / "pki"
        key, log = folder / "service-account.key", folder.parent / "apiserver.log"
        eventually(lambda: listeners(server.url) == 2)

        def change(step: str, nth: int, *more: str) -> None:
            """Until both have read the file again, each for what it signs with and for what it verifies."""
            manage(server, "rotate", "service-account-key", "--step", step, *more)
            eventually(lambda: log.read_text().count(f"read {key} again") == 4 * nth)

        asking = Asking(server.tenant("busy"), folder / "ca.crt")
        eventually(lambda: asking.space.send("GET", "/api/v1/namespaces/default/serviceaccounts/default").status == 200)
        asking.another_token()
        asking.start()
        signing_before = load_signing_key(key.read_bytes()).public.kid
        change("announce", 1)
        change("promote", 2)
        kids = [each.kid for each in load_verifying_keys(key.read_bytes())]
        assert kids[1] == signing_before
        assert kids[0] != signing_before
        eventually(lambda: _kid(asking.another_token()) == kids[0])
        served = _served(server.url)
        manage(server, "rotate", "server-certificate")
        eventually(lambda: _served(server.url) != served)
        asked = asking.asked
        eventually(lambda: asking.asked > asked + 20)
        asking.over.set()
        asking.join(300)
        assert asking.refused == []
        command = [sys.executable, "manage.py", "rotate", "service-account-key"]
        again = subprocess.run(command, cwd=ROOT, env=server.environment, capture_output=True, text=True, check=False)
        assert "--revoke" in again.stderr
        change("announce", 3, "--revoke")
        change("promote", 4, "--revoke")
        old = asking.bearing(asking.tokens[0])
        eventually(lambda: old.send("POST", WHOAMI, REVIEW).status == 401)
        assert "service-account-key: " in manage(server, "rotate")


def _kid(token: str) -> str:

    return str(jwt.get_unverified_header(token)["kid"])


def _served(url: str) -> str:
    place = urlsplit(url)
    return ssl.get_server_certificate((str(place.hostname), int(place.port or 0)))


@pytest.fixture
def keyed(settings: Any, tmp_path: Path) -> Path:
    """A folder with the keys that a data folder has, and a cluster whose credential is sealed."""
    for name, text in (("sealing-key", Fernet.generate_key().decode()), ("secret-key", "first-" * 10)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    settings.SEALING_KEYS_FILE = tmp_path / "sealing-key"
    settings.SECRET_KEY_FILE = tmp_path / "secret-key"
    return tmp_path


def opened() -> str:
    return encryption.decrypt(bytes(Cluster.objects.get().sealed_credential or b""))


@pytest.mark.django_db
def test_sealing_keys_change_and_everything_sealed_goes_along(keyed: Path) -> None:
    old = (keyed / "sealing-key").read_text()
    factories.cluster(sealed_credential=encryption.encrypt("kubeconfig"))
    recording = _recording()
    call_command("rotate", "sealing-keys", "--spread", "0")
    new, behind = (keyed / "sealing-key").read_text().split(",")
    assert (behind, (keyed / "sealing-key").stat().st_mode & 0o777) == (old, 0o600)
    assert Fernet(new).decrypt(bytes(Cluster.objects.get().sealed_credential or b"")) == b"kubeconfig"
    assert AuditEntry.objects.filter(action=Action.KEY_ROTATED, target="keys/sealing-keys").count() == 1
    with pytest.raises(CommandError, match="1 recordings are sealed with older keys"):
        call_command("rotate", "sealing-keys", "--finish")
    assert opened() == "kubeconfig"
    recording.delete()
    call_command("rotate", "sealing-keys", "--finish")
    assert (keyed / "sealing-key").read_text() == new
    assert opened() == "kubeconfig"


@pytest.mark.django_db
@pytest.mark.parametrize("given", ["by a file", "by the environment"])
def test_apps_and_webhooks_outlive_the_key_that_sealed_their_secrets(given: str, keyed: Path, settings: Any) -> None:
    """Whoever signed in by an app goes on to, and what addresses are told stays signed with the secret that they know."""
    now, operator = timezone.now(), factories.operator()
    actor, secret = Actor(name=operator.email, user_id=operator.pk, operator=True), factors.secret_new()
    codes = pyotp.TOTP(secret)
    factors.factor_add(actor=actor, user=operator, secret=secret, code=codes.at(now), now=now)
    webhook = webhook_create(actor=actor, tenant="", url="https://x.test/", kinds=(), now=now)
    if given == "by a file":
        call_command("rotate", "sealing-keys", "--spread", "0")
        call_command("rotate", "sealing-keys", "--finish")
        assert len((keyed / "sealing-key").read_text().split(",")) == 1
    else:
        settings.SEALING_KEYS = [Fernet.generate_key().decode(), (keyed / "sealing-key").read_text()]
        settings.SEALING_KEYS_FILE = None
        with pytest.raises(CommandError, match="Then run this with --finish"):
            call_command("rotate", "sealing-keys")
        [behind] = sealing_keys()
        assert "rotate sealing-keys --finish" in behind.remedy
        call_command("rotate", "sealing-keys", "--finish")
        settings.SEALING_KEYS = settings.SEALING_KEYS[:1]
    assert [each.state for each in sealing_keys()] == ["ok"]
    later = now + timedelta(minutes=5)
    assert factors.code_use(actor=actor, user=operator, code=codes.at(later), now=later) == "app"
    assert encryption.decrypt(Webhook.objects.get().sealed_secret) == webhook.secret


@pytest.mark.django_db
def test_every_sealed_column_that_there_is_goes_along(keyed: Path) -> None:
    """Generated from the models: whatever will be sealed is sealed anew, missed by the doctor, or waited for."""
    full_house(factories.operator())
    file, old, new = keyed / "sealing-key", (keyed / "sealing-key").read_text(), Fernet.generate_key().decode()
    lasting = [each for each in columns() if each != (RecordingChunk, "sealed")]

    def seal(keys: str, *which: tuple[Any, str]) -> None:
        file.write_text(keys)
        for model, name in which:
            there = model._base_manager.update(**{name: encryption.encrypt("kept")})
            assert there, f"the house has no {model.__name__}"

    for column in lasting:
        seal(new, *lasting)
        seal(old, column)
        for keys, state in ((f"{new},{old}", "warning"), (new, "failed")):
            file.write_text(keys)
            assert [each.state for each in sealing_keys()] == [state], column
    seal(old, *lasting)  # as the house's recording is
    call_command("rotate", "sealing-keys", "--spread", "0")
    with pytest.raises(CommandError, match="recordings are sealed with older keys"):
        call_command("rotate", "sealing-keys", "--finish")
    Recording.objects.all().delete()
    seal(file.read_text().split(",")[1], *lasting)  # as by a process that has not heard yet
    file.write_text(f"{new},{old}")
    call_command("rotate", "sealing-keys", "--finish")
    assert file.read_text() == new
    for model, name in lasting:
        assert {encryption.decrypt(each) for each in model._base_manager.values_list(name, flat=True)} == {"kept"}


def test_what_is_sealed_is_kept_in_columns_that_say_so() -> None:
    """Of every binary column it is known whether it is sealed, and nothing sealed goes into another one."""
    plain = {("store_object", "data"), ("store_event", "data"), ("store_event", "previous")}
    plain |= {("passkeys", "credential_id"), ("passkeys", "public_data")}
    binary = {
        (model._meta.db_table, field.name): (model, field.name)
        for model in apps.get_models()
        for field in model._meta.local_fields
        if isinstance(field, BinaryField)
    }
    assert {each for each in binary if binary[each] not in columns()} == plain
    # An enrolment in the session and a request that waits in Redis are begun anew when no key opens them any more.
    elsewhere = {"portal/views/accounts/enrolling.py", "portal/quickstart/joining.py"}
    elsewhere |= {"portal/backup/archive.py", "tenants/recordings.py"}
    for floor in ("portal", "tenants", "access", "gateway", "audit"):
        for path in (ROOT / floor).rglob("*.py"):
            for line in path.read_text().splitlines():
                if re.search(r"(?<![\w.])(encryption\.)?encrypt\(", line) and not line.startswith("def "):
                    assert str(path.relative_to(ROOT)) in elsewhere or "sealed_" in line.split("encrypt(")[0], line


def _recording() -> Any:
    tenant = factories.tenant()
    owner = factories.member(tenant)
    return factories.recording(factories.workspace(tenant, owner), owner, shown="ls\r\n")


@pytest.mark.django_db
def test_sessions_signed_by_either_key_are_known_to_both(
    keyed: Path, settings: Any, client: Any, monkeypatch: Any
) -> None:
    """A portal that has only heard of the new key accepts it; one that signs with it accepts the old one."""
    monkeypatch.setattr(secretkeys, "_CHECK_SECONDS", 0)
    monkeypatch.setattr(secretkeys, "_stamp", None)
    client.get("/healthz")
    before = signing.dumps("somebody")
    call_command("rotate", "secret-key", "--step", "announce")
    client.get("/healthz")
    announced = (keyed / "secret-key").read_text().split(",")[1].strip()
    assert signing.loads(signing.dumps("another", key=announced)) == "another"
    call_command("rotate", "secret-key", "--step", "promote")
    client.get("/healthz")
    assert announced == settings.SECRET_KEY
    assert signing.loads(before) == "somebody"
    call_command("rotate", "secret-key", "--finish")
    client.get("/healthz")
    with pytest.raises(signing.BadSignature):
        signing.loads(before)


@pytest.mark.django_db
def test_what_cannot_be_rotated_says_why(settings: Any, tmp_path: Path) -> None:
    settings.SEALING_KEYS_FILE = None
    with pytest.raises(CommandError, match="given by the environment"):
        call_command("rotate", "sealing-keys")
    settings.PKI_DIR = tmp_path
    with pytest.raises(CommandError, match="TENANTRY_KEYS_DIR"):
        call_command("rotate", "server-certificate")
    settings.SECRET_KEY_FILE = tmp_path / "secret-key"
    settings.SECRET_KEY_FILE.write_text("only")
    with pytest.raises(CommandError, match="announce first"):
        call_command("rotate", "secret-key", "--step", "promote")
    assert os.listdir(tmp_path) == ["secret-key"]


STEPS = ("announce", "promote", "finish", "both")
WITHOUT_STEPS = {"server-certificate", "client-certificates"}
"""Certificates: nobody has to know one before it is shown."""


@pytest.mark.django_db
@pytest.mark.parametrize("name", ROTATIONS)
def test_every_step_in_any_order_is_due_or_refused_and_no_key_comes_back(
    name: str, settings: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every three steps after one another, each in whatever state the ones before have left."""
    options = Options(database_url="", data_folder=tmp_path)
    prepare(options)
    client_kubeconfig(options, GATEWAY_USER, organizations=["tenant:system"])
    settings.PKI_DIR = tmp_path / "pki"
    settings.PORTAL_TOKEN_KEY_FILE = tmp_path / "pki" / "portal-tokens.key"
    settings.SEALING_KEYS_FILE, settings.SECRET_KEY_FILE = tmp_path / "sealing-key", tmp_path / "secret-key"
    settings.SEALING_KEYS_FILE.write_text(Fernet.generate_key().decode())
    settings.SECRET_KEY_FILE.write_text("first-" * 10)
    settings.AUDIT_CHECKPOINTS_FILE = tmp_path / "none-yet"
    settings.AUDIT_CHECKPOINTS_KEY_FILE = tmp_path / "checkpoints.key"
    private_keys(settings.AUDIT_CHECKPOINTS_KEY_FILE)
    path = ROTATIONS[name].file()

    def folder() -> dict[Path, bytes]:
        return {each: each.read_bytes() for each in tmp_path.rglob("*") if each.is_file()}

    def used() -> bytes:
        text = path.read_bytes()
        return pem_blocks(text)[0] if b"BEGIN" in text else text.split(b",")[0]

    had, announced, refused = [used()], False, 0
    clock = time_machine.travel(datetime.now(UTC))
    shifted = clock.start()
    request.addfinalizer(clock.stop)
    for asked in chain(*product(STEPS, repeat=3)):
        shifted.shift(timedelta(days=1, seconds=1))
        step = asked
        before, entries = folder(), AuditEntry.objects.count()
        try:
            step = rotate(name, step=step, spread=0, revoke=False)
        except CannotRotate:
            assert folder() == before
            assert AuditEntry.objects.count() == entries
            refused += 1
            due = {"announce": not announced, "both": not announced, "promote": announced, "finish": False}[step]
            assert not due
            continue
        if name not in WITHOUT_STEPS:
            assert step != "promote" or announced
            assert step == "promote" or not announced
        announced = step == "announce"
        if used() != had[-1]:
            assert used() not in had, "an older key signs again"
            had.append(used())
        elif step == "promote":
            raise AssertionError("nothing has taken over")
    assert len(had) > 8
    assert refused > 8 or name in WITHOUT_STEPS


WAITING = {
    "service-account-key": ("both", "announce", timedelta(days=1)),
    "portal-token-key": ("both", "announce", timedelta(hours=2)),
    "server-ca": ("announce", "promote", timedelta(hours=2)),
    "client-ca": ("announce", "promote", timedelta()),
}
"""What has to wait for something that the same key's step before has left behind, and for how long."""


@pytest.mark.django_db
@pytest.mark.parametrize("name", WAITING)
def test_how_old_keys_are_does_not_depend_on_the_file_that_they_were_copied_into(
    name: str, settings: Any, tmp_path: Path
) -> None:
    """As of a Secret's content, written into a folder for every step anew."""
    prepare(Options(database_url="", data_folder=tmp_path))
    settings.PKI_DIR = tmp_path / "pki"
    settings.PORTAL_TOKEN_KEY_FILE = tmp_path / "pki" / "portal-tokens.key"
    first, second, wait = WAITING[name]
    now = datetime.now(UTC)

    def copied(moment: datetime) -> None:
        for path in settings.PKI_DIR.iterdir():
            os.utime(path, (moment.timestamp(), moment.timestamp()))

    with time_machine.travel(now):
        rotate(name, step=first, spread=0 if first == "both" else None, revoke=False)
    copied(datetime(2020, 1, 1, tzinfo=UTC))
    if wait:
        with time_machine.travel(now + wait / 2), pytest.raises(CannotRotate, match="lately"):
            rotate(name, step=second, spread=None, revoke=False)
    later = now + wait + timedelta(seconds=1)
    copied(later)
    with time_machine.travel(later):
        assert rotate(name, step=second, spread=None, revoke=False) == second


@pytest.mark.django_db
def test_a_key_says_itself_how_old_it_is(settings: Any, tmp_path: Path) -> None:
    """Also to the doctor, and in a Secret's copy, whose files are as old as the Pod."""
    settings.PKI_DIR = tmp_path / "pki"
    settings.PORTAL_TOKEN_KEY_FILE = settings.PKI_DIR / "portal-tokens.key"
    settings.AUDIT_CHECKPOINTS_KEY_FILE = settings.PKI_DIR / "audit-checkpoints.key"
    settings.AUDIT_CHECKPOINTS_FILE = tmp_path / "none-yet"
    settings.SECRET_FILES, settings.SEALING_KEYS_FILE, settings.SECRET_KEY_FILE = [], None, None
    with time_machine.travel(datetime(2024, 2, 29, tzinfo=UTC)):
        keys_make(tmp_path, url="https://api.example.org:6443")

    def ages() -> dict[str, str]:
        said = io.StringIO()
        call_command("rotate", stdout=said)
        return dict(re.findall(r"^(\S+): \S+, of (\S+)$", said.getvalue(), re.MULTILINE))

    def old() -> set[str]:
        return {Path(each.found.split()[0]).name for each in key_files() if "older" in each.found}

    made = {path.name for path in settings.PKI_DIR.glob("*.key")}
    assert ages() == dict.fromkeys(ROTATIONS.keys() - {"sealing-keys", "secret-key"}, "2024-02-29")
    assert old() == made
    today = datetime.now(UTC)
    with time_machine.travel(today):
        for name in ("service-account-key", "portal-token-key", "audit-checkpoint-key"):
            rotate(name, step="both", spread=0, revoke=name == "portal-token-key")
        rotate("audit-checkpoint-key", step="finish", spread=None, revoke=False)
        rotate("client-certificates", step="both", spread=0, revoke=False)
    for path in settings.PKI_DIR.iterdir():
        os.utime(path, (0, 0))
    assert {name for name, said in ages().items() if said != f"{today:%Y-%m-%d}"} == {
        "server-certificate",
        "server-ca",
        "client-ca",
    }
    assert old() == {"server.key", "ca.key", "client-ca.key"}


def test_the_mail_server_may_be_given_as_a_file_and_the_sender_by_name(tmp_path: Path) -> None:
    """As every setting: what comes later in the settings does not undo it."""
    (tmp_path / "mail").write_text("smtp+tls://me:secret@mail.example.org:587")
    given = {"EMAIL_URL_FILE": str(tmp_path / "mail"), "EMAIL_FROM": "Acme <ops@example.org>"}
    environment = {**os.environ, **given, "DJANGO_SETTINGS_MODULE": "portal.settings"}
    environment.pop("EMAIL_URL", None)
    asked = "from django.conf import settings as s; print(s.EMAIL_HOST, s.EMAIL_IS_SET, s.DEFAULT_FROM_EMAIL)"
    command = [sys.executable, "-c", asked]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "mail.example.org True Acme <ops@example.org>"
