"""A tenant leaves: closed, exported by its people as far as they may read, deleted at a date, exactly once (GW28)."""

from __future__ import annotations

import hashlib
import io
import json
import uuid
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.urls import reverse
from django.utils import timezone

from audit.models import AuditEntry
from audit.recorder import WORKER
from kube.requests.status import Conflict, Forbidden, Invalid
from portal.notices.sending import notices_send
from portal.offboarding.archive import Member, archive_pieces
from store import synchronous
from store.types import Create, Key
from tenants.models import Freeze, Notification, Offboarding, Role, Tenant, TenantState, User
from tenants.reconciler.lapses import lapses_sweep
from tenants.services import tenant_create, tenant_delete, tenant_resume, tenant_suspend
from tenants.services.operating.freezing import tenant_freeze, tenant_thaw
from tenants.services.operating.offboarding import tenant_offboard, tenant_retain
from tenants.services.requests import RequestDraft, request_approve, request_create
from tenants.suspensions import installation_close, installation_open
from tests import factories
from tests.portal.commandline import Shell
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send
from tests.portal.test_command_line import shell  # noqa: F401
from tests.portal.test_requests import actor
from tests.tenants.conftest import OPERATOR


def leave(name: str = "acme", *, days: int = 30, **said: Any) -> Offboarding:
    now = timezone.now()
    return tenant_offboard(
        actor=OPERATOR,
        name=name,
        reason=said.pop("reason", "merger"),
        ends_at=now + timedelta(days=days),
        now=now,
        **said,
    )


def state(name: str = "acme") -> str:
    return Tenant.objects.get(pk=name).state


def page(person: User, path: str) -> str:
    return signed_in(person).get(path).content.decode()


def told(person: User) -> list[str]:
    notices_send(now=timezone.now())
    return list(Notification.objects.filter(user=person).order_by("created_at", "id").values_list("text", flat=True))


def test_an_operator_lets_a_tenant_leave_and_everybody_reads_when_it_ends(acme: House, operator: User) -> None:
    client = signed_in(operator)
    path = reverse("tenant-offboard", args=["acme"])
    assert client.get(path).status_code == 200
    assert client.post(path, {"reason": "<b>merger</b>", "manner": "freeze", "days": "14"}).status_code == 302
    found = Offboarding.objects.get()
    day = f"{found.ends_at:%-d %b %Y}"
    for place in (
        "/tenants/acme/",
        "/tenants/acme/members/",
        "/tenants/acme/usage/",
        f"/workspaces/{acme.workspace.pk}/",
    ):
        shown = page(acme.viewer, place)
        assert f"deleted on {day}" in shown, place
        assert "&lt;b&gt;merger&lt;/b&gt;" in shown, place
    assert f"deleted on {day}" in page(operator, "/tenants/")
    seen = send(bearer(acme.viewer, "read"), "GET", "tenants/acme/").json()["offboarding"]
    assert (seen["reason"], seen["manner"]) == ("<b>merger</b>", "freeze")
    assert Freeze.objects.get(workspace=None).until is None
    assert any("is deleted on" in text for text in told(acme.owner))
    assert client.post(reverse("tenant-retain", args=["acme"])).status_code == 302
    assert not Freeze.objects.exists()
    assert "deleted on" not in page(acme.viewer, "/tenants/acme/")
    actions = AuditEntry.objects.filter(chain="acme").order_by("sequence").values_list("action", flat=True)
    assert list(actions) == ["tenant.freeze", "tenant.offboard", "tenant.retain", "tenant.thaw"]


def test_while_it_leaves_it_stays_closed(acme: House) -> None:
    leave()
    with pytest.raises(Conflict, match="leaves"):
        tenant_thaw(actor=OPERATOR, name="acme")
    tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid", until=timezone.now() + timedelta(days=1))
    with pytest.raises(Conflict, match="leaves"):
        tenant_resume(actor=OPERATOR, name="acme")
    lapses_sweep(now=timezone.now() + timedelta(days=2))
    assert state() == TenantState.SUSPENDED, "what ends by itself does not end before the leaving does"
    tenant_retain(actor=OPERATOR, name="acme")
    assert state() == TenantState.SUSPENDED, "it was suspended by somebody's own word"
    assert not Freeze.objects.exists()


@pytest.mark.parametrize("manner", Offboarding.Manner.values)
def test_what_was_closed_before_stays_closed_when_it_is_called_off(acme: House, manner: str) -> None:
    until = timezone.now() + timedelta(days=3)
    if manner == "freeze":
        tenant_freeze(actor=OPERATOR, name="acme", reason="incident", until=until)
    else:
        tenant_suspend(actor=OPERATOR, name="acme", reason="incident", until=until)
    leave(manner=manner)
    assert lapses_sweep(now=until + timedelta(days=1)) == 0
    tenant_retain(actor=OPERATOR, name="acme")
    closed = Freeze.objects.exists() if manner == "freeze" else state() == TenantState.SUSPENDED
    assert closed


