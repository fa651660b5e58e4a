"""Rows as the services would leave them, for tests that look at what is there rather than at how it came."""

from __future__ import annotations

import hashlib
import uuid
from datetime import datetime, timedelta
from functools import cache
from itertools import count
from typing import Any

from django.db import connection
from django.utils import timezone

from access.models import Credential
from audit.actions import Action
from audit.models import ApiRequest, Outcome
from audit.recorder import Actor, record
from gateway.upstream.recording.asciicast import Asciicast
from tenants.models import (
    AccessRequest,
    Approval,
    Cluster,
    Desired,
    Membership,
    Operation,
    OperationState,
    Passkey,
    Phase,
    PodConnection,
    Recording,
    RecordingMode,
    Role,
    Status,
    Tenant,
    Tier,
    User,
    Workspace,
)
from tenants.services.recordings import Ending, Session, recording_append, recording_begin, recording_end
from tests.portal.authenticator import Authenticator

PASSWORD = "correct horse battery"
_numbers = count(1)

QUOTA = {
    "requests.cpu": "4",
    "requests.memory": "8Gi",
    "limits.cpu": "8",
    "limits.memory": "16Gi",
    "pods": "30",
    "persistentvolumeclaims": "10",
}
STEPS = ("namespace", "quota", "limits", "quota-counted", "service-accounts", "role-bindings", "restored-bindings")


def user(email: str = "", **fields: Any) -> User:
    """Somebody who may sign in with ``PASSWORD`` (hashed once: Argon2 is slow on purpose)."""
    made = User(email=email or f"person{next(_numbers)}@acme.test", **fields)
    made.password = _hash()
    made.save()
    return made


def operator(email: str = "") -> User:
    """An operator of the platform."""
    return user(email or f"operator{next(_numbers)}@platform.test", is_staff=True, is_superuser=True)


def tenant(name: str = "", **fields: Any) -> Tenant:
    """A tenant without members."""
    return Tenant.objects.create(name=name or f"tenant-{next(_numbers)}", **fields)


def member(of: Tenant, role: str = Role.OWNER, who: User | None = None) -> User:
    """Somebody who is in the tenant."""
    who = who or user()
    Membership.objects.create(tenant=of, user=who, role=role)
    return who


def tier(name: str = "basic", **fields: Any) -> Tier:
    """A tier on offer."""
    values: dict[str, Any] = {"display_name": name.capitalize(), "quota": QUOTA, "workspaces_per_user": 3, **fields}
    return Tier.objects.get_or_create(name=name, defaults=values)[0]


def cluster(name: str = "fra-1", **fields: Any) -> Cluster:
    """A cluster that is registered."""
    values: dict[str, Any] = {
        "kind": Cluster.Kind.EXTERNAL,
        "server": f"https://{name}.k8s.test:6443",
        "ca_data": "-----BEGIN CERTIFICATE-----",
        "sealed_credential": b"sealed",
        "is_default": not Cluster.objects.filter(is_default=True).exists(),
        "last_seen_at": timezone.now() - timedelta(minutes=2),
        **fields,
    }
    return Cluster.objects.get_or_create(name=name, defaults=values)[0]


def workspace(of: Tenant, owner: User, name: str = "", **fields: Any) -> Workspace:
    """A workspace that is ready, unless ``fields`` say otherwise, with the operation that made it."""
    number = next(_numbers)
    identifier = fields.pop("id", uuid.uuid4())
    values: dict[str, Any] = {
        "status": Status.ACTIVE,
        "phase": Phase.READY,
        "observed_generation": 1,
        "ready_at": timezone.now(),
        "cluster": fields.pop("cluster", None) or cluster(),
        "tier": fields.pop("tier", None) or tier(),
        **fields,
    }
    made = Workspace.objects.create(
        id=identifier,
        tenant=of,
        user=owner,
        name=name or f"space-{number}",
        k8s_namespace=f"tenant-{identifier.hex[:12]}",
        **values,
    )
    done = made.phase == Phase.READY
    operation(made, state=OperationState.DONE if done else OperationState.RUNNING, steps=len(STEPS) if done else 3)
    return made


def operation(
    of: Workspace, *, state: str = OperationState.DONE, steps: int = 7, desired: str = Desired.READY, error: str = ""
) -> Operation:
    """What a worker did, or is doing, for the workspace's present generation."""
    started = timezone.now() - timedelta(seconds=3)
    done = [
        {"step": name, "at": (started + timedelta(milliseconds=180 * index + 90)).isoformat()}
        for index, name in enumerate(STEPS[:steps])
    ]
    return Operation.objects.create(
        workspace=of,
        desired=desired,
        generation=of.generation,
        state=state,
        steps_done=done,
        step=STEPS[steps] if steps < len(STEPS) else "",
        attempts=1,
        error=error,
        created_at=started,
    )


