"""What is refused by its size before it is looked at, and what work costs its tenant."""

from __future__ import annotations

import orjson
import pytest

from access.requestlimits import TenantThrottle
from gateway.http.bodies import limit_of
from kube.authentication.identity import Principal
from kube.requests.decoding import MAX_VALUES, decode_json
from kube.requests.ratelimits import Limits
from kube.requests.requestinfo import parse, resolve
from kube.requests.status import RequestEntityTooLarge, TooManyRequests
from kube.requests.tokenbuckets import TokenBucket
from tests.gateway.overloading import NAMESPACED, REVIEW
from tests.gateway.test_overload import OWNER


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"1," * MAX_VALUES + b"1]",
        b"[" + b"[]," * MAX_VALUES + b"1]",
        b"{" + b'"a":1,' * MAX_VALUES + b'"b":1}',
        b'{"a\\\\":[' + b'"\\"",' * MAX_VALUES + b"1]}",
    ],
)
def test_json_of_too_many_values_is_not_decoded(body: bytes) -> None:
    with pytest.raises(RequestEntityTooLarge):
        decode_json(body)


@pytest.mark.parametrize("text", ["," * 1_000_000, '["a",\\' * 200_000, "\\" * 500_000, '"' * 1_000_000])
def test_a_text_may_hold_whatever_it_likes(text: str) -> None:
    assert decode_json(orjson.dumps({"a": text})) == {"a": text}


def test_questions_and_options_are_short() -> None:
    """Whoever needs no right to ask is not listened to for long."""
    for method, path in (("POST", REVIEW), ("DELETE", f"{NAMESPACED}/pods/a")):
        assert limit_of(resolve(parse(method, path.encode()), "acme")) == 64 * 1024
    assert limit_of(resolve(parse("POST", b"/api/v1/namespaces/a/pods"), "acme")) > 1024 * 1024


def test_work_is_charged_by_what_it_costs() -> None:
    """Who owes waits until it is paid; nobody else does."""
    throttle = TenantThrottle(Limits(write=TokenBucket(10, 20), person_share=100), lambda *_: 0)
    info = resolve(parse("POST", b"/api/v1/namespaces/a/pods"), "acme")
    throttle.take(OWNER, info, 0)
    throttle.charge(OWNER, info, 30, 0)
    with pytest.raises(TooManyRequests):
        throttle.charge(OWNER, info, 1, 0.5)
    with pytest.raises(TooManyRequests):
        throttle.take(OWNER, info, 0.5)
    throttle.take(Principal(name="x", tenant="other", authenticator="test"), info, 0.5)
    throttle.take(OWNER, info, 1.3)
    throttle.charge(OWNER, info, 10_000, 1.3 + 2)
    throttle.take(OWNER, info, 1.3 + 2 + 20 / 10 + 0.2)