def test_a_suspended_one_is_open_again_when_it_is_called_off(acme: House) -> None:
    leave(manner="suspend")
    assert state() == TenantState.SUSPENDED
    assert tenant_retain(actor=OPERATOR, name="acme")
    assert state() == TenantState.ACTIVE
    assert not tenant_retain(actor=OPERATOR, name="acme")


def test_its_deletion_begins_once_at_the_date_whatever_dies(acme: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The beginning is one transaction: who dies in it leaves the tenant as it was, and the next sweep begins it."""
    ends = leave().ends_at
    assert lapses_sweep(now=ends - timedelta(days=8)) == 0
    lapses_sweep(now=ends - timedelta(days=6))
    lapses_sweep(now=ends - timedelta(days=5))
    lapses_sweep(now=ends - timedelta(hours=3))
    assert len([text for text in told(acme.owner) if "export what you need" in text]) == 2, "a week and a day before"
    with monkeypatch.context() as dying:
        dying.setattr("tenants.spaces.tenant_mark_terminating", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            lapses_sweep(now=ends)
    assert state() == TenantState.ACTIVE
    installation_close("restored")
    lapses_sweep(now=ends)
    assert state() == TenantState.ACTIVE, "nothing is deleted while the platform is closed"
    installation_open()
    assert lapses_sweep(now=ends) >= 1
    assert state() == TenantState.TERMINATING
    lapses_sweep(now=ends)
    assert AuditEntry.objects.get(action="tenant.delete").actor == WORKER.name
    with pytest.raises(Conflict, match="being deleted"):
        tenant_retain(actor=OPERATOR, name="acme")


def test_the_newest_word_counts_and_reminds_anew(acme: House) -> None:
    first = leave(days=5)
    lapses_sweep(now=timezone.now())
    again = leave(days=20, reason="later")
    assert (again.was_closed, again.warned_days, again.manner) == (False, None, first.manner)
    lapses_sweep(now=first.ends_at + timedelta(hours=1))
    assert state() == TenantState.ACTIVE
    assert "later" in page(acme.viewer, "/tenants/acme/")


@pytest.mark.parametrize("wrong", [{"reason": ""}, {"days": 0}, {"days": 400}, {"manner": "sell"}])
def test_it_needs_a_reason_and_an_end_ahead(acme: House, wrong: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        leave(**wrong)


def test_an_owner_asks_and_an_operator_agrees(acme: House, operator: User) -> None:
    now = timezone.now()
    draft = RequestDraft(kind="leave", reason="we stop", tenant="acme")
    with pytest.raises(Forbidden):
        request_create(actor=actor(acme.admin), draft=draft, now=now)
    with pytest.raises(Forbidden, match="Only operators"):
        tenant_delete(actor=actor(acme.owner), name="acme")
    assert "Ask to leave" in page(acme.owner, "/tenants/acme/")
    owner = signed_in(acme.owner)
    assert (
        owner.post(reverse("request-new", args=["leave"]), {"tenant": "acme", "reason": "we stop"}).status_code == 302
    )
    asked = acme.tenant.requests.get()
    with pytest.raises(Forbidden):
        request_approve(actor=actor(acme.owner), request_id=asked.pk, now=now)
    assert signed_in(operator).post(reverse("request-approve", args=[asked.pk]), {"answer": ""}).status_code == 302
    assert Offboarding.objects.get().reason == "we stop"
    with pytest.raises((Forbidden, Conflict)):
        request_create(actor=actor(acme.owner), draft=draft, now=now)


def test_operators_alone_begin_and_end_it(acme: House, globex: House, operator: User) -> None:
    for verb in ("offboard", "retain"):
        path = f"tenants/acme/{verb}"
        assert send(bearer(acme.owner, "write"), "POST", path, {"reason": "x"}).status_code == 403
        assert send(bearer(globex.owner, "write"), "POST", path, {"reason": "x"}).status_code == 404
    answer = send(bearer(operator, "operate"), "POST", "tenants/acme/offboard", {"reason": "x", "days": 3})
    assert (answer.status_code, answer.json()["manner"]) == (200, "freeze")
    assert send(bearer(operator, "operate"), "POST", "tenants/acme/retain").status_code == 204


# What they take along.


@pytest.fixture
def initech() -> dict[str, User]:
    """A tenant with a space of its own, an object of each sort in it, and a person of each role."""
    tenant = tenant_create(actor=OPERATOR, name="initech")
    for kind, name in (("configmaps", "settings"), ("secrets", "password")):
        for number in range(45 if kind == "configmaps" else 1):
            metadata = {
                "name": f"{name}-{number:02}",
                "namespace": "default",
                "uid": str(uuid.uuid4()),
                "managedFields": [{}],
            }
            body = {"apiVersion": "v1", "kind": kind[:-1], "metadata": metadata, "data": {"words": "grüße: #1\n- x"}}
            synchronous.commit([Create(Key("root:initech", "", kind, "default", metadata["name"]), body)])
    return {role: factories.member(tenant, role, factories.user(f"{role}@initech.test")) for role in Role.values}


def unpacked(answer: Any) -> dict[str, bytes]:
    """The files of an archive, each as its manifest says."""
    assert answer.status_code == 200, answer.content
    with zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content))) as archive:
        assert archive.testzip() is None
        assert len(archive.namelist()) == len(set(archive.namelist())), "whoever unpacks keeps the last of two"
        files = {name: archive.read(name) for name in archive.namelist()}
    listed = json.loads(files["manifest.json"])["files"]
    assert {each["name"] for each in listed} == files.keys() - {"manifest.json"}
    for each in listed:
        data = files[each["name"]]
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (each["sha256"], each["bytes"])
    return files


MAPS, SECRETS = "objects/initech/default/configmaps.yaml", "objects/initech/default/secrets.yaml"


@pytest.mark.parametrize("closed", [None, "freeze", "suspend"])
def test_its_people_take_along_what_they_may_read(initech: dict[str, User], operator: User, closed: str | None) -> None:
    if closed:
        leave("initech", manner=closed)
    path = reverse("tenant-export", args=["initech"])
    assert "Download" in page(initech["viewer"], path)
    files = unpacked(signed_in(initech["owner"]).post(path, {"secrets": "on"}))
    maps = list(yaml.safe_load_all(files[MAPS]))
    assert [each["metadata"]["name"] for each in maps] == [f"settings-{number:02}" for number in range(45)]
    assert maps[7]["data"] == {"words": "grüße: #1\n- x"}
    assert "managedFields" not in maps[0]["metadata"]
    assert b"password-00" in files[SECRETS]
    assert b"owner@initech.test" in files["members.json"]
    assert files["usage.csv"].startswith(b"tenant,namespace,hour")
    assert json.loads(files["audit.jsonl"].splitlines()[0])["action"] == "tenant.create"
    assert {"tenant.json", "workspaces.jsonl", "quota.json", "rules.yaml", "lets-in.jsonl"} <= files.keys()
    assert not [name for name in files if "tenantry" in name and "quota" not in name]
    plain = unpacked(signed_in(initech["owner"]).post(path))
    assert SECRETS not in plain
    assert {"name": SECRETS, "why": "Secrets were not asked for."} in json.loads(plain["manifest.json"])["left_out"]
    assert SECRETS in unpacked(signed_in(operator).post(path, {"secrets": "on"}))
    events = AuditEntry.objects.filter(chain="initech", action="tenant.export").order_by("sequence")
    assert [(each.actor, each.detail["confidential"]) for each in events] == [
        ("owner@initech.test", True),
        ("owner@initech.test", False),
        (operator.email, True),
    ]


def test_no_two_places_make_one_file(initech: dict[str, User], operator: User) -> None:
    """A workspace in a workspace, and one whose name has the minus that stood between the two."""
    for space in ("root:initech:a:b", "root:initech:a-b"):
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "where", "uid": space},
            "data": {"at": space},
        }
        synchronous.commit([Create(Key(space, "", "configmaps", "default", "where"), body)])
    files = unpacked(signed_in(operator).post(reverse("tenant-export", args=["initech"])))
    # Nobody may list these, for there is no object of the workspaces; what may be listed is named by the same rule.
    left_out = [each["name"] for each in json.loads(files["manifest.json"])["left_out"] if each["name"] != SECRETS]
    assert sorted(left_out) == [
        "objects/initech.a-b/default/configmaps.yaml",
        "objects/initech.a.b/default/configmaps.yaml",
    ]


def test_a_viewer_takes_along_no_secret_and_no_audit_log(initech: dict[str, User], globex: House) -> None:
    path = reverse("tenant-export", args=["initech"])
    files = unpacked(signed_in(initech["viewer"]).post(path, {"secrets": "on"}))
    assert MAPS in files
    assert not {SECRETS, "audit.jsonl"} & files.keys()
    assert SECRETS in {each["name"] for each in json.loads(files["manifest.json"])["left_out"]}
    assert signed_in(globex.owner).post(path).status_code == 404
    assert send(bearer(initech["viewer"], "read"), "POST", "tenants/initech/export").status_code == 403


def test_an_archive_is_never_held_whole() -> None:
    """What goes out is bounded by what comes in at a time, however much it is."""
    import random

    noise = random.Random(1)
    pieces = (noise.randbytes(8192).hex() for _ in range(400))
    sizes = [len(piece) for piece in archive_pieces([Member("big", pieces)], {}, now=timezone.now())]
    assert sum(sizes) > 2_000_000
    assert max(sizes) < 200_000


def test_from_a_shell(initech: dict[str, User], operator: User, shell: Shell, tmp_path: Path) -> None:  # noqa: F811
    shell.sign_in(operator, "operate")
    assert "merger" in shell.done("tenants", "offboard", "initech", "--reason", "merger", "--days", "3").output
    file = tmp_path / "initech.zip"
    shell.done("tenants", "export", "initech", "--file", str(file))
    with zipfile.ZipFile(file) as archive:
        assert MAPS in archive.namelist()
    assert file.stat().st_mode & 0o077 == 0
    shell.done("tenants", "retain", "initech")
    assert not Offboarding.objects.exists()
