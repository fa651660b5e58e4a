"""What is asked of a server that an operator starts with a policy file, and without the plug-ins that can be switched off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from access.admission.choice import OPTIONAL
from tests.conformance.conversation import Conversation
from tests.conformance.script.kinds import example
from tests.conformance.script.media import MERGE
from tests.speaking import Answer

OFF = sorted(OPTIONAL - {"NodeRestriction"})
"""All that can be switched off, but for the one that asks only about nodes."""

_LINES: tuple[dict[str, Any], ...] = (
    {"user": "all"},
    {"user": "reader", "readonly": True},
    {"user": "pods", "resource": "pods"},
    {"user": "place", "namespace": "eq-place"},
    {"user": "both", "resource": "pods", "namespace": "eq-place"},
    {"group": "team"},
    {"user": "member", "group": "squad"},
    {"user": "x", "group": "*", "resource": "secrets", "namespace": "eq-stars"},
    {"user": "*", "group": "nobodys", "resource": "configmaps", "namespace": "eq-stars"},
    {"resource": "services", "namespace": "eq-stars"},
    {"user": "", "group": "", "resource": "endpoints", "namespace": "eq-stars", "readonly": True},
)
"""Lines of a policy file from before versions."""

_VERSIONED: tuple[dict[str, Any], ...] = (
    {"user": "new", "namespace": "*", "resource": "*", "apiGroup": "*"},
    {"user": "paths", "nonResourcePath": "/eq*"},
    {"user": "seen", "nonResourcePath": "*", "readonly": True},
    {"user": "apps", "namespace": "eq-place", "resource": "*", "apiGroup": "apps"},
    {"group": "*", "namespace": "eq-stars", "resource": "events", "readonly": True},
    {"user": "starred", "group": "*", "namespace": "eq-starred", "resource": "pods"},
    {"user": "*", "group": "squad", "namespace": "eq-starred", "resource": "services"},
)
_GROUPS: tuple[tuple[str, ...], ...] = ((), ("system:authenticated",), ("system:authenticated", "team", "squad"))
_ASKED: tuple[dict[str, Any], ...] = (
    *(
        {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": namespace}}
        for verb, resource, namespace in product(("get", "delete"), ("pods", "services"), ("", "eq-place"))
    ),
    *(
        {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": "eq-stars"}}
        for verb, resource in product(("list", "create"), ("secrets", "configmaps", "services", "endpoints", "events"))
    ),
    *(
        {"resourceAttributes": {"verb": "get", "resource": "pods", "subresource": part, "namespace": "eq-place"}}
        for part in ("log", "status", "exec")
    ),
    *(
        {"resourceAttributes": {"verb": "get", "resource": resource, "namespace": "eq-starred"}}
        for resource in ("pods", "services")
    ),
    {"resourceAttributes": {"verb": "get", "resource": "deployments", "group": "apps", "namespace": "eq-place"}},
    {"resourceAttributes": {"verb": "watch", "resource": "nodes"}},
    *({"nonResourceAttributes": {"verb": verb, "path": "/eq-path"}} for verb in ("get", "head", "post")),
    {"nonResourceAttributes": {"verb": "get", "path": "/other"}},
)


def flags(folder: Path) -> Iterator[str]:
    """What such a server is told, beside its modes of authorization; the files go into ``folder``."""
    file = folder / "policies.jsonl"
    versioned = ({"apiVersion": _VERSION, "kind": "Policy", "spec": spec} for spec in _VERSIONED)
    file.write_text("# lines of both times\n\n" + "\n".join(map(json.dumps, (*_LINES, *versioned))))
    yield f"--authorization-policy-file={file}"
    yield f"--disable-admission-plugins={','.join(OFF)}"


MODES = "--authorization-mode=Node,RBAC,ABAC"
_VERSION = "abac.authorization.kubernetes.io/v1beta1"


def policyfile(say: Conversation) -> None:
    """What lines of a policy file let each user do, with and without groups."""
    named = [line["user"] for line in (*_LINES, *_VERSIONED) if line.get("user", "*") not in ("*", "")]
    for user, groups in product((*named, "stranger"), _GROUPS):
        found = {}
        for asked in _ASKED:
            review = {"spec": {"user": user, "groups": groups, **asked}}
            answer = say.speaker.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
            found[" ".join(map(str, next(iter(asked.values())).values()))] = answer["status"]["allowed"]
        say.keep(f"{user} of {' '.join(groups)}", found)


def withoutplugins(say: Conversation) -> None:
    """What nobody looks at, and what nobody fills in, when the plug-in for it is off."""
    level = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
    say.speaker.send("POST", "/api/v1/namespaces", {"metadata": {"name": say.namespace, "labels": level}})
    most = {"type": "Container", "max": {"cpu": "1m"}, "default": {"memory": "1Gi"}}
    say.speaker.send("POST", f"{say.core}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [most]}})
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0", "count/configmaps": "0"}}}
    say.speaker.send("POST", f"{say.core}/resourcequotas", quota)
    counted = {"status": {"hard": quota["spec"]["hard"], "used": {"pods": "0", "count/configmaps": "0"}}}
    say.speaker.send("PATCH", f"{say.core}/resourcequotas/q/status", counted, MERGE)
    given = {"name": "eq-default", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
    storage = {"metadata": given, "provisioner": "example.org/p", "allowVolumeExpansion": False}
    say.speaker.send("POST", "/apis/storage.k8s.io/v1/storageclasses", storage)
    given = {"name": "eq-default", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}
    ingresses = {"metadata": given, "spec": {"controller": "example.org/c"}}
    say.speaker.send("POST", "/apis/networking.k8s.io/v1/ingressclasses", ingresses)
    privileged = {"name": "c", "image": "i", "securityContext": {"privileged": True}}
    large = {"resources": {"requests": {"cpu": "4"}}}
    for account in ("", "gone"):
        spec = {"containers": [{**privileged, **large}], **({"serviceAccountName": account} if account else {})}
        say.part(
            "POST", f"{say.core}/pods?dryRun=All&account={account}", {"metadata": {"name": "p"}, "spec": spec}, _pod
        )
    say.verdict("POST", f"{say.core}/configmaps?dryRun=All", {"metadata": {"name": "m"}})
    for kind, field, at in (
        ("PersistentVolumeClaim", "storageClassName", f"{say.core}/persistentvolumeclaims"),
        ("Ingress", "ingressClassName", f"/apis/networking.k8s.io/v1/namespaces/{say.namespace}/ingresses"),
    ):
        body = example(say, kind)
        body["spec"].pop(field, None)
        say.part("POST", f"{at}?dryRun=All", body, lambda answer, field=field: {field: answer["spec"].get(field)})
    for kind, where in (("StorageClass", "storage"), ("IngressClass", "networking")):
        say.speaker.send("DELETE", f"/apis/{where}.k8s.io/v1/{kind.lower()}es/eq-default")
    claims = f"{say.core}/persistentvolumeclaims"
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "eq-none", "volumeName": "v"}
    asked = {"metadata": {"name": "grown"}, "spec": {**claim, "resources": {"requests": {"storage": "1Gi"}}}}
    say.speaker.send("POST", claims, asked)
    say.speaker.send("PATCH", f"{claims}/grown/status", {"status": {"phase": "Bound"}}, MERGE)
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    say.verdict("PATCH", f"{claims}/grown?dryRun=All", larger, MERGE)


def _pod(answer: Answer) -> Any:
    if answer.status != 201:
        return answer.body
    spec = answer["spec"]
    filled = ("serviceAccountName", "serviceAccount", "automountServiceAccountToken", "volumes")
    return {"resources": spec["containers"][0]["resources"], **{name: spec.get(name) for name in filled}}
