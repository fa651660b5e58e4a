"""Which requests an audit policy tells of, and how much (GW13)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.redaction import REDACTED, clean_object
from kube.auditing.events import BODY_MAX, Body, Event
from kube.auditing.policy import Audited, Level, PolicyError, Stage, read_policy
from kube.authentication.identity import Principal
from tests.kube.requestlines import ask

OPERATOR = Principal(
    name="admin", tenant="system", groups=("system:masters", "system:authenticated"), authenticator="test"
)
NAMESAKE = Principal(name="admin", tenant="t1", groups=("system:masters", "system:authenticated"), authenticator="test")

POD = "/api/v1/namespaces/ns/pods/web"
MEDIA = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain", ""]
PODS = {"group": "", "resources": ["pods"]}


def policy(*rules: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules, **more}).encode()


def level(rule: dict[str, Any], path: str, method: str = "GET", caller: Principal | None = OPERATOR) -> Level:
    return read_policy(policy({"level": "Request", **rule})).decide(caller, ask(path, method)).level


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ({}, POD, True),
        ({}, "/version", True),
        ({"resources": [PODS]}, POD, True),
        ({"resources": [PODS]}, f"{POD}/log", False),
        ({"resources": [PODS]}, "/version", False),
        ({"resources": [{"group": "apps"}]}, POD, False),
        ({"resources": [{"group": "apps"}]}, "/apis/apps/v1/namespaces/ns/deployments/web/scale", True),
        ({"resources": [{"group": "", "resources": ["pods/log"]}]}, f"{POD}/log", True),
        ({"resources": [{"group": "", "resources": ["pods/log"]}]}, POD, False),
        ({"resources": [{"group": "", "resources": ["pods/*"]}]}, f"{POD}/log", True),
        ({"resources": [{"group": "", "resources": ["pods/*"]}]}, POD, True),
        ({"resources": [{"group": "", "resources": ["*/status"]}]}, f"{POD}/status", True),
        ({"resources": [{"group": "", "resources": ["*/status"]}]}, POD, False),
        ({"resources": [{"group": "", "resources": ["*"]}]}, f"{POD}/status", True),
        ({"resources": [{**PODS, "resourceNames": ["web"]}]}, POD, True),
        ({"resources": [{**PODS, "resourceNames": ["db"]}]}, POD, False),
        ({"resources": [{**PODS, "resourceNames": ["db"]}, PODS]}, POD, True),
        ({"namespaces": ["ns"]}, POD, True),
        ({"namespaces": ["other"]}, POD, False),
        ({"namespaces": [""]}, "/api/v1/nodes/n", True),
        ({"namespaces": ["ns"]}, "/version", False),
        ({"verbs": ["list"]}, "/api/v1/pods", True),
        ({"verbs": ["list"]}, POD, False),
        ({"nonResourceURLs": ["/healthz*"]}, "/healthz/ping", True),
        ({"nonResourceURLs": ["/healthz"]}, "/healthz/ping", False),
        ({"nonResourceURLs": ["*"]}, "/version", True),
        ({"nonResourceURLs": ["*"]}, POD, False),
        ({"users": ["admin"]}, POD, True),
        ({"users": ["bob"]}, POD, False),
        ({"userGroups": ["system:masters"]}, POD, True),
        ({"users": ["admin"], "userGroups": ["nobodys"]}, POD, False),
    ],
)
def test_a_rule_is_about_what_it_is_about_in_kubernetes(rule: dict[str, Any], path: str, *, matches: bool) -> None:
    assert level(rule, path) is (Level.REQUEST if matches else Level.NONE)


def test_nobody_goes_untold_of_by_an_operators_name() -> None:
    named = [{"users": ["admin"]}, {"userGroups": ["system:masters"]}]
    assert [level(rule, POD) for rule in named] == [Level.REQUEST] * 2
    assert [level(rule, POD, caller=NAMESAKE) for rule in named] == [Level.NONE] * 2
    assert [level(rule, POD, caller=None) for rule in named] == [Level.NONE] * 2
    assert level({"userGroups": ["system:authenticated"]}, POD, caller=NAMESAKE) is Level.REQUEST


def test_what_a_rule_leaves_out_is_its_own_or_the_policys() -> None:
    text = policy(
        {"level": "Metadata", "verbs": ["get"], "omitStages": ["ResponseStarted"], "omitManagedFields": False},
        {"level": "Metadata"},
        omitStages=["RequestReceived"],
        omitManagedFields=True,
    )
    read = read_policy(text)
    both = frozenset({Stage.REQUEST_RECEIVED, Stage.RESPONSE_STARTED})
    assert read.decide(OPERATOR, ask(POD)) == Audited(level=Level.METADATA, omitted=both)
    assert read.decide(OPERATOR, ask(POD, "DELETE")) == Audited(
        level=Level.METADATA, omitted=frozenset({Stage.REQUEST_RECEIVED}), omit_managed_fields=True
    )


_WORDS = st.sampled_from(
    ["", "pods", "pods/log", "pods/*", "*/log", "*", "ns", "get", "list", "admin", "/version", "/*"]
)
_LISTS = st.lists(_WORDS, max_size=2)
_ABOUT = st.one_of(
    st.fixed_dictionaries({}, optional={"namespaces": _LISTS, "verbs": _LISTS, "users": _LISTS}),
    st.fixed_dictionaries({"resources": st.lists(st.fixed_dictionaries({"group": st.just(""), "resources": _LISTS}))}),
    st.fixed_dictionaries({"nonResourceURLs": st.lists(st.sampled_from(["*", "/version", "/*"]))}),
)
_RULES = st.builds(
    lambda about, level: {**about, "level": level}, _ABOUT, st.sampled_from([each.value for each in Level])
)


@given(st.lists(_RULES, min_size=1, max_size=4), st.sampled_from([POD, f"{POD}/log", "/api/v1/pods", "/version"]))
def test_the_first_rule_that_matches_decides(rules: list[dict[str, Any]], path: str) -> None:
    info = ask(path)
    alone = [read_policy(policy({**rule, "level": "Metadata"})).decide(OPERATOR, info).level for rule in rules]
    first = next((rule["level"] for rule, found in zip(rules, alone, strict=True) if found is Level.METADATA), "None")
    assert read_policy(policy(*rules)).decide(OPERATOR, info).level is Level(first)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (policy(), "loaded illegal policy with 0 rules"),
        (policy({}), "rules[0].level: Required value"),
        (
            policy({"level": "All"}),
            'rules[0].level: Unsupported value: "All": supported values: "None", "Metadata", "Request", "RequestResponse"',
        ),
        (
            policy({"level": "None", "omitStages": ["Later"]}),
            'rules[0].omitStages[0]: Invalid value: "Later": allowed stages are '
            "RequestReceived,ResponseStarted,ResponseComplete,Panic",
        ),
        (
            policy({"level": "None", "nonResourceURLs": ["x", "/a*b"], "namespaces": ["ns"]}),
            "[rules[0].nonResourceURLs[0]: Invalid value: \"x\": non-resource URL rules must begin with a '/' character, "
            "rules[0].nonResourceURLs[1]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must be the final "
            'character of the rule, rules[0].nonResourceURLs: Invalid value: ["x","/a*b"]: rules cannot apply to both '
            "regular resources and non-resource URLs]",
        ),
        (
            policy({"level": "None", "resources": [{"resourceNames": ["x"]}]}),
            'rules[0].resources.resourceNames: Invalid value: ["x"]: using resourceNames requires at least one resource',
        ),
        (policy({"level": "None", "user": ["x"]}), 'strict decoding error: unknown field "rules[0].user"'),
        (policy({"level": "None", "users": "x"}), "failed decoding: rules[0].users must be a list of texts"),
        (b"kind: Policy", "failed decoding: the file must hold a Policy of audit.k8s.io/v1"),
        (b"a: [", "failed decoding: yaml: line 1: did not find expected node content"),
    ],
)
def test_what_is_wrong_is_said_in_kubernetes_words(text: bytes, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        read_policy(text)
    assert str(caught.value) == said


@given(
    st.binary(max_size=200) | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(repr).map(str.encode)
)
def test_any_file_is_a_policy_or_an_error(data: bytes) -> None:
    with pytest.raises(PolicyError):
        read_policy(data)


def event(path: str, sent: Any, *, method: str = "POST", media: str = "application/json", omit: bool = False) -> Any:
    data = sent if isinstance(sent, bytes) else json.dumps(sent).encode()
    told = Event(
        audited=Audited(level=Level.REQUEST_RESPONSE, omit_managed_fields=omit),
        stage=Stage.RESPONSE_COMPLETE,
        audit_id="a",
        uri=path,
        info=ask(path, method),
        received=1.5,
        time=2.0,
        caller=OPERATOR,
        status=201,
        sent=Body(data, media),
        answered=Body(data, media),
    )
    return told.as_object(clean_object)


def test_secrets_are_never_told_whatever_the_level() -> None:
    token = {"kind": "TokenReview", "spec": {"token": "abc"}}
    for path, body in (
        ("/api/v1/namespaces/ns/secrets", {"kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "c2VjcmV0"}}),
        ("/api/v1/namespaces/ns/serviceaccounts/x/token", {"kind": "TokenRequest", "status": {"token": "abc"}}),
        ("/apis/authentication.k8s.io/v1/tokenreviews", token),
        ("/api/v1/namespaces/ns/configmaps", token),
        ("/api/v1/namespaces/ns/configmaps", {"kind": "List", "items": [{"items": [token]}]}),
        ("/api/v1/namespaces/ns/configmaps", {"kind": "Table", "rows": [{"object": None}, {"object": token}]}),
        ("/api/v1/namespaces/ns/secrets/s/status", {"data": {"a": "c2VjcmV0"}}),
        ("/apis/authentication.k8s.io/v1/tokenreviews/x/y", {"spec": {"token": "abc"}}),
        ("/api/v1/namespaces/ns/secrets", {"kind": "Status", "message": "abc", "details": {"causes": ["abc"]}}),
    ):
        told = event(path, body)
        assert not {"requestObject", "responseObject"} & set(told), path
        assert "abc" not in json.dumps(told), path
    env = {"containers": [{"env": [{"name": "DB_PASSWORD", "value": "abc"}, {"name": "HOST", "value": "db"}]}]}
    told = event("/api/v1/namespaces/ns/pods", {"kind": "Pod", "metadata": {"name": "p"}, "spec": env})
    assert told["requestObject"]["spec"]["containers"][0]["env"] == [
        {"name": "DB_PASSWORD", "value": REDACTED},
        {"name": "HOST", "value": "db"},
    ]
    patch = [{"op": "add", "path": "/data/api-key", "value": "abc"}]
    told = event(f"{POD}", patch, method="PATCH", media="application/json-patch+json")
    assert told["requestObject"] == [{**patch[0], "value": REDACTED}]


def test_managed_fields_and_large_objects_are_left_out() -> None:
    one = {"metadata": {"name": "x", "managedFields": [{"manager": "m"}]}}
    told = event("/api/v1/namespaces/ns/pods", {**one, "items": [one], "rows": [{"object": one}]}, omit=True)
    assert "managedFields" not in json.dumps(told)
    told = event("/api/v1/namespaces/ns/pods", {"metadata": {"name": "x"}, "data": "x" * BODY_MAX})
    assert "requestObject" not in told
    assert told["annotations"]["audit.k8s.io/truncated"] == "true"


@given(st.binary(max_size=300) | st.binary(max_size=300).map(lambda data: b"k8s\x00" + data), st.sampled_from(MEDIA))
def test_an_event_is_made_of_any_body(data: bytes, media: str) -> None:
    told = event("/api/v1/namespaces/ns/pods", data, media=media)
    assert json.loads(json.dumps(told))["objectRef"]["resource"] == "pods"
