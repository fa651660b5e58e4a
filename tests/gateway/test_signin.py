"""kubectl signs in to the real server by each method, and is who it should be (AN1 to AN9)."""

from __future__ import annotations

import base64
import http.server
import json
import os
import shutil
import ssl
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
import uuid
import warnings
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
import werkzeug.serving
import yaml
from django.core.management import CommandError, call_command

from kube.authentication import pki
from kube.authentication.identity import AUTHENTICATOR_EXTRA, CREDENTIAL_EXTRA, TENANT_EXTRA
from tests.access.authentication.keystones import NOT_INSTALLED, running
from tests.access.authentication.outside import AUTHORITY
from tests.gateway.callers import eventually
from tests.gateway.conftest import Server, start, stop

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import oidc_provider_mock

KUBECTL = shutil.which("kubectl")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:authlib"),
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"),
]


def server_context():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


@contextmanager
def in_thread(server):
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(300)
        server.server_close()


class Reviewer(http.server.BaseHTTPRequestHandler):
    """A TokenReview webhook that knows two tokens, one of them of a user without a tenant."""

    users = {
        "hook-token": {"username": "wanda", "uid": "w1", "groups": ["crew"], "extra": {TENANT_EXTRA: ["t5"]}},
        "plain-token": {"username": "piet", "uid": "p1", "groups": ["crew"]},
    }

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        user = self.users.get(body["spec"]["token"])
        status = {"authenticated": user is not None, **({"user": user} if user else {})}
        answer = json.dumps({**body, "status": status}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def provider():
    """oidc-provider-mock behind TLS: an independent implementation, whose ID tokens have no key id."""
    claims = {"groups": ["devs"], "tenant": "t4"}
    app = oidc_provider_mock.app(user_claims=[oidc_provider_mock.User(sub="olga", claims=claims)])
    server = werkzeug.serving.make_server("127.0.0.1", 0, app, threaded=True, ssl_context=server_context())
    with in_thread(server):
        yield f"https://127.0.0.1:{server.server_port}"


def id_token(provider):
    """By the code flow, as a person would."""
    context = ssl.create_default_context(cadata=AUTHORITY.cert_pem.bytes().decode())

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *args):
            return None

    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), Stay)
    query = {"client_id": "tenantry", "redirect_uri": "http://localhost/", "response_type": "code", "scope": "openid"}
    try:
        opener.open(f"{provider}/oauth2/authorize?{urllib.parse.urlencode(query)}", b"sub=olga")
    except urllib.error.HTTPError as redirect:
        location = redirect.headers["Location"]
    code = urllib.parse.parse_qs(urllib.parse.urlsplit(location).query)["code"][0]
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": "http://localhost/"}
    request = urllib.request.Request(f"{provider}/oauth2/token", urllib.parse.urlencode(form).encode())
    request.add_header("Authorization", "Basic " + base64.b64encode(b"tenantry:x").decode())
    with opener.open(request) as answer:
        return json.load(answer)["id_token"]


@pytest.fixture(scope="module")
def webhook():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Reviewer)
    server.socket = server_context().wrap_socket(server.socket, server_side=True)
    with in_thread(server):
        yield f"https://127.0.0.1:{server.server_port}/review"


