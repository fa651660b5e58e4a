"""Credentials that point at Tenantry: the person by name, with the credential's rights, for as long as the row stands (D9)."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.contrib.sessions.models import Session
from django.db import transaction
from django.test import Client
from django.utils import timezone

from access.credentials import credential_revoke, kubeconfig_issue, login_token_issue, tenant_kubeconfig_issue
from access.credentials.logins import (
    login_allow_browser,
    login_next_secret,
    login_of_code,
    login_revoke,
    logins_sweep,
)
from access.models import Credential, Login
from audit.models import ApiRequest, AuditEntry
from kube.authentication import portaltokens
from kube.authentication.portaltokens import PortalClaims
from kube.authentication.serviceaccounttokens import load_signing_key
from kube.requests.status import Conflict
from portal.signin.accounts import user_change
from tenants.models import Cluster, Phase, Role, User, Workspace
from tenants.openstreams import streams_into
from tenants.services import (
    membership_remove,
    membership_set,
    tenant_resume,
    tenant_suspend,
    workspace_delete,
    workspace_init,
    workspace_resume,
    workspace_suspend,
)
from tests.apiserver import KUBECTL
from tests.gateway.callers import Caller, Watch, config_map, eventually
from tests.tenants.conftest import OPERATOR, actor_of, join, make_tenant, make_user

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def alice(embedded, tiers, settings) -> User:
    settings.PORTAL_TOKEN_KEY_FILE = embedded.real.folder / "pki" / "portal-tokens.key"
    user = make_user()
    make_tenant("acme", user)
    return user


@pytest.fixture
def web(embedded, alice) -> Workspace:
    made = workspace_init(actor=actor_of(alice), user=alice, tier="standard", name="web")
    return embedded.settle(made, Phase.READY)


def issue(user: User, workspace: Workspace, role: str = "") -> str:
    """The token of a new gateway credential."""
    issued = kubeconfig_issue(
        actor=actor_of(user), workspace_id=workspace.pk, role=role, kind="gateway", now=timezone.now()
    )
    return token_of(issued.yaml)


def token_of(text: str) -> str:
    return str(yaml.safe_load(text)["users"][0]["user"]["token"])


@pytest.fixture
def bearer(embedded) -> Callable[[str], Caller]:
    """Somebody with a token, who speaks to the API server itself."""
    ca = embedded.real.folder / "pki" / "ca.crt"
    return lambda token: Caller(embedded.proxy._upstream, ca, token=token)


def test_a_gateway_credential_ends_as_early_as_is_asked_for(alice, web):
    """GW3: its row and its token say the same."""
    now = timezone.now()
    issued = kubeconfig_issue(actor=actor_of(alice), workspace_id=web.pk, kind="gateway", minutes=10, now=now)
    assert issued.credential is not None
    assert issued.credential.expires_at - now == timedelta(minutes=10)
    payload = token_of(issued.yaml).removeprefix("tnt_").split(".")[1]
    said = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert abs(said["exp"] - (now + timedelta(minutes=10)).timestamp()) <= 1


def colleague(of: Workspace, name: str, role: Role = Role.EDITOR) -> User:
    made = make_user(f"{name}@example.org")
    join(of.tenant, made, role)
    return made


def path(workspace: Workspace, resource: str = "configmaps") -> str:
    return f"/api/v1/namespaces/{workspace.k8s_namespace}/{resource}"


def refused(caller: Caller, where: str, status: int) -> bool:
    return eventually(lambda: caller.get(where).status == status)


@pytest.mark.skipif(KUBECTL is None, reason="needs kubectl")
def test_kubectl_acts_as_the_person_and_in_the_workspace_alone(embedded, alice, web, tmp_path: Path):
    """GW3, AN9: no second identity, and the requests carry the person's name."""
    issued = kubeconfig_issue(actor=actor_of(alice), workspace_id=web.pk, kind="gateway", now=timezone.now())
    config = yaml.safe_load(issued.yaml)
    assert config["current-context"].startswith("acme.web.admin.gateway@")
    ca = (embedded.real.folder / "pki" / "ca.crt").read_bytes()
    config["clusters"][0]["cluster"] = {
        "server": embedded.proxy._upstream,
        "certificate-authority-data": base64.b64encode(ca).decode(),
    }
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(config))

    def kubectl(*arguments: str) -> str:
        done = subprocess.run(
            [KUBECTL, f"--kubeconfig={file}", *arguments],
            env={**os.environ, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    assert eventually(lambda: "created" in kubectl("create", "configmap", "shapes", "--from-literal=sun=round"))
    whoami = yaml.safe_load(kubectl("auth", "whoami", "--output=yaml"))["status"]["userInfo"]
    assert (whoami["username"], whoami["uid"]) == (alice.email, str(alice.pk))
    assert whoami["groups"] == ["tenantry:admin", "system:authenticated"]
    assert whoami["extra"]["multi-tenancy.k8s.io/authenticator"] == ["portal"]
    assert whoami["extra"]["authentication.kubernetes.io/credential-id"] == [f"JTI={issued.credential.jti}"]
    assert "shapes" in kubectl("get", "configmaps")
    assert kubectl("auth", "can-i", "delete", "pods").startswith("yes")
    assert kubectl("auth", "can-i", "list", "pods", "--namespace=default").startswith("no")
    for outside in (("get", "pods", "--namespace=default"), ("get", "pods", "--all-namespaces"), ("get", "namespaces")):
        assert f"this credential is for the namespace {web.k8s_namespace} alone" in kubectl(*outside)
    record = AuditEntry.objects.get(action="IssueKubeconfig", outcome="success")
    assert (record.actor, record.detail["kind"], record.detail["jti"]) == (
        alice.email,
        "gateway",
        issued.credential.jti,
    )
    assert eventually(
        lambda: ApiRequest.objects.filter(
            actor=alice.email, verb="create", credential=f"JTI={issued.credential.jti}"
        ).exists()
    )


def test_the_lesser_of_credential_and_membership_counts(web, alice, bearer):
    """Never more than the portal's role, and never more than was asked for."""
    reading = bearer(issue(alice, web, "viewer"))
    assert eventually(lambda: reading.get(path(web)).status == 200)
    assert reading.post(path(web), config_map("a")).status == 403
    bob = colleague(web, "bob")
    writing = bearer(issue(bob, web))
    assert eventually(lambda: writing.post(path(web), config_map("b")).status == 201)
    membership_set(actor=actor_of(alice), tenant="acme", user=bob, role=Role.VIEWER)
    assert refused(writing, path(web), 401), "what a higher role gave has ended"
    again = bearer(issue(bob, web))
    assert eventually(lambda: again.get(path(web)).status == 200)
    membership_set(actor=actor_of(alice), tenant="acme", user=bob, role=Role.ADMIN)
    assert again.post(path(web), config_map("c")).status == 403, "the credential is a viewer's"


def test_it_ends_with_what_it_rests_on_and_open_watches_with_it(embedded, web, alice, bearer):
    """RV-11, CT-07: revocation, membership, account, the workspace itself; each alone."""
    people = {name: colleague(web, name) for name in ("bob", "carol", "dave", "erin")}
    callers = {name: bearer(issue(person, web)) for name, person in people.items()}
    jtis = {row.issued_to.email: row.jti for row in Credential.objects.select_related("issued_to")}
    for caller in callers.values():
        assert eventually(lambda caller=caller: caller.get(path(web)).status == 200)
    watches = {name: caller.watch(path(web)) for name, caller in callers.items()}

    def bob() -> None:
        credential_revoke(actor=actor_of(alice), jti=jtis["bob@example.org"], now=timezone.now())

    def carol() -> None:
        membership_remove(actor=actor_of(alice), tenant="acme", user=people["carol"])

    def dave() -> None:
        user_change(actor=OPERATOR, user_id=people["dave"].pk, status="disabled")

    def erin() -> None:
        workspace_delete(actor=actor_of(alice), workspace_id=web.pk)

    living = dict(callers)
    for end in (bob, carol, dave):
        end()
        ended = living.pop(end.__name__)
        watches[end.__name__].until_end()
        assert refused(ended, path(web), 401)
        assert all(caller.get(path(web)).status == 200 for caller in living.values())
    erin()
    watches["erin"].until_end()
    assert eventually(lambda: callers["erin"].get(path(web)).status in (401, 403))


def test_a_machine_that_is_signed_in_is_out_with_the_portals_session_and_its_open_watches_with_it(web, alice, bearer):
    """D9: sign-out, expiry and revocation, each alone; nobody has to tell the API server but the database."""
    now = timezone.now()
    ends: dict[str, Callable[[Login], object]] = {
        "signed out": lambda login: login.session.delete(),
        "expired": lambda login: Session.objects.filter(pk=login.session_id).update(expire_date=now),
        "revoked": lambda login: login_revoke(actor=actor_of(alice), login_id=login.pk, now=now),
    }
    callers, watches, machines = {}, {}, {}
    for how in ends:
        machines[how] = login = sign_in(alice, now)
        token, until = login_token_issue(
            actor=actor_of(alice), login=login, tenant="", workspace_id=web.pk, role="", now=now
        )
        assert until == now + timedelta(minutes=10)
        callers[how] = caller = bearer(token)
        assert eventually(lambda caller=caller: caller.get(path(web)).status == 200)
        watches[how] = caller.watch(path(web))
    for how, end in ends.items():
        end(machines[how])
        ended = callers.pop(how)
        watches[how].until_end()
        assert refused(ended, path(web), 401)
        assert all(caller.get(path(web)).status == 200 for caller in callers.values())
    assert logins_sweep(now=timezone.now()) == 2, "the ends that nobody wrote down are written down"
    assert Credential.objects.filter(kind="exec", revoked_at=None).count() == 0
    assert AuditEntry.objects.filter(action="login.revoke").count() == 3


def test_what_a_signed_in_machine_has_open_goes_on_when_its_token_is_over(web, alice, bearer, monkeypatch):
    """D9: kubectl shows a token when it begins; what it began ends with the sign-in, of which the API server still hears."""
    monkeypatch.setattr("access.credentials.issuing.TOKEN_SECONDS", 20)
    bob, login = colleague(web, "bob"), sign_in(alice, timezone.now())

    def token(of: Login) -> str:
        now = timezone.now()
        return login_token_issue(actor=actor_of(alice), login=of, tenant="", workspace_id=web.pk, role="", now=now)[0]

    tried: list[tuple[Caller, Watch]] = []

    def opens() -> bool:
        """By a token of its own each time: whoever is slow has not used one up before the watch is open."""
        caller = bearer(token(login))
        tried.append((caller, caller.watch(path(web))))
        return tried[-1][1].status == 200

    assert eventually(opens)
    caller, watch = tried[-1]
    assert refused(caller, path(web), 401), "the token is over"
    # Whatever changes of others has all streams looked at again.
    other = bearer(issue(bob, web))
    assert eventually(lambda: other.get(path(web)).status == 200)
    there = other.watch(path(web))
    membership_remove(actor=actor_of(alice), tenant="acme", user=bob)
    there.until_end()
    assert not watch.ended
    assert eventually(lambda: bearer(token(login)).post(path(web), config_map("late")).status == 201)
    assert next(event for event in watch if event["object"]["metadata"]["name"] == "late")["type"] == "ADDED"
    login.session.delete()
    watch.until_end()


def sign_in(user: User, now: datetime) -> Login:
    """A machine on which the user has signed in, in a browser's session of its own."""
    browser, code = Client(), uuid.uuid4().hex
    browser.force_login(user)
    login_allow_browser(
        actor=actor_of(user),
        user=user,
        session_key=str(browser.session.session_key),
        machine="laptop",
        code=code,
        redirect_uri="http://127.0.0.1:40123/callback",
        challenge="x",
        now=now,
    )
    with transaction.atomic():
        login = login_of_code(code, now=now)
        assert login is not None
        login_next_secret(login, "", now=now)
    return login


def test_a_suspension_says_why_and_what_was_issued_before_stays_dead(embedded, web, alice, bearer):
    """GW5, P5."""
    caller = bearer(issue(alice, web))
    assert eventually(lambda: caller.get(path(web)).status == 200)
    workspace_suspend(actor=OPERATOR, workspace_id=web.pk, reason="mining")
    assert refused(caller, path(web), 403)
    assert "mining" in caller.get(path(web)).body["message"]
    with pytest.raises(Conflict, match="suspended: mining"):
        issue(alice, web)
    # Resumed before the suspension was carried out: nobody has written the credential off.
    workspace_resume(actor=OPERATOR, workspace_id=web.pk)
    assert Credential.objects.get(kind="gateway").revoked_at is None
    web = embedded.settle(web, Phase.READY)
    assert refused(caller, path(web), 401)
    fresh = bearer(issue(alice, web))
    assert eventually(lambda: fresh.get(path(web)).status == 200)


def test_the_receipt_of_a_suspension_says_how_many_streams_it_ended(embedded, web, alice, bearer):
    """GW5: as the API server reported them, of this workspace alone."""
    caller = bearer(issue(alice, web))
    everywhere = bearer(
        token_of(tenant_kubeconfig_issue(actor=actor_of(alice), tenant="acme", now=timezone.now()).yaml)
    )
    assert eventually(lambda: caller.get(path(web)).status == everywhere.get(path(web)).status == 200)
    watches = [caller.watch(path(web)) for _ in range(3)]
    elsewhere = everywhere.watch("/api/v1/namespaces/default/configmaps")
    assert eventually(lambda: streams_into(web) == 3)
    workspace_suspend(actor=OPERATOR, workspace_id=web.pk, reason="mining")
    for watch in watches:
        watch.until_end()
    receipt = embedded.settle(web, Phase.SUSPENDED).receipt
    layer = next(layer for layer in receipt if layer["layer"] == "streams")
    assert layer["note"] == "Streams through Tenantry: 3 ended. There is no other way in."
    assert layer["verified"]
    assert not elsewhere.ended


def test_one_file_for_a_tenant_opens_its_space_and_no_other(embedded, web, alice, bearer):
    """What kubectl needs for all namespaces at once; a suspension of the tenant ends it for good."""
    globex = make_tenant("globex", make_user("gina@example.org"))
    issued = tenant_kubeconfig_issue(actor=actor_of(alice), tenant="acme", now=timezone.now())
    names = [entry["name"].partition("@")[0] for entry in yaml.safe_load(issued.yaml)["contexts"]]
    assert names == ["acme.owner.gateway", "acme.web.owner.gateway"]
    caller = bearer(token_of(issued.yaml))
    assert eventually(lambda: caller.get("/api/v1/namespaces").status == 200)
    found = {item["metadata"]["name"] for item in caller.get("/api/v1/namespaces").body["items"]}
    assert {"default", web.k8s_namespace} <= found
    assert caller.get("/api/v1/configmaps").status == 200
    assert caller.get("/api/v1/tenants/globex/configmaps").status == 403
    assert caller.get("/api/v1/nodes").status == 403
    own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "own"}}
    assert caller.post("/api/v1/namespaces", own).status == 201
    again = yaml.safe_load(tenant_kubeconfig_issue(actor=actor_of(alice), tenant="acme", now=timezone.now()).yaml)
    assert again["contexts"][-1]["name"].partition("@")[0] == "acme.namespaces.own.owner.gateway"
    assert again["contexts"][-1]["context"]["namespace"] == "own"
    tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid")
    assert refused(caller, "/api/v1/namespaces", 403)
    assert "unpaid" in caller.get("/api/v1/namespaces").body["message"]
    with pytest.raises(Conflict, match="The tenant is closed: unpaid"):
        tenant_kubeconfig_issue(actor=actor_of(alice), tenant="acme", now=timezone.now())
    tenant_resume(actor=OPERATOR, name="acme")
    assert refused(caller, "/api/v1/namespaces", 401)
    assert globex.credentials.count() == 0