def passkey(user: User, **fields: Any) -> Passkey:
    """A device by which somebody signs in."""
    device = Authenticator()
    values = {"name": "Phone", "credential_id": device.credential_id, "public_data": device.attested, **fields}
    return Passkey.objects.create(user=user, **values)


def credential(of: Workspace, to: User, *, issued_at: datetime | None = None, **fields: Any) -> Credential:
    """An issued credential."""
    issued_at = issued_at or timezone.now()
    values: dict[str, Any] = {
        "jti": str(uuid.uuid4()),
        "role": "admin",
        "anchor": "anchor",
        "ip_address": "203.0.113.7",
        "user_agent": "curl/8",
        "expires_at": issued_at + timedelta(hours=2),
        **fields,
    }
    return Credential.objects.create(tenant=of.tenant, workspace=of, issued_to=to, issued_at=issued_at, **values)


def access_request(of: Tenant, who: User, **fields: Any) -> AccessRequest:
    """Somebody's wish for a role in the tenant."""
    values = {"kind": "role", "role": Role.OWNER, "reason": "on call", "approvers": Approval.OWNER, **fields}
    return AccessRequest.objects.create(
        tenant=of, asked_by=who, expires_at=timezone.now() + timedelta(days=14), **values
    )


def pod_connection(into: Workspace, caller: User, **fields: Any) -> PodConnection:
    """A shell that a process of the API server reports; for a day, as no test waits for its next report."""
    now = timezone.now()
    reported = now + timedelta(days=1)
    values = {"pod": "web-7d4b9c6f5-x2kqp", "way": "exec", "opened_at": now, "seen_at": reported, **fields}
    return PodConnection.objects.create(
        id=uuid.uuid4(),
        process=uuid.uuid4(),
        tenant=into.tenant_id,
        namespace=into.k8s_namespace,
        caller=caller.email,
        **values,
    )


def recording(into: Workspace, caller: User, *, shown: str | None = "", **ending: Any) -> Recording:
    """What a session left that showed this, as the services keep it; of ``None`` its facts alone."""
    identifier, began = uuid.uuid4(), timezone.now() - timedelta(minutes=3)
    session = Session(
        tenant=into.tenant_id,
        workspace_id=into.pk,
        cluster=into.cluster.name,
        namespace=into.k8s_namespace,
        pod="web-7d4b9c5f6-x2x8q",
        container="app",
        way="exec",
        command="sh -c id",
        credential="",
    )
    actor = Actor(name=caller.email, user_id=caller.pk)
    mode = RecordingMode.METADATA if shown is None else RecordingMode.OUTPUT
    recording_begin(actor=actor, recording_id=identifier, mode=mode, session=session, now=began)
    cast = Asciicast(began=began.timestamp(), title=caller.email, command=session.command)
    digest = hashlib.sha256()
    if shown is not None:
        pieces = [cast.resize(100, 30, 0.0), cast.output([(1, shown.encode())], 1.0), cast.end("ended with 0", 2.0)]
        for number, text in enumerate(pieces):
            recording_append(recording_id=identifier, number=number, text=text, shown=len(shown), now=began)
            digest.update(text.encode())
    values = {"exit_code": 0, "bytes": len(shown or ""), "sha256": digest.hexdigest() if shown is not None else ""}
    ended = began + timedelta(seconds=2)
    recording_end(actor=actor, recording_id=identifier, ending=Ending(**(values | ending)), now=ended)
    return Recording.objects.get(pk=identifier)


def api_request(tenant: str, **fields: Any) -> ApiRequest:
    """A refused request to the API server."""
    values = {
        "created_at": timezone.now(),
        "tenant": tenant,
        "space": f"root:{tenant}",
        "actor": f"someone@{tenant}",
        "verb": "list",
        "path": f"/api/v1/tenants/{tenant}/secrets",
        "code": 403,
        "allowed": False,
        "step": "RBAC",
        **fields,
    }
    # An hour ago may be yesterday.
    with connection.cursor() as cursor:
        cursor.execute("SELECT api_requests_partition(%s)", [values["created_at"]])
    return ApiRequest.objects.create(**values)


def event(chain: str, action: Action, actor: User, *, of: Workspace | None = None, **fields: Any) -> None:
    """One audited event."""
    record(
        action,
        chain=chain,
        actor=actor.email,
        user_id=actor.pk,
        outcome=fields.pop("outcome", Outcome.SUCCESS),
        target=fields.pop("target", f"workspaces/{of.tenant_id}/{of.name}" if of else ""),
        workspace_id=of.pk if of else None,
        ip="203.0.113.7",
        user_agent="Mozilla/5.0",
        detail=fields,
    )


@cache
def _hash() -> str:
    from django.contrib.auth.hashers import make_password

    return make_password(PASSWORD)
