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


def asked(text: str = BOB, **spec: Any) -> dict[str, Any]:
    """A request for a certificate."""
    request = base64.b64encode(text.encode()).decode()
    return {
        "metadata": {"name": "eq-bob"},
        "spec": {"request": request, "signerName": "example.com/x", "usages": ["client auth"], **spec},
    }


def certificates(say: Conversation) -> None:
    """What is asked for, then the decision, then the certificate."""
    for body in (
        asked("nonsense"),
        asked(""),
        asked(BOB.replace("CERTIFICATE REQUEST", "CERTIFICATE")),
        *(asked(usages=usages) for usages in ([], ["bad"], ["client auth", "client auth"])),
        *(asked(expirationSeconds=seconds) for seconds in (1, 599, -5)),
        *(asked(signerName=name) for name in ("", "nodomain", "a b/c", "Example.com/x", "example.com/", "a.b/c/d")),
        *(asked(signerName=name) for name in ("kubernetes.io/legacy-unknown", "a.b/c..d", f"{'x' * 254}.com/a")),
        asked(MASTER, signerName=CLIENT),
    ):
        say.say("POST", f"{AT}?dryRun=All", body)
    made = asked(username="eve", groups=["x"], expirationSeconds=600)
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


def signers(say: Conversation) -> None:
    """Who decides, and who signs: to write the part of a request is one right, to do it for this signer another."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    certificate = base64.b64encode(BOB.encode()).decode()
    parts = {"apiGroups": ["certificates.k8s.io"], "resources": [f"{AT.rpartition('/')[2]}/{part}" for part in _PARTS]}
    _role(say, "eq-parts", [{**parts, "verbs": ["get", "update", "patch"]}])
    for user, names, verbs in (
        ("eq-nobody", ["example.org/x"], ["approve", "sign"]),
        ("eq-approver", ["example.com/*"], ["approve"]),
        ("eq-signer", ["example.com/x"], ["sign"]),
    ):
        rule = {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": names, "verbs": verbs}
        _role(say, user, [rule])
        for role in ("eq-parts", user):
            subjects = [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}]
            ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
            binding = {"metadata": {"name": f"{role}-{user}"}, "subjects": subjects, "roleRef": ref}
            say.speaker.send("POST", f"{rbac}/clusterrolebindings", binding)
        for verb, place in (
            ("update", {"resource": "certificatesigningrequests", "subresource": "status"}),
            *((verb, {"resource": "signers", "name": names[0]}) for verb in verbs),
        ):
            wanted = {"group": "certificates.k8s.io", "verb": verb, **place}
            review = {"spec": {"user": user, "resourceAttributes": wanted}}
            say.until(lambda review=review: say.speaker.send("POST", _REVIEWS, review)["status"]["allowed"])  # type: ignore[misc]
    one = f"{AT}/eq-bob"
    assert say.speaker.send("POST", AT, asked()).status == 201
    approved = {"conditions": [{"type": "Approved", "status": "True", "reason": "R"}]}
    failed = {"conditions": [{"type": "Failed", "status": "True", "reason": "R"}]}
    for user in ("eq-nobody", "eq-signer", "eq-approver"):
        _try(say, f"{one}/approval", user, {"status": approved})
    for user in ("eq-nobody", "eq-approver", "eq-signer"):
        _try(say, f"{one}/status", user, {"metadata": {"labels": {"by": user}}})
        _try(say, f"{one}/status", user, {"status": failed})
        _try(say, f"{one}/status", user, {"status": {"certificate": certificate}})
    say.speaker.send("DELETE", one)


_PARTS = ("approval", "status")
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def _role(say: Conversation, name: str, rules: list[dict[str, Any]]) -> None:
    body = {"metadata": {"name": name}, "rules": rules}
    say.speaker.send("POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles", body)


def _try(say: Conversation, path: str, user: str, change: dict[str, Any]) -> None:
    say.say("PATCH", f"{path}?dryRun=All", change, MERGE, Impersonate_User=user)