class Kubectl:
    """The real kubectl against a running server."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def __call__(self, *arguments: str, user: dict[str, str] | None = None, check: bool = True, text: str = "") -> str:
        """What it prints as ``user`` of a kubeconfig, or as the operator; what it complains of with ``check=False``."""
        path = self.server.folder / "admin.kubeconfig"
        if user is not None:
            path = self.server.folder / f"{uuid.uuid4().hex}.kubeconfig"
            cluster = {"server": self.server.url, "certificate-authority": str(self.server.folder / "pki" / "ca.crt")}
            content = {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
            path.write_text(yaml.safe_dump(content))
        command = [str(KUBECTL), f"--kubeconfig={path}", f"--server={self.server.url}", *arguments]
        environment = {**os.environ, "HOME": str(self.server.folder)}
        done = subprocess.run(
            command, env=environment, input=text, capture_output=True, text=True, timeout=300, check=False
        )
        assert (done.returncode == 0) is check, done.stderr
        return done.stdout if check else done.stderr

    def whoami(self, user: dict[str, str] | None = None, *arguments: str) -> dict[str, Any]:
        info: dict[str, Any] = json.loads(self("auth", "whoami", "-o", "json", *arguments, user=user))
        return info["status"]["userInfo"]


def outside_flags(folder, provider, webhook):
    """Who is asked outside, and what of it is the same on every server."""
    (folder / "tokens.csv").write_text('tok-alice,alice,a1,"dev,ops",,t1\ntok-masters,op,o1,system:masters,,system\n')
    (folder / "users.csv").write_text("pw,bert,b1,dev,,t2\n")
    (folder / "ca.crt").write_bytes(AUTHORITY.cert_pem.bytes())
    cluster = {"server": webhook, "certificate-authority": "ca.crt"}
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    (folder / "webhook.yaml").write_text(yaml.safe_dump(config))
    return [
        f"--token-auth-file={folder}/tokens.csv",
        f"--basic-auth-file={folder}/users.csv",
        f"--oidc-issuer-url={provider}",
        "--oidc-client-id=tenantry",
        f"--oidc-ca-file={folder}/ca.crt",
        "--oidc-username-prefix=oidc:",
        "--oidc-groups-claim=groups",
        "--oidc-groups-prefix=oidc:",
        f"--authentication-token-webhook-config-file={folder}/webhook.yaml",
    ]


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory, new_database, provider, webhook):
    folder = tmp_path_factory.mktemp("signin")
    flags = [*outside_flags(folder, provider, webhook), "--oidc-tenant-claim=tenant"]
    if (keystone := running()) is not None:
        flags.append(f"--keystone-url={keystone.url}")
    server = start(folder / "data", new_database, *flags)
    yield Kubectl(server)
    stop(server)


def tenant_named(name):
    return {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": name}}


def of(info, authenticator):
    assert info["extra"][AUTHENTICATOR_EXTRA] == [authenticator]
    assert info["groups"][-1] == "system:authenticated"
    return info["username"], info.get("uid"), info["groups"][:-1], info["extra"][TENANT_EXTRA]


def test_by_certificate(kubectl):
    """AN1, AN2: both forms, issued by the server's own client CA."""
    assert of(kubectl.whoami(), "x509")[3] == ["system"]
    folder = kubectl.server.folder / "pki"
    authority = pki.KeyPair((folder / "client-ca.crt").read_bytes(), (folder / "client-ca.key").read_bytes())
    life = {"now": datetime.now(UTC), "lifetime": timedelta(hours=1)}
    for subject, known in (
        (
            {"user": "carl", "organizations": ["tenant:t3"], "units": ["app1", "app2"]},
            ("carl", None, ["app1", "app2"], ["t3"]),
        ),
        ({"user": "t3:demo", "organizations": ["app1"]}, ("t3:demo", None, ["app1"], ["t3"])),
    ):
        pair = pki.make_client_certificate(authority, **subject, **life)
        user = {
            "client-certificate-data": base64.b64encode(pair.certificate).decode(),
            "client-key-data": base64.b64encode(pair.key).decode(),
        }
        info = kubectl.whoami(user)
        assert of(info, "x509") == known
        assert info["extra"][CREDENTIAL_EXTRA][0].startswith("X509SHA256=")


def test_by_token_file(kubectl):
    """AN4."""
    assert of(kubectl.whoami({"token": "tok-alice"}), "token-file") == ("alice", "a1", ["dev", "ops"], ["t1"])


def test_by_basic_file(kubectl):
    """AN5."""
    user = {"username": "bert", "password": "pw"}
    assert of(kubectl.whoami(user), "basic-file") == ("bert", "b1", ["dev"], ["t2"])


def test_by_service_account(kubectl):
    """AN6."""
    kubectl("create", "serviceaccount", "robot", "-n", "default")
    token = kubectl("create", "token", "robot", "-n", "default").strip()
    name, uid, groups, tenant = of(kubectl.whoami({"token": token}), "serviceaccount")
    assert (name, tenant) == ("system:serviceaccount:default:robot", ["system"])
    assert uid
    assert groups == ["system:serviceaccounts", "system:serviceaccounts:default"]
    kubectl("create", "-f", "-", text=yaml.safe_dump(tenant_named("t6")))
    space = f"--server={kubectl.server.url}/clusters/root:t6"
    kubectl("create", "serviceaccount", "robot", "-n", "default", space)
    token = kubectl("create", "token", "robot", "-n", "default", "--duration=10m", space).strip()
    name, own, groups, tenant = of(kubectl.whoami({"token": token}), "serviceaccount")
    assert (name, tenant) == ("system:serviceaccount:default:robot", ["t6"])
    assert own
    assert own != uid, "accounts of one name in two spaces are two"


def test_by_open_id_connect(kubectl, provider):
    """AN8: a token of a real provider, without a key id."""
    info = kubectl.whoami({"token": id_token(provider)})
    assert of(info, "oidc") == ("oidc:olga", "olga", ["oidc:devs"], ["t4"])


def test_by_webhook(kubectl):
    """AN7."""
    assert of(kubectl.whoami({"token": "hook-token"}), "webhook") == ("wanda", "w1", ["crew"], ["t5"])


