"""Kubeconfigs that go out and come in."""

from __future__ import annotations

import base64
import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube.authentication import kubeconfig, pki
from kube.authentication.kubeconfig import Access, InvalidKubeconfig

NOW = datetime(2026, 11, 21, tzinfo=UTC)
AUTHORITY = pki.make_authority("ca", now=NOW)
CLIENT = pki.make_client_certificate(AUTHORITY, "gateway", now=NOW, lifetime=timedelta(days=1))
TOKEN = "eyJhbGciOiJSUzI1NiIs.eyJzdWIi.c2lnbmF0dXJl"
GOOD: dict[str, Any] = {
    "server": "https://api.example:6443",
    "certificate_authority": AUTHORITY.certificate,
    "namespace": "tenant-a1b2c3d4",
    "name": "acme.web.admin",
    "token": TOKEN,
}
CLUSTER = "api.example-6443"
CONTEXT = f"acme.web.admin@{CLUSTER}"


def encoded(pem: bytes) -> str:
    return base64.b64encode(pem).decode()


def written(*changes: dict[str, Any]) -> str:
    return kubeconfig.write_kubeconfig([Access(**GOOD | change) for change in changes or ({},)])


def test_the_shape_is_the_documents() -> None:
    """GW3, GW7."""
    text = written()
    assert yaml.safe_load(text) == {
        "apiVersion": "v1",
        "clusters": [
            {
                "cluster": {
                    "server": "https://api.example:6443",
                    "certificate-authority-data": encoded(AUTHORITY.certificate),
                },
                "name": CLUSTER,
            }
        ],
        "contexts": [
            {
                "context": {
                    "cluster": CLUSTER,
                    "namespace": "tenant-a1b2c3d4",
                    "user": CONTEXT,
                },
                "name": CONTEXT,
            }
        ],
        "current-context": CONTEXT,
        "kind": "Config",
        "users": [{"name": CONTEXT, "user": {"token": TOKEN}}],
    }
    keys = [line.split(":")[0] for line in text.splitlines() if line[0].isalpha()]
    assert keys == ["apiVersion", "clusters", "contexts", "current-context", "kind", "users"]
    registered = kubeconfig.read_kubeconfig(text)
    assert (registered.server, registered.token) == (GOOD["server"], TOKEN)


INJECTION = 'x"\n    exec:\n      command: /bin/sh'


@pytest.mark.parametrize(
    "change",
    [
        {"token": INJECTION},
        {"token": f"{TOKEN}\n"},
        {"token": "tnt_abc"},
        {"token": ""},
        {"namespace": INJECTION},
        {"namespace": "kube/system"},
        {"name": INJECTION},
        {"name": "A"},
        {"name": "acme@web"},
        {"server": "http://api.example"},
        {"server": "https://user:pw@api.example"},
        {"server": "https://api.example/?x"},
        {"server": "https://api.example/#x"},
        {"server": "https://api.example/a/../b"},
        {"server": "https://api.example//b"},
        {"server": "https://"},
        {"server": "https://[::1"},
        {"server": "https://api.example:99999"},
        {"server": INJECTION},
        {"server": "https://api.example\n"},
        {"certificate_authority": b"x"},
        {"certificate_authority": CLIENT.key},
    ],
)
def test_hostile_answers_never_become_a_file(change: dict[str, Any]) -> None:
    """GW3: a template ran a shell command through kubectl here."""
    with pytest.raises(InvalidKubeconfig) as refused:
        written(change)
    assert TOKEN not in str(refused.value)


def test_a_file_of_several_contexts_names_each_cluster_once() -> None:
    """GW3: the first is the current one."""
    there = {"server": "https://[2001:db8::1]:6443/k8s", "name": "acme.api.viewer"}
    read = yaml.safe_load(written({}, {"name": "acme.api.admin", "namespace": "tenant-b"}, there))
    assert read["current-context"] == CONTEXT
    assert [entry["name"] for entry in read["clusters"]] == [CLUSTER, "2001-db8-1-6443-k8s"]
    assert [(entry["name"], entry["context"]["cluster"]) for entry in read["contexts"]] == [
        (CONTEXT, CLUSTER),
        (f"acme.api.admin@{CLUSTER}", CLUSTER),
        ("acme.api.viewer@2001-db8-1-6443-k8s", "2001-db8-1-6443-k8s"),
    ]
    # What opens them is the same.
    assert read["users"] == [{"name": CONTEXT, "user": {"token": TOKEN}}]
    assert {entry["context"]["user"] for entry in read["contexts"]} == {CONTEXT}


def test_each_secret_of_a_file_is_a_user_of_its_own() -> None:
    """GW3: none is sent where another one opens."""
    other = {"name": "acme.api.admin", "token": f"{TOKEN}2"}
    plugin = {"name": "acme.cli.admin", "token": "", "plugin": ("tenantry-login", "--portal", "https://portal.example")}
    read = yaml.safe_load(written({}, other, plugin, {"name": "acme.more.admin"}))
    names = [entry["name"] for entry in read["contexts"]]
    assert [entry["context"]["user"] for entry in read["contexts"]] == [*names[:3], names[0]]
    assert [entry["name"] for entry in read["users"]] == names[:3]
    assert [entry["user"].get("token") for entry in read["users"]] == [TOKEN, f"{TOKEN}2", None]


