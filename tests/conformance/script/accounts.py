"""What pods get from their service account, and what it keeps them from."""

from __future__ import annotations

from typing import Any

import jwt

from tests.conformance.conversation import Conversation
from tests.conformance.script.media import MERGE, STRATEGIC
from tests.speaking import Answer

_LIMITED = {"kubernetes.io/enforce-mountable-secrets": "true"}


def accounts(say: Conversation) -> None:
    """Secrets for pulling images, secrets that may be used, accounts that are not there."""
    say.set_up()
    at, pods = f"{say.core}/serviceaccounts", f"{say.core}/pods"
    for name, marks in (("free", {}), ("limited", _LIMITED)):
        body = {
            "metadata": {"name": name, "annotations": marks},
            "secrets": [{"name": "mine"}],
            "imagePullSecrets": [{"name": "pull"}, {"name": "more"}],
        }
        say.speaker.send("POST", at, body)
    for account, change in (
        ("", {}),
        ("free", {}),
        ("limited", {}),
        ("gone", {}),
        ("free", {"imagePullSecrets": [{"name": "own"}]}),
        ("limited", {"imagePullSecrets": [{"name": "more"}, {"name": "own"}]}),
        ("free", {"volumes": [_volume("other")]}),
        ("limited", {"volumes": [_volume("mine")]}),
        ("limited", {"volumes": [_volume("other")]}),
        ("limited", {"containers": [_container(env=[_variable("mine")])]}),
        ("limited", {"containers": [_container(env=[_variable("other")])]}),
        ("limited", {"containers": [_container(envFrom=[{"secretRef": {"name": "other"}}])]}),
        ("limited", {"initContainers": [_container("i", env=[_variable("other")])]}),
        ("limited", {"initContainers": [_container("i", envFrom=[{"secretRef": {"name": "other"}}])]}),
    ):
        say.say("POST", f"{pods}?dryRun=All", _pod("p", account, change))
    say.speaker.send("POST", pods, _pod("p", "limited", {}))
    for secret in ("mine", "other"):
        added = {"spec": {"ephemeralContainers": [_container("e", env=[_variable(secret)])]}}
        say.verdict("PATCH", f"{pods}/p/ephemeralcontainers?dryRun=All", added, STRATEGIC)
    say.speaker.send("POST", at, {"metadata": {"name": "bare"}})
    say.until(lambda: say.speaker.send("POST", pods, _pod("r", "bare", {})).status in (201, 409))
    for account in ("bare", ""):
        # Neither priority nor preemption policy, which were settled at its creation, stand in the manifest.
        say.verdict("PUT", f"{pods}/r?dryRun=All", _pod("r", account, {}))
    for value in ("false", "1", "yes"):
        annotated = {"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": value}}}
        say.speaker.send("PATCH", f"{at}/limited", annotated, MERGE)
        say.until(lambda value=value: _taken(say, pods).status == (403 if value == "1" else 201))  # type: ignore[misc]
        say.verdict("POST", f"{pods}?dryRun=All", _pod("q", "limited", {"volumes": [_volume("other")]}))


def _taken(say: Conversation, pods: str) -> Answer:
    """What becomes of a pod with a secret that is not the account's: servers may take a moment to see the account."""
    return say.speaker.send("POST", f"{pods}?dryRun=All", _pod("q", "limited", {"volumes": [_volume("other")]}))


def _pod(name: str, account: str, change: dict[str, Any]) -> dict[str, Any]:
    spec = {"containers": [_container()], "automountServiceAccountToken": False, **change}
    return {"metadata": {"name": name}, "spec": {**spec, **({"serviceAccountName": account} if account else {})}}


def _container(name: str = "c", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", **more}


def _variable(secret: str) -> dict[str, Any]:
    return {"name": "V", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}


def _volume(secret: str) -> dict[str, Any]:
    return {"name": "v", "secret": {"secretName": secret}}


def boundtokens(say: Conversation) -> None:
    """What a token says of what it is bound to, and what its holder is known by."""
    say.set_up()
    accounts, pods, nodes = f"{say.core}/serviceaccounts", f"{say.core}/pods", "/api/v1/nodes"
    reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
    say.speaker.send("POST", accounts, {"metadata": {"name": "bound"}, "automountServiceAccountToken": False})
    say.speaker.send("POST", nodes, {"metadata": {"name": "eq-bound"}})
    say.speaker.send("POST", f"{say.core}/secrets", {"metadata": {"name": "anchor"}})
    for name, spec in (
        ("here", {"nodeName": "eq-bound"}),
        ("nowhere", {"nodeName": "eq-missing"}),
        ("waiting", {}),
        ("other", {"serviceAccountName": "default", "automountServiceAccountToken": False}),
    ):
        body = {"serviceAccountName": "bound", "containers": [{"name": "c", "image": "i"}], **spec}
        say.speaker.send("POST", pods, {"metadata": {"name": name}, "spec": body})
    for kind, name in (
        ("Pod", "here"),
        ("Pod", "nowhere"),
        ("Pod", "waiting"),
        ("Pod", "other"),
        ("Secret", "anchor"),
        ("Secret", "x" * 200),
        ("Node", "eq-bound"),
        ("Node", "eq-missing"),
    ):
        reference = {"apiVersion": "v1", "kind": kind, "name": name}
        asked = {"spec": {"boundObjectRef": reference}}
        path = f"{accounts}/bound/token?{kind}={name[:8]}"
        answer = say.speaker.send("POST", path, asked)
        token = str(answer.body.get("status", {}).get("token", "")) if answer.status == 201 else ""
        if token:
            bound = jwt.decode(token, options={"verify_signature": False})["kubernetes.io"]
            say.keep(f"claims of {path}", {key: bound[key] for key in ("pod", "secret", "node") if key in bound})
            say.part("POST", f"{reviews}?{kind}={name}", {"spec": {"token": token}}, _known_by)
        else:
            say.say("POST", path, asked)
        say.say("POST", f"{path}&uid=x", {"spec": {"boundObjectRef": {**reference, "uid": "x"}}})
    reference = {"apiVersion": "v1", "kind": "Node", "name": "eq-bound"}
    kept = say.speaker.send("POST", f"{accounts}/bound/token", {"spec": {"boundObjectRef": reference}})["status"][
        "token"
    ]
    say.speaker.send("DELETE", f"{nodes}/eq-bound")
    say.speaker.send("POST", nodes, {"metadata": {"name": "eq-bound"}})
    say.until(lambda: not say.speaker.send("POST", reviews, {"spec": {"token": kept}})["status"].get("authenticated"))
    say.speaker.send("DELETE", f"{nodes}/eq-bound")


def _known_by(answer: Answer) -> dict[str, Any]:
    """What a review tells of a pod or a node."""
    extra = answer.body["status"]["user"].get("extra") or {}
    return {key: value for key, value in extra.items() if key.startswith("authentication.kubernetes.io/")}
