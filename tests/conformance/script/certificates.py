"""Requests for certificates: what may be asked for, and who decides."""

from __future__ import annotations

import base64
from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.script.media import MERGE

AT = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
BOB = """-----BEGIN CERTIFICATE REQUEST-----
MIHWMH4CAQAwHDEMMAoGA1UEAwwDYm9iMQwwCgYDVQQKDANkZXYwWTATBgcqhkjO
PQIBBggqhkjOPQMBBwNCAATkoKBLp8zo9+oUZf8QishrqG00qwyLFUr1dEY5kbXR
MmqwkAiiKO8y36gKXNE4YAZrx3rgeJEhfqBpcfsJIBxwoAAwCgYIKoZIzj0EAwID
SAAwRQIhAK8nkJuVxXJ4RONQgnk70EuwmXxxsMIPh2clGydILjb8AiBjYtT9IYt7
JWeVB7uV8WoXXMhYvRS3OlvBsk6MIqYXHg==
-----END CERTIFICATE REQUEST-----
"""
MASTER = """-----BEGIN CERTIFICATE REQUEST-----
MIHmMIGNAgEAMCsxEDAOBgNVBAMMB21hbGxvcnkxFzAVBgNVBAoMDnN5c3RlbTpt
YXN0ZXJzMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEbSiJYbo9cKnpFxXrA/Bh
w6KYMBPAOSAhixEUHXDjJz+1IARq7DeypyiNj4q40FUD4IiiAOW8N80mu5morYVB
qKAAMAoGCCqGSM49BAMCA0gAMEUCIH4nIFHJy40YMH/WtPzHYiWkFvcmii96Fy07
xz8mRaHOAiEAhFWFphD645ofY6R2V+jB7LZ/MO+xfFdDzblRF4A7B7s=
-----END CERTIFICATE REQUEST-----
"""
CLIENT = "kubernetes.io/kube-apiserver-client"


def _asked(text: str = BOB, **spec: Any) -> dict[str, Any]:
    request = base64.b64encode(text.encode()).decode()
    return {
        "metadata": {"name": "eq-bob"},
        "spec": {"request": request, "signerName": "example.com/x", "usages": ["client auth"], **spec},
    }


def certificates(say: Conversation) -> None:
    """What is asked for, then the decision, then the certificate."""
    for body in (
        _asked("nonsense"),
        _asked(""),
        _asked(BOB.replace("CERTIFICATE REQUEST", "CERTIFICATE")),
        *(_asked(usages=usages) for usages in ([], ["bad"], ["client auth", "client auth"])),
        *(_asked(expirationSeconds=seconds) for seconds in (1, 599, -5)),
        *(_asked(signerName=name) for name in ("", "nodomain", "a b/c", "Example.com/x", "example.com/", "a.b/c/d")),
        *(_asked(signerName=name) for name in ("kubernetes.io/legacy-unknown", "a.b/c..d", f"{'x' * 254}.com/a")),
        _asked(MASTER, signerName=CLIENT),
    ):
        say.say("POST", f"{AT}?dryRun=All", body)
    made = _asked(username="eve", groups=["x"], expirationSeconds=600)
    assert say.speaker.send("POST", AT, made).status == 201
    certificate = base64.b64encode(BOB.encode()).decode()
    approved: dict[str, Any] = {"type": "Approved", "status": "True"}
    for conditions in (
        [{**approved, "status": "False"}],
        [{**approved, "status": ""}],
        [{**approved, "type": ""}],
        [{**approved, "type": "Denied"}, approved],
        [approved, approved],
        [{**approved, "type": "Failed", "status": "Unknown"}],
        [{**approved, "type": "Other", "status": "Perhaps"}],
    ):
        say.say("PATCH", f"{AT}/eq-bob/approval?dryRun=All", {"status": {"conditions": conditions}}, MERGE)
    say.say("PATCH", f"{AT}/eq-bob/status?dryRun=All", {"status": {"conditions": [approved]}}, MERGE)
    for text in ("eA==", certificate):
        say.say("PATCH", f"{AT}/eq-bob/status?dryRun=All", {"status": {"certificate": text}}, MERGE)
    assert (
        say.speaker.send("PATCH", f"{AT}/eq-bob/approval", {"status": {"conditions": [approved]}}, MERGE).status == 200
    )
    for part in ("approval", "status"):
        say.say("PATCH", f"{AT}/eq-bob/{part}?dryRun=All", {"status": {"conditions": []}}, MERGE)
    for part in ("", "/status", "/approval"):
        changed = say.speaker.send("PATCH", f"{AT}/eq-bob{part}", {"spec": {"signerName": "a.b/c"}}, MERGE)
        assert changed.status == 200
        say.note(f"{AT}/eq-bob", lambda answer: answer["spec"]["signerName"])
    say.speaker.send("DELETE", f"{AT}/eq-bob")