def test_by_keystone(kubectl):
    """AN7."""
    keystone = running() or pytest.skip(NOT_INSTALLED)
    tenant = f"t{uuid.uuid4().hex[:8]}"
    domain = keystone.make("domain", name=tenant)
    kim = keystone.make("user", name="kim", password="pw", domain_id=domain)
    project = keystone.make("project", name="default", domain_id=domain)
    user = {"token": keystone.token("kim", domain)}
    assert "Unauthorized" in kubectl("auth", "whoami", user=user, check=False)
    kubectl("create", "-f", "-", text=yaml.safe_dump(tenant_named(tenant)))
    assert of(kubectl.whoami(user), "keystone") == ("kim", kim, [], [tenant])
    assert "forbidden" in kubectl("get", "configmaps", user=user, check=False)
    keystone.assign(kim, "reader", f"projects/{project}")
    fresh = {"token": keystone.token("kim", domain)}
    kubectl("get", "configmaps", user=fresh)
    assert "forbidden" in kubectl("create", "configmap", "x", user=fresh, check=False)


@pytest.mark.parametrize("user", [{"token": "nobody"}, {"username": "bert", "password": "wrong"}])
def test_nobody_is_unauthorized(kubectl, user):
    """AN11."""
    refused = kubectl("get", "--raw=/version", user=user, check=False)
    assert "You must be logged in to the server (Unauthorized)" in refused


def test_the_audit_names_who_knew_the_user(kubectl):
    """AN9: also for whoever acts as another, and nobody where nobody knew."""
    for user in ({"token": "tok-alice"}, {"username": "bert", "password": "pw"}, {"token": "hook-token"}):
        kubectl.whoami(user)
    kubectl.whoami({"token": "tok-masters"}, "--as=bob")
    kubectl("auth", "whoami", user={"token": "unknown"}, check=False)
    wanted = {("alice", "token-file"), ("bert", "basic-file"), ("wanda", "webhook"), ("op as bob", "token-file")}

    def recorded() -> bool:
        with psycopg.connect(kubectl.server.database) as connection:
            rows = set(connection.execute("SELECT actor, authenticator FROM api_requests").fetchall())
        return wanted | {("", "")} <= rows and not any(known for who, known in rows if not who)

    assert eventually(recorded)


def test_as_somebody_else(kubectl):
    """Impersonation, by kubectl's own flags."""
    info = kubectl.whoami(None, "--as=bob", "--as-group=dev", "--as-uid=7")
    assert of(info, "impersonation") == ("bob", "7", ["dev"], ["system"])
    refused = kubectl("get", "--raw=/version", "--as=bob", user={"token": "tok-alice"}, check=False)
    assert 'users "bob" is forbidden: User "alice" cannot impersonate resource "users" in API group ""' in refused


def test_as_somebody_else_by_the_kubeconfig(kubectl):
    """Impersonation, as a kubeconfig says it; the operator names the tenant."""
    user = {"token": "tok-masters", "as": "zoe", "as-groups": ["dev"], "as-user-extra": {TENANT_EXTRA: ["t3"]}}
    assert of(kubectl.whoami(user), "impersonation") == ("zoe", None, ["dev"], ["t3"])
    refused = kubectl("get", "--raw=/version", user={**user, "token": "tok-alice"}, check=False)
    assert "only users of the system tenant can impersonate users of other tenants" in refused


def test_a_wrong_token_file_ends_the_start_with_its_line(tmp_path):
    """AN4."""
    (tmp_path / "tokens.csv").write_text("s3cret,alice,,note\n")
    with pytest.raises(
        CommandError, match=r"tokens\.csv, line 1: the last column could be a tenant or groups"
    ) as error:
        call_command("apiserver", f"--token-auth-file={tmp_path}/tokens.csv")
    assert "s3cret" not in str(error.value)


HOME = "stray"


@pytest.fixture(scope="module")
def defaulting(tmp_path_factory, new_database, provider, webhook):
    """A server with a default tenant, whose provider says nothing of tenants."""
    folder = tmp_path_factory.mktemp("defaulting")
    flags = outside_flags(folder, provider, webhook)
    with (folder / "tokens.csv").open("a") as lines:
        lines.write("tok-plain,olaf,o2,dev\n")
    flags += [f"--default-tenant={HOME}", "--anonymous-auth", "--tenant-read-qps=2000"]
    server = start(folder / "data", new_database, *flags)
    kubectl = Kubectl(server)
    space = f"--server={server.url}/clusters/root:{HOME}"
    subjects = ["--group=crew", "--group=oidc:devs", "--group=system:unauthenticated", "--user=bob"]
    kubectl("create", "clusterrolebinding", "strays", "--clusterrole=view", *subjects, space)
    kubectl("create", "clusterrole", "acts", "--verb=impersonate", "--resource=users", space)
    kubectl("create", "clusterrolebinding", "acts", "--clusterrole=acts", "--group=crew", space)
    yield kubectl
    stop(server)


