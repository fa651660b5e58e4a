"""What kubectl commands ask of a server (AZ11)."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube.kinds.builtins import TENANT_BUILTINS
from kube.kinds.kubectl import Inquiry, UnknownCommand, inquiry_of

NAMESPACED = "pods configmaps deployments.apps jobs.batch"


def said(command: str) -> tuple[str, str, str | None, str]:
    """Verb, what, namespace and name."""
    asked = inquiry_of(command, TENANT_BUILTINS)
    what = asked.resource.qualified_name if asked.resource else asked.path
    return asked.verb, f"{what}/{asked.subresource}" if asked.subresource else what, asked.namespace, asked.name


@pytest.mark.parametrize(
    ("command", "verb", "what", "namespace", "name"),
    [
        ("kubectl get pods", "list", "pods", None, ""),
        ("$ KUBECONFIG=~/a kubectl -n team get po web -o yaml", "get", "pods", "team", "web"),
        ("kubectl get deploy/web --namespace=team", "get", "deployments.apps", "team", "web"),
        ("kubectl get deployments.v1.apps -A", "list", "deployments.apps", "", ""),
        ("k get svc,pods -w", "watch", "services", None, ""),
        ("kubectl get namespaces -n team", "list", "namespaces", "", ""),
        ("kubectl get --raw /healthz", "get", "/healthz", "", ""),
        ("kubectl describe secret db -nteam", "get", "secrets", "team", "db"),
        ("kubectl delete pod -l app=web web-1", "delete", "pods", None, "web-1"),
        ("kubectl create deployment web --image nginx", "create", "deployments.apps", None, ""),
        ("kubectl create token robot", "create", "serviceaccounts/token", None, "robot"),
        ("kubectl create quota small --hard pods=1", "create", "resourcequotas", None, ""),
        ("kubectl scale deployment/web --replicas 3", "patch", "deployments.apps/scale", None, "web"),
        ("kubectl rollout restart deployment web", "patch", "deployments.apps", None, "web"),
        ("kubectl rollout status deploy/web", "get", "deployments.apps", None, "web"),
        ("kubectl set image deployment/web web=nginx:2", "patch", "deployments.apps", None, "web"),
        ("kubectl label pods web tier=front", "patch", "pods", None, "web"),
        ("kubectl exec -it web -n team -- rm -n other -rf /", "create", "pods/exec", "team", "web"),
        ("kubectl exec deploy/web -- sh", "create", "pods/exec", None, ""),
        ("kubectl logs -f web -c app", "get", "pods/log", None, "web"),
        ("kubectl port-forward pod/web 8080:80", "create", "pods/portforward", None, "web"),
        ("kubectl run web --image=nginx", "create", "pods", None, ""),
        ("kubectl auth can-i create pods --subresource=exec", "create", "pods/exec", None, ""),
        ("kubectl auth can-i get secrets/db -n team", "get", "secrets", "team", "db"),
        ("kubectl auth can-i get /metrics", "get", "/metrics", "", ""),
    ],
)  # fmt: skip
def test_a_command_is_the_request_that_it_needs_a_right_for(
    command: str, verb: str, what: str, namespace: str | None, name: str
) -> None:
    assert said(command) == (verb, what, namespace, name)


def test_whoever_a_command_acts_as_is_asked_about() -> None:
    asked = inquiry_of("kubectl get pods --as jane --as-group=devs --as-group ops", TENANT_BUILTINS)
    assert (asked.user, asked.groups) == ("jane", ("devs", "ops"))


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("", "begins with kubectl"),
        ("helm install", "begins with kubectl"),
        ("kubectl", "nothing to do"),
        ("kubectl get 'pods", "quotation mark"),
        ("kubectl get unicorns", "no resource “unicorns”"),
        ("kubectl get nodes", "no resource “nodes”"),
        ("kubectl apply -f web.yaml", "choose the action"),
        ("kubectl delete -f web.yaml", "choose the action"),
        ("kubectl config view", "asks no right"),
        ("kubectl get", "names no resource"),
        ("kubectl auth can-i get", "followed by"),
    ],
)
def test_what_cannot_be_told_is_refused_with_what_to_do(command: str, says: str) -> None:
    """Nodes are no resource of a tenant's space."""
    with pytest.raises(UnknownCommand, match=says):
        inquiry_of(command, TENANT_BUILTINS)


WORDS = st.sampled_from(
    ["get", "pods", "web", "deploy/web", "-n", "team", "-A", "--as", "jane", "-w", "create", "delete", "auth", "can-i", "--",
     "-f", "x.yaml", "--raw", "/x", "exec", "logs", "cp", "a:b", "scale", "rollout", "set", "token", "secret", "=", "-",
     "--=", "-nx", "--namespace="]
)  # fmt: skip


@given(st.one_of(st.text(max_size=80), st.lists(WORDS, max_size=9).map(lambda words: shlex.join(["kubectl", *words]))))
@example("kubectl -n")
@example("kubectl get pods -")
def test_any_text_is_an_inquiry_or_refused(text: str) -> None:
    try:
        asked = inquiry_of(text, TENANT_BUILTINS)
    except UnknownCommand as refused:
        assert str(refused)
    else:
        assert isinstance(asked, Inquiry)
        assert asked.verb
        assert asked.resource is None or not asked.path


@pytest.mark.parametrize(
    ("command", "sent", "patch"),
    [
        ("""kubectl patch deploy web -p '{"spec": {"replicas": 9}}'""", {"spec": {"replicas": 9}}, "strategic"),
        ("""kubectl patch deploy/web --type=json --patch '[{"op": "remove"}]'""", [{"op": "remove"}], "json"),
        ("kubectl scale deploy/web --replicas=7", {"spec": {"replicas": 7}}, "merge"),
        (
            "kubectl label pods web tier=front old- a=b=c",
            {"metadata": {"labels": {"tier": "front", "old": None, "a": "b=c"}}},
            "merge",
        ),
        ("kubectl annotate pod/web note='two words'", {"metadata": {"annotations": {"note": "two words"}}}, "merge"),
    ],
)
def test_a_command_that_says_what_it_sends_is_taken_at_its_word(command: str, sent: object, patch: str) -> None:
    asked = inquiry_of(command, TENANT_BUILTINS)
    assert (json.loads(asked.sent), asked.patch) == (sent, patch)


@pytest.mark.parametrize("command", ["kubectl patch pod web", "kubectl scale deploy/web", "kubectl edit pod web"])
def test_a_command_that_does_not_say_it_sends_nothing_that_is_known(command: str) -> None:
    assert inquiry_of(command, TENANT_BUILTINS).sent == ""
