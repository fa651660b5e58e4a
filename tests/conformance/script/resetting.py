"""Every kind with a part of its own: who owns what is written through the object, and through each of its parts."""

from __future__ import annotations

from typing import Any, Final

from kube.kinds.builtins import BUILTINS, OWN
from kube.kinds.resources import Resource, Version
from kube.objects.patches import deep_copy
from kube.objects.subresources import WHOLE
from tests.conformance.conversation import Conversation
from tests.conformance.script.certificates import BOB, asked
from tests.conformance.script.definitions import definition
from tests.conformance.script.kinds import OBJECTS, home, let_go, placed
from tests.conformance.script.media import APPLY, MERGE

_DEVICE: Final = {"name": "d", "exactly": {"deviceClassName": "example.org"}}
_FURTHER: Final[list[dict[str, Any]]] = [
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "x"},
        "spec": {"devices": {"requests": [_DEVICE]}},
    },
    {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.owners.example.org"},
        "spec": {
            "group": "owners.example.org",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": "s", "namespace": "default"},
        },
        "system": True,
    },
    {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "eq-x"},
        "spec": {"cidrs": ["192.0.2.0/24"]},
        "system": True,
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "eq-x"},
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": ["x"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["y"]}
                ]
            },
            "validations": [{"expression": "true"}],
        },
        "system": True,
    },
]
"""Objects of kinds that the table has not."""

_CONDITION: Final = {"type": "Example", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
_CONDITIONS: Final = {"conditions": [{**_CONDITION, "reason": "R", "message": "m"}]}
_BALANCER: Final = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
STATUS: Final[dict[str, dict[str, Any]]] = {
    "APIService": _CONDITIONS,
    "CertificateSigningRequest": {"certificate": ""},
    "CronJob": {"lastScheduleTime": "2026-01-01T00:00:00Z"},
    "CustomResourceDefinition": _CONDITIONS,
    "DaemonSet": dict.fromkeys(
        ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"), 1
    ),
    "Deployment": {"observedGeneration": 1, "replicas": 1},
    "HorizontalPodAutoscaler": {"currentReplicas": 1, "desiredReplicas": 2},
    "Ingress": _BALANCER,
    "Job": {"active": 1},
    "Namespace": {"phase": "Active"} | _CONDITIONS,
    "Node": {"conditions": [{"type": "Ready", "status": "True"}]},
    "PersistentVolume": {"phase": "Available", "message": "m"},
    "PersistentVolumeClaim": {"phase": "Pending"},
    "Pod": {"phase": "Running", "message": "m"},
    "PodDisruptionBudget": dict.fromkeys(
        ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods", "observedGeneration"), 1
    ),
    "ReplicaSet": {"replicas": 1},
    "ReplicationController": {"replicas": 1},
    "ResourceClaim": {},
    "ResourceQuota": {},
    "Service": _BALANCER,
    "ServiceCIDR": _CONDITIONS,
    "StatefulSet": {"replicas": 1},
    "ValidatingAdmissionPolicy": {"observedGeneration": 1},
    "VolumeAttachment": {"attached": True},
}
"""A status of each kind that its validation takes."""


def resetting(say: Conversation) -> None:
    """The kinds that every space serves."""
    say.set_up()
    for body in examples(system=False):
        _owned(say, body)


def resettingsystem(say: Conversation) -> None:
    """The kinds of the system space."""
    say.set_up()
    for body in examples(system=True):
        _owned(say, body)


def kinds() -> list[tuple[Resource, Version]]:
    """Every version of a built-in kind that has a part whose body is the object: each has to be asked about."""
    return [
        (resource, version)
        for resource in BUILTINS
        for version in resource.versions
        if resource not in OWN
        and resource.kind != "Tenant"
        and any(part.name in WHOLE for part in version.subresources)
    ]


def examples(*, system: bool) -> list[dict[str, Any]]:
    """An object of each, of those that only the system space serves, or of the others."""
    known = [
        *_FURTHER,
        *OBJECTS,
        definition("Owner") | {"system": True},
        {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "system": True} | asked(BOB),
    ]
    found = []
    for resource, version in kinds():
        named = f"{resource.group}/{version.name}" if resource.group else version.name
        body = next(each for each in known if (each["apiVersion"], each["kind"]) == (named, resource.kind))
        if bool(body.get("system")) == system:
            found.append(body)
    return found


def _owned(say: Conversation, body: dict[str, Any]) -> None:
    """The owners after a write of everything in every way."""
    made = placed(say, body)
    metadata = made["metadata"] = {**made["metadata"], "name": f"{made['metadata']['name']}", "labels": {"own": "yes"}}
    if made["kind"] == "Namespace":
        metadata["name"] = "eq-owned"
    at = home(say, made)
    one = f"{at}/{metadata['name']}"
    resource, version = next(
        (resource, version)
        for resource, version in kinds()
        if resource.kind == made["kind"] and made["apiVersion"].rpartition("/")[2] == version.name
    )
    everything = {**made, "status": STATUS[made["kind"]]}
    say.owners("PATCH", f"{one}?fieldManager=applier", everything, APPLY)
    live = say.speaker.send("GET", one).body
    put = deep_copy({**live, "status": everything["status"]})
    put["metadata"]["labels"]["put"] = "yes"
    say.owners("PUT", f"{one}?fieldManager=putter", put)
    merged = {"metadata": {"annotations": {"merged": "yes"}}, "status": everything["status"]}
    say.owners("PATCH", f"{one}?fieldManager=merger", merged, MERGE)
    for part in (part.name for part in version.subresources if part.name in WHOLE):
        through = {**everything, "metadata": {**metadata, "labels": {"own": "yes", "through": part}}}
        through["metadata"]["annotations"] = {"through": part}
        if part != "finalize":
            say.owners("PATCH", f"{one}/{part}?fieldManager=part&force=true", through, APPLY)
            say.owners("PATCH", f"{one}/{part}?fieldManager=merger", merged, MERGE)
        live = say.speaker.send("GET", one).body
        put = deep_copy({**live, "status": {**(live.get("status") or {}), **everything["status"]}})
        put["metadata"].setdefault("labels", {})["put"] = part
        say.owners("PUT", f"{one}/{part}?fieldManager=putter", put)
    say.speaker.send("DELETE", f"{one}?gracePeriodSeconds=0")
    let_go(say, one)
    if made["kind"] not in ("APIService", "CustomResourceDefinition"):  # they are named after what they are about
        say.owners("POST", f"{at}?fieldManager=poster&dryRun=All", {**everything, "metadata": {"name": "posted"}})
