"""Several servers in one data folder: clients have one address, and no server takes it from another unasked."""

from __future__ import annotations

import signal
import subprocess

import yaml

from tests.apiserver import OwnApiserver, running, started
from tests.databases import migrated
from tests.ports import free_port
from tests.speaking import Speaker, speaker_of
from tests.story.product import eventually


def address(server: OwnApiserver) -> str:
    """Where ``admin.kubeconfig`` leads to now."""
    return str(yaml.safe_load(server.kubeconfig.read_text())["clusters"][0]["cluster"]["server"])


def second(server: OwnApiserver, *flags: str) -> tuple[subprocess.Popen[bytes], Speaker, str]:
    """Another server of the same folder at a port of its own, once it answers there."""
    port = free_port()
    process = started(server, flags=(f"--secure-port={port}", *flags))
    url = f"https://127.0.0.1:{port}"
    speaker = speaker_of(server.kubeconfig.read_text().replace(address(server), url))

    def ready() -> bool:
        assert process.poll() is None
        try:
            return speaker.send("GET", "/readyz").status == 200
        except OSError:
            return False

    eventually(ready)
    return process, speaker, url


def end(process: subprocess.Popen[bytes], speaker: Speaker) -> None:
    speaker.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=300) in (0, -signal.SIGTERM)


def test_the_address_stays_while_another_server_runs_and_moves_when_asked() -> None:
    """The first one's stays and the second says so; ``--external-url`` asks for another; who is alone has his own."""
    with migrated("addresses") as database, running(database) as server:
        assert address(server) == server.url
        process, speaker, _ = second(server)
        assert address(server) == server.url
        said = (server.kubeconfig.parent / "apiserver.log").read_text()
        assert f"stays at {server.url}" in said
        assert "--external-url" in said
        # Both serve the same, each at its own.
        made = speaker.send(
            "POST",
            "/api/v1/namespaces/default/configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "of-both"}},
        )
        assert made.status == 201, made
        assert server.admin.send("GET", "/api/v1/namespaces/default/configmaps/of-both").status == 200
        end(process, speaker)

        process, speaker, _ = second(server, "--external-url=https://balanced.example.org:6443")
        assert address(server) == "https://balanced.example.org:6443"
        end(process, speaker)

        server.admin.close()
        server.processes[0].send_signal(signal.SIGKILL)
        server.processes[0].wait(timeout=300)
        # It was killed, and nothing of it keeps the address.
        process, speaker, url = second(server)
        assert address(server) == url
        end(process, speaker)
