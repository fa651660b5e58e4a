"""Texts from outside that are read before anybody is known: tokens, webhook files, claims."""

import base64
import json

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kube.authentication.idtokens import TIME_MAX, audiences, parse_unverified, time_reason
from kube.authentication.inspection import inspect
from kube.authentication.userinfo import outside_extra
from kube.authentication.webhookfiles import WebhookFileError, checked_url, parse

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=10,
)


@given(st.text(max_size=120) | st.text("eyJ.-_=", max_size=60))
def test_any_text_is_a_token_or_not(text):
    """JWT-20."""
    said = parse_unverified(text)
    assert said is None or isinstance(said.claims, dict)


def encoded(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


nested = st.builds(
    lambda depth, opened, closed: b'{"alg":' + opened * depth + b"1" + closed * depth + b"}",
    st.integers(0, 3000),
    *[st.just(b"["), st.just(b"]")],
) | st.builds(lambda depth: b'{"alg":' * depth + b"1" + b"}" * depth, st.integers(1, 2000))
long_numbers = st.integers(1, 9000).map(lambda digits: b'{"alg":' + b"9" * digits + b"}")


@given(nested | long_numbers, nested | long_numbers)
@example(b'{"alg":' + b"[" * 1000 + b"]" * 1000 + b"}", b"{}")
@example(b"{}", b'{"a":' + b"[" * 1000 + b"]" * 1000 + b"}")
def test_no_header_and_no_claim_is_too_deep_or_too_long_to_be_refused(header: bytes, claims: bytes) -> None:
    """P9: before anybody is known; what readers differ about is believed by none."""
    text = f"{encoded(header)}.{encoded(claims)}.x"
    said = parse_unverified(text)
    assert said is None or isinstance(said.claims, dict)
    inspect(text, now=0.0)


@given(st.dictionaries(st.sampled_from(["exp", "nbf", "iat"]), json_values), st.floats(0, 1e12), st.floats(0, 60))
def test_a_token_is_in_time_only_with_whole_seconds(claims, now, leeway):
    """JWT-07, JWT-08."""
    if time_reason(claims, now=now, leeway=leeway) is None:
        assert type(claims["exp"]) is int
        assert now < claims["exp"] + leeway < TIME_MAX + leeway
        assert all(type(value) is int for value in claims.values() if value is not None)


@given(json_values)
def test_audiences_are_text(value):
    """JWT: aud is a string or a list of strings, or there is none."""
    assert all(isinstance(audience, str) for audience in audiences({"aud": value}))


@given(st.binary(max_size=80) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_webhook_file_is_read_or_refused(data):
    """Nothing but the documented error."""
    with pytest.raises(WebhookFileError):
        parse(data)


@settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "clusters": json_values | st.just([{"name": "c", "cluster": {"server": "https://a"}}]),
            "contexts": json_values | st.just([{"name": "x", "context": {"cluster": "c", "user": "u"}}]),
            "users": json_values | st.lists(st.fixed_dictionaries({"name": st.just("u"), "user": json_values})),
            "current-context": json_values | st.just("x"),
        }
    )
)
def test_any_kubeconfig_is_read_or_refused(config):
    """Nothing but the documented error; what is read is reached safely."""
    try:
        file = parse(yaml.safe_dump(config).encode())
    except WebhookFileError:
        return
    assert file.url == "https://a"


@example("https://@0")
@given(st.text("htps:/@[]127.0localx#? \n", max_size=40) | st.text(max_size=20).map("https://".__add__))
def test_any_url_is_secure_or_refused(url):
    """OIDC-08, API-31."""
    try:
        assert checked_url(url) == url
    except WebhookFileError:
        return
    assert url.startswith(("https://", "http://127.0.0.1", "http://localhost", "http://[::1]"))
    assert "@" not in url.partition("//")[2].partition("/")[0]


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_any_extra_is_read_or_refused(extra):
    """KEY-11: never one of our own keys."""
    try:
        kept = outside_extra(extra)
    except ValueError:
        return
    assert set(kept) <= set(extra)
    assert not any(key.startswith("multi-tenancy.k8s.io/") for key in kept)
