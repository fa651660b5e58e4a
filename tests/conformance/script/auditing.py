"""A story that the audit log tells, under a policy with each level, and what of two servers' logs is compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.script.podsecurity import pod
from tests.conformance.script.podstandards import maker
from tests.speaking import Speaker
from tests.story.product import eventually

AUDITED = "auditlog"
"""Under which name the real server's log is kept."""

POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitManagedFields": True,
    "omitStages": ["Panic"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/api*", "/openapi*", "/version"]},
        {"level": "None", "resources": [{"group": "", "resources": ["configmaps"], "resourceNames": ["quiet"]}]},
        {
            "level": "Metadata",
            "resources": [{"group": "", "resources": ["endpoints"]}],
            "omitStages": ["RequestReceived"],
        },
        {"level": "None", "users": ["admin"], "userGroups": ["nobodys"]},
        {"level": "None", "users": ["bob"]},
        {"level": "Metadata", "resources": [{"group": "", "resources": ["pods"]}], "namespaces": ["judged", "free"]},
        {"level": "Metadata", "resources": [{"group": "apps", "resources": ["deployments"]}], "namespaces": ["judged"]},
        {
            "level": "Request",
            "users": ["admin"],
            "userGroups": ["nobodys", "system:authenticated"],
            "verbs": ["patch", "update"],
            "namespaces": ["kube-public", "default"],
            "omitStages": ["ResponseStarted"],
        },
        {"level": "Metadata", "resources": [{"group": "", "resources": ["*/status"]}], "verbs": ["get"]},
        {"level": "RequestResponse", "namespaces": ["default"]},
        {"level": "Metadata", "resources": [{"group": "", "resources": ["tenants"]}]},
    ],
}
MAPS = "/api/v1/namespaces/default/configmaps"
AGENT = "story/1"
AUTHORIZED = "authorization.k8s.io/decision"
JUDGED = "pod-security.kubernetes.io/"
OTHERS = ("requestReceivedTimestamp", "stageTimestamp", "auditID", "authenticationMetadata")
"""Moments, identifiers, and which of the rights to impersonate has counted: they are tried in another order here."""


def audit_flags(folder: Path) -> tuple[str, str]:
    """What a server is told that writes such a log into this folder."""
    (folder / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    return f"--audit-policy-file={folder / 'policy.yaml'}", f"--audit-log-path={folder / 'audit.log'}"


def log_of(flags: tuple[str, str]) -> Path:
    return Path(flags[1].partition("=")[2])


def whole_lines(log: Path) -> list[str]:
    """Those that are written to their end: one may be read while it is written."""
    return log.read_text().rpartition("\n")[0].splitlines() if log.exists() else []


def events(log: Path, agent: str = AGENT) -> list[dict[str, Any]]:
    return [event for line in whole_lines(log) if (event := json.loads(line))["userAgent"].startswith(agent)]


def tell(speaker: Speaker) -> None:
    """A story with each level, each stage, a refusal and a stranger."""
    speaker = speaker.at(speaker.prefix, **{"User-Agent": AGENT})
    stranger = {"Impersonate_User": "bob"}
    typed = {"kind": "ConfigMap", "apiVersion": "v1"}
    speaker.send("POST", MAPS, {**typed, "metadata": {"name": "quiet"}})
    speaker.send("GET", f"{MAPS}/quiet")
    speaker.send("POST", MAPS, {**typed, "metadata": {"name": "told"}, "data": {"a": "b"}})
    speaker.send("PATCH", f"{MAPS}/told", {"data": {"a": "c"}}, "application/merge-patch+json")
    speaker.send("GET", f"{MAPS}/told")
    speaker.send("PUT", f"{MAPS}/told", {**typed, "metadata": {"name": "told"}, "data": {"a": "d"}})
    speaker.send("GET", "/api/v1/namespaces/default/pods/none/status")
    speaker.send("GET", "/api/v1/namespaces/kube-public/configmaps/none")
    speaker.send("GET", f"{MAPS}/none")
    speaker.send("GET", f"{MAPS}/told", **stranger)
    speaker.send("POST", MAPS, "{bad")
    speaker.send("GET", f"{MAPS}?watch=1&timeoutSeconds=1&resourceVersion=1&labelSelector=a%3Db")
    speaker.send("GET", "/api/v1/namespaces/default/endpoints/none")
    speaker.send("GET", "/version")
    _judge(speaker)
    speaker.send("DELETE", f"{MAPS}/told")
    speaker.send("DELETE", f"{MAPS}/quiet")
    speaker.send("GET", "/api/v1/namespaces/default/endpoints/last")


def _judge(speaker: Speaker) -> None:
    """What admission notes of pods: kept, forbidden, told of as a template; where no level asks for anything."""
    levels = {"enforce": "baseline", "enforce-version": "v1.25", "audit": "restricted"}
    for name, labels in (("judged", levels), ("free", {"enforce": "privileged", "enforce-version": "v1.20"})):
        given = {JUDGED + mode: value for mode, value in labels.items()}
        speaker.send("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": given}})
        account = {"metadata": {"name": "default"}}
        speaker.send("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
        for change in ({}, {"spec": {"hostPID": True}}, {"spec": {"securityContext": None}}):
            speaker.send("POST", f"/api/v1/namespaces/{name}/pods?dryRun=All", pod(change))
    body = maker("apps", "Deployment", pod({"spec": {"hostIPC": True}}))
    speaker.send("POST", "/apis/apps/v1/namespaces/judged/deployments?dryRun=All", body)


def story(log: Path, speaker: Speaker, *, least: int = 20) -> list[dict[str, Any]]:
    """What the log has of it once that is enough, without moments and what two servers call differently."""
    tell(speaker)
    eventually(lambda: len(events(log)) >= least)
    return [_bare(event) for event in sorted(events(log), key=lambda event: event["requestReceivedTimestamp"])]


def _bare(event: dict[str, Any]) -> dict[str, Any]:
    """Without moments and identifiers, the names of the caller, and what is known of the space."""
    bare = {name: value for name, value in event.items() if name not in OTHERS}
    bare["user"] = {} if not event["user"] else {"username": "somebody"}
    if "impersonatedUser" in bare:
        bare["impersonatedUser"] = bare["impersonatedUser"]["username"]
    told = (AUTHORIZED, JUDGED)
    bare["annotations"] = {name: said for name, said in event.get("annotations", {}).items() if name.startswith(told)}
    answer = bare.pop("responseObject", None)
    bare["answered"] = answer and [
        answer.get("kind"),
        answer.get("data"),
        sorted({*answer.get("metadata", {})} - {"selfLink", "tenant"}),
    ]
    for name in ("message", "details"):
        bare["responseStatus"] = {key: value for key, value in bare.get("responseStatus", {}).items() if key != name}
    return bare