def test_a_file_has_room_for_all_that_is_in_it() -> None:
    """What comes in is bounded; what goes out is as long as it is."""
    text = written(*({"name": f"acme.w{number}.admin", "namespace": f"w{number}"} for number in range(2000)))
    assert len(text) > kubeconfig.SIZE_MAX
    assert len(yaml.load(text, yaml.CSafeLoader)["contexts"]) == 2000
    with pytest.raises(InvalidKubeconfig, match="too large"):
        kubeconfig.read_kubeconfig(text)


@pytest.mark.parametrize(
    "change", [{}, {"token": f"{TOKEN}2"}, {"name": "acme.api.admin", "certificate_authority": b""}]
)
def test_no_name_is_given_twice_in_a_file(change: dict[str, Any]) -> None:
    """Of two entries of one name kubectl takes the first: a token would go to the wrong cluster."""
    with pytest.raises(InvalidKubeconfig, match="twice"):
        written({}, change)


def document() -> dict[str, Any]:
    return copy.deepcopy(yaml.safe_load(written()))


def test_a_registration_by_certificate_shows_no_key() -> None:
    """GW9, GW12."""
    given_ = document()
    given_["users"][0]["user"] = {
        "client-certificate-data": encoded(CLIENT.certificate),
        "client-key-data": encoded(CLIENT.key),
    }
    given_["clusters"][0]["cluster"]["tls-server-name"] = "kubernetes.default.svc"
    given_["preferences"] = {}
    registered = kubeconfig.read_kubeconfig(yaml.safe_dump(given_))
    assert registered.client_key == CLIENT.key
    assert registered.client_certificate == CLIENT.certificate
    assert registered.server_name == "kubernetes.default.svc"
    assert "PRIVATE" not in repr(registered)


@pytest.mark.parametrize(
    ("where", "change"),
    [
        ("user", {"exec": {"command": "sh"}}),
        ("user", {"auth-provider": {"name": "x"}}),
        ("user", {"tokenFile": "/etc/passwd"}),
        ("user", {"token": None}),
        ("user", {"token": "a b"}),
        ("user", {"client-certificate": "/a", "client-key": "/b"}),
        ("user", {"client-certificate-data": encoded(CLIENT.certificate)}),
        ("user", {"username": "a", "password": "b"}),
        ("user", {"as": "system:admin"}),
        ("cluster", {"insecure-skip-tls-verify": True}),
        ("cluster", {"certificate-authority": "/etc/ca.pem"}),
        ("cluster", {"certificate-authority-data": None}),
        ("cluster", {"certificate-authority-data": "!"}),
        ("cluster", {"certificate-authority-data": encoded(CLIENT.key)}),
        ("cluster", {"proxy-url": "http://evil"}),
        ("cluster", {"server": "http://api.example"}),
        ("cluster", {"server": None}),
        ("cluster", {"tls-server-name": "a b"}),
    ],
)
def test_a_registration_holds_data_only(where: str, change: dict[str, Any]) -> None:
    """GW12."""
    given_ = document()
    given_[f"{where}s"][0][where].update(change)
    with pytest.raises(InvalidKubeconfig) as refused:
        kubeconfig.read_kubeconfig(yaml.safe_dump(given_))
    assert TOKEN not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "a: &x [1]\nb: *x\n",
        "kind: Config\nkind: Config\n",
        "kind: Secret\n",
        "current-context: missing\n",
        "!!python/object/apply:os.system [id]",
        "[" * 20_000,
        "a: " + "x" * 300_000,
        "\x00",
        "{{}: 1}",
    ],
)
def test_hostile_yaml_is_refused(text: str) -> None:
    """P9."""
    with pytest.raises(InvalidKubeconfig):
        kubeconfig.read_kubeconfig(text)


def test_a_name_given_twice_is_refused() -> None:
    given_ = document()
    given_["users"].append(copy.deepcopy(given_["users"][0]))
    with pytest.raises(InvalidKubeconfig, match="twice"):
        kubeconfig.read_kubeconfig(yaml.safe_dump(given_))


@given(st.text(max_size=40), st.text(max_size=40))
def test_whatever_is_written_reads_the_same(token: str, namespace: str) -> None:
    """GW3."""
    try:
        text = written({"token": token, "namespace": namespace})
    except InvalidKubeconfig:
        return
    read = yaml.safe_load(text)
    assert read["users"] == [{"name": CONTEXT, "user": {"token": token}}]
    assert read["contexts"][0]["context"]["namespace"] == namespace


@pytest.mark.parametrize("name", ["true", "null", "012", "1e3", "no", "1-1-1"])
def test_names_that_yaml_could_mistake_stay_text(name: str) -> None:
    """Design, traps: PyYAML turns dates and numbers into something else."""
    text = written({"namespace": name, "name": name})
    assert yaml.safe_load(text)["contexts"][0]["context"]["namespace"] == name
    assert kubeconfig.read_kubeconfig(text).token == TOKEN