def test_forged_and_foreign_tokens_open_nothing(embedded, web, alice, bearer, settings):
    """Another key, another person's name on a credential, one that was never issued, one that is over, one of a namesake."""
    ours = load_signing_key(Path(settings.PORTAL_TOKEN_KEY_FILE).read_bytes())
    made = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    theirs, now = load_signing_key(made), int(time.time())
    token = issue(alice, web)
    real = bearer(token)
    assert eventually(lambda: real.get(path(web)).status == 200)
    jti, bob = str(Credential.objects.get().jti), colleague(web, "bob", Role.OWNER)
    good = PortalClaims(token_id=jti, user=str(alice.pk), issued_at=now, expires_at=now + 7200)
    claims = good.as_dict()
    header, body, signature = token.split(".")
    forged = {
        "another key": portaltokens.sign(good, theirs),
        "another person": ours.sign({**claims, "sub": str(bob.pk)}),
        "never issued": ours.sign({**claims, "jti": str(uuid.uuid4())}),
        "over": ours.sign({**claims, "iat": now - 7200, "exp": now - 1}),
        "another audience": ours.sign({**claims, "aud": "https://kubernetes.default.svc"}),
        "several audiences": ours.sign({**claims, "aud": [portaltokens.AUDIENCE, "x"]}),
        "another issuer": ours.sign({**claims, "iss": "https://tenantry.io/portal/"}),
        "no end": ours.sign({name: value for name, value in claims.items() if name != "exp"}),
        "times as text": ours.sign({**claims, "exp": str(now + 7200)}),
        "not signed": ".".join([base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("="), body, ""]),
        "cut": f"{header}.{body}.{signature[:-4]}",
    }
    assert {name: bearer(text).get(path(web)).status for name, text in forged.items()} == dict.fromkeys(forged, 401)
    # The same name, made again, is another workspace.
    workspace_delete(actor=actor_of(alice), workspace_id=web.pk)
    embedded.settle(web, Phase.DELETED)
    again = workspace_init(actor=actor_of(alice), user=alice, tier="standard", name="web")
    again = embedded.settle(again, Phase.READY)
    assert all(refused(real, path(place), 401) for place in (web, again))


def test_only_what_a_cluster_offers_is_issued(web, alice):
    """The operator says which ways there are; a new cluster has all, the recommended one first."""
    assert web.cluster.credential_kinds == ["direct", "gateway", "exec"]
    Cluster.objects.update(credential_kinds=["direct"])
    with pytest.raises(Conflict, match="The cluster embedded offers other credentials: direct"):
        issue(alice, web)
    Cluster.objects.update(credential_kinds=["gateway"])
    with pytest.raises(Conflict, match="offers other credentials: gateway"):
        kubeconfig_issue(actor=actor_of(alice), workspace_id=web.pk, kind="direct", now=timezone.now())
    assert Credential.objects.count() == 0