def test_user_without_a_tenant_can_do_nothing_where_there_is_no_default(kubectl):
    """TS7, TS13."""
    for path in ("/api/v1/namespaces/default/configmaps", "/version"):
        answer = kubectl.server.bearer("plain-token").get(path)
        assert (answer.status, "the user belongs to no tenant" in answer.body["message"]) == (403, True)


def test_user_without_a_tenant_is_the_default_tenants(defaulting, provider):
    """TS7, TS8: by whichever authenticator, in requests and in questions about them."""
    token = id_token(provider)
    assert of(defaulting.whoami({"token": token}), "oidc") == ("oidc:olga", "olga", ["oidc:devs"], [HOME])
    assert of(defaulting.whoami({"token": "plain-token"}), "webhook") == ("piet", "p1", ["crew"], [HOME])
    for shown in (token, "plain-token"):
        user = {"token": shown}
        assert "kube-root-ca.crt" in defaulting("get", "configmaps", "-n", "default", user=user)
        assert defaulting("auth", "can-i", "list", "pods", user=user) == "yes\n"
        assert "forbidden" in defaulting("create", "configmap", "x", user=user, check=False)
        elsewhere = defaulting.server.bearer(shown).get("/clusters/root/api/v1/namespaces/default/configmaps")
        assert (elsewhere.status, "another tenant's space" in elsewhere.body["message"]) == (403, True)
    answer = defaulting.server.bearer("plain-token").get("/api/v1/namespaces/default/configmaps")
    assert answer.headers["ratelimit"].startswith('"person-read"')


def test_whose_tenant_is_said_stays_there(defaulting):
    """TS7: nor does the default bring anybody in who is refused without a tenant (AN3), or an operator without one (AN4)."""
    assert of(defaulting.whoami({"token": "hook-token"}), "webhook")[3] == ["t5"]
    assert of(defaulting.whoami({"token": "tok-alice"}), "token-file")[3] == ["t1"]
    assert of(defaulting.whoami({"token": "tok-plain"}), "token-file")[3] == ["system"]
    assert of(defaulting.whoami(), "x509")[3] == ["system"]


def test_strangers_are_nobodys_where_there_is_a_default_tenant(defaulting):
    """TS7, AN11: whatever its admins give to those who have not signed in."""
    for path in ("/api/v1/namespaces/default/configmaps", "/version"):
        answer = defaulting.server.nobody.get(path)
        assert (answer.status, "the user belongs to no tenant" in answer.body["message"]) == (403, True)


def test_who_acts_for_a_user_of_the_default_tenant_stays_in_it(defaulting):
    """TS7: whoever is impersonated without a tenant is of the caller's."""
    piet = {"token": "plain-token"}
    assert of(defaulting.whoami(piet, "--as=bob"), "impersonation") == ("bob", None, [], [HOME])
    assert "kube-root-ca.crt" in defaulting("get", "configmaps", "--as=bob", user=piet)
    assert of(defaulting.whoami(None, "--as=bob"), "impersonation") == ("bob", None, [], ["system"])


def test_reviews_and_records_say_the_default_tenant(defaulting):
    """TS7, AZ10: its own admins may ask whose token it is, and read in the record what was done."""
    owner = defaulting.server.user(HOME, "hilda", "tenantry:owner")
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "plain-token"}}
    status = owner.post("/apis/authentication.k8s.io/v1/tokenreviews", body).body["status"]
    assert (status["authenticated"], status["user"]["extra"][TENANT_EXTRA]) == (True, [HOME])
    asked = {"user": "piet", "groups": ["crew"], "resourceAttributes": {"verb": "list", "resource": "pods"}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
    assert owner.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body).body["status"]["allowed"]

    def recorded() -> bool:
        with psycopg.connect(defaulting.server.database) as connection:
            question = "SELECT DISTINCT tenant FROM api_requests WHERE actor = 'piet' AND code = 200"
            return connection.execute(question).fetchall() == [(HOME,)]

    defaulting("get", "configmaps", user={"token": "plain-token"})
    assert eventually(recorded)


@pytest.mark.parametrize("name", ["system", "all", "Upper", "a.b"])
def test_default_tenant_that_can_be_nobodys_ends_the_start(name):
    """TS8, URL-26: above all, not everybody without a tenant becomes an operator."""
    with pytest.raises(CommandError, match=f"--default-tenant={name}: .*; name a tenant for the users without one"):
        call_command("apiserver", f"--default-tenant={name}")
