"""A text of megabytes, in a body of few values, costs whoever answers no more than a moment (DOS-03)."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from kube.customresources.schemas import structural_schema
from kube.objects.fieldvalidation import MAX_PROBLEMS, Decoded, prune
from kube.objects.patches import json_patch
from kube.objects.poddefaults import pull_policy
from kube.requests import names
from kube.requests.decoding import HEAVY, PATH_MAX
from kube.requests.fielderrors import SHOWN_MAX, invalid, shown
from kube.requests.status import Cause, Invalid
from kube.validation.certificates import APISERVER_CLIENT, REQUEST_MAX, asks_for_masters, new_request_causes
from kube.validation.configuration import data_key, secret_causes
from kube.validation.embeddedvalues import embedded_values
from kube.validation.security import security_context_causes
from tests.effort import effort
from tests.kube.kinds import definitions

MOMENT: Final = 8
"""Pieces of work, see ``tests.effort``: some 40 ms."""

LENGTH: Final = 2_900_000
"""Characters: nearly as many as a body may have."""


def test_unknown_fields_far_down_are_named_by_the_beginning_of_their_path() -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"known": {"type": "string"}}}
    value: dict[str, Any] = {"known": "x", **{f"unknown-{number}": 1 for number in range(150)}}
    for _ in range(60):
        schema = {"type": "object", "additionalProperties": schema}
        value = {"k" * 45_000: value}
    root = structural_schema({"type": "object", "properties": {"spec": schema}}, definitions())
    found: list[Decoded] = []
    assert effort(lambda: found.append(prune({"other": 1, "spec": value}, root))) < MOMENT
    (decoded,) = found
    deep = f"spec.{'k' * PATH_MAX}"[:PATH_MAX]
    assert decoded.unknown == ("other", *[deep] * (MAX_PROBLEMS - 1))
    assert decoded.value["spec"].keys() == value.keys()
    assert "other" not in decoded.value


@pytest.mark.parametrize(
    "images",
    [["a-" * (LENGTH // 2) + "!"], ["a." * (LENGTH // 2) + "!"], ["a/" * (LENGTH // 2)], ["a-" * 500 + "!"] * 500],
    ids=["dashes", "dots", "slashes", "many"],
)
def test_what_is_too_long_for_an_image_is_pulled_once(images: list[str]) -> None:
    found: list[set[str]] = []
    assert effort(lambda: found.append(set(map(pull_policy, images)))) < MOMENT
    assert found == [{"IfNotPresent"}]


def test_the_longest_image_that_there_can_be_is_read_whole() -> None:
    host, path = ".".join(["h" * 63] * 4)[:253], "p" * 255
    assert pull_policy(f"{host}:65535/{path}:latest") == "Always"
    assert pull_policy(f"{host}:65535/{path}:{'t' * 128}@sha256:{'0' * 64}") == "IfNotPresent"
    assert pull_policy(f"{host}:65535/{path}@sha256:{'0' * 64}") == "IfNotPresent"
    assert pull_policy(f"{host}:65535/{path}p") == "IfNotPresent"


@pytest.mark.parametrize(
    "path", ["/a" * (LENGTH // 2), "/" * LENGTH, "x" + "/0" * (LENGTH // 2)], ids=["a", "none", "0"]
)
@pytest.mark.parametrize(
    ("verb", "field"),
    [
        *((verb, "path") for verb in ("add", "remove", "replace", "test", "move", "copy")),
        ("move", "from"),
        ("copy", "from"),
    ],
)
def test_a_place_deeper_than_anything_is_not_there(path: str, verb: str, field: str) -> None:
    """As a place that is not there: 422."""
    operation = {"op": verb, "path": "/a", "from": "/a", "value": 1, field: path}

    def ask() -> None:
        with pytest.raises(Invalid):
            json_patch({"a": {"a": 1}}, [operation])

    assert effort(ask) < MOMENT


def test_the_deepest_place_of_an_object_is_found() -> None:
    document: dict[str, Any] = {}
    for _ in range(120):
        document = {"a": document}
    place = "/a" * 120
    result = json_patch(
        document, [{"op": "add", "path": f"{place}/b", "value": 1}, {"op": "test", "path": f"{place}/b", "value": 1}]
    )
    for _ in range(120):
        result = result["a"]
    assert result == {"b": 1}


def test_a_request_for_a_certificate_is_no_longer_than_any_needs() -> None:
    def asked(attributes: int) -> dict[str, Any]:
        subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters")] * attributes)
        request = x509.CertificateSigningRequestBuilder().subject_name(subject)
        signed = request.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
        text = base64.b64encode(signed.public_bytes(serialization.Encoding.PEM)).decode()
        return {"spec": {"request": text, "signerName": APISERVER_CLIENT, "usages": ["client auth"]}}

    long, usual = asked(30_000), asked(1)
    assert effort(lambda: asks_for_masters(long)) < MOMENT
    (cause,) = new_request_causes(long)
    assert (cause.field, cause.message) == ("spec.request", f"Too long: may not be more than {REQUEST_MAX} bytes")
    assert asks_for_masters(usual)
    assert new_request_causes(usual) == []


def _secret(plain: bytes) -> dict[str, Any]:
    data = {".dockerconfigjson": base64.b64encode(plain).decode()}
    return {"kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "data": data}


def test_json_in_a_secret_is_weighed_as_a_body_is() -> None:
    """What weighs so much is looked at beside the loop: ``tests.gateway.test_heavy_process``."""
    many, usual = b'{"auths":[' + b"[]," * 300_000 + b"[]]}", b'{"auths":{"r.example.com":{"auth":"eDp5"}}}'
    found: list[int] = []
    assert effort(lambda: found.append(embedded_values(_secret(many)))) < MOMENT
    assert found[0] > HEAVY > embedded_values(_secret(usual))
    assert embedded_values({**_secret(many), "type": "Opaque"}) == 0
    assert [secret_causes(_secret(each)) for each in (many, usual)] == [[], []]
    (cause,) = secret_causes(_secret(many + b"}"))
    assert "JSON" in cause.message


@pytest.mark.parametrize("letter", ["a", '"', "é", "\n", "\U0001f600", "\\"])
def test_a_text_is_shown_by_its_beginning_and_nothing_else_of_it_is_written_out(letter: str) -> None:
    found: list[Cause] = []
    text = letter * LENGTH
    assert effort(lambda: found.extend(invalid("x", text, "detail") for _ in range(74))) < MOMENT
    whole = json.dumps(text, ensure_ascii=False)
    assert {cause.message for cause in found} == {f"Invalid value: {whole[:SHOWN_MAX]}...: detail"}


@given(st.text(min_size=SHOWN_MAX - 4, max_size=SHOWN_MAX + 4))
def test_what_is_shown_of_a_text_is_what_is_shown_of_it_as_json(text: str) -> None:
    whole = json.dumps(text, ensure_ascii=False)
    assert shown(text) == (whole if len(whole) <= SHOWN_MAX else f"{whole[:SHOWN_MAX]}...")


@pytest.mark.parametrize(
    "reasons",
    [names.label_value, names.qualified_name, names.dns_label, names.dns1035_label, names.dns_subdomain, data_key],
)
@pytest.mark.parametrize(
    "text", ["a" * LENGTH + "!", "a." * (LENGTH // 2), "-a" * (LENGTH // 2), "a/" + "a" * LENGTH + "!"]
)
def test_what_is_no_name_is_found_to_be_none_at_once(reasons: Callable[[str], list[str]], text: str) -> None:
    found: list[str] = []
    assert effort(lambda: found.extend(reasons(text))) < MOMENT
    assert found


@pytest.mark.parametrize(
    "user", ["a." * (LENGTH // 2) + "\\x", "a" * LENGTH + "\\x", "x\\" + "a" * LENGTH, ". " * (LENGTH // 2)]
)
def test_what_is_no_user_of_windows_is_found_to_be_none_at_once(user: str) -> None:
    found: list[Cause] = []
    options = {"windowsOptions": {"runAsUserName": user}}
    assert effort(lambda: found.extend(security_context_causes(options, "x", host_users=True))) < MOMENT
    assert any("length must" in cause.message for cause in found)


@given(st.text("aB1-_.!\n", max_size=8))
def test_a_name_is_one_by_the_pattern_that_its_refusal_shows(text: str) -> None:
    for reasons in (names.label_value, names.dns_label, names.dns1035_label, names.qualified_name):
        (shape,) = [each for each in reasons("!") if "regex" in each]
        pattern = shape.rpartition("regex used for validation is '")[2].removesuffix("')")
        assert (reasons(text) == []) == (re.fullmatch(pattern, text) is not None), (reasons, text)


def test_json_in_an_annotation_of_a_scaler_is_weighed_as_a_body_is() -> None:
    metrics = {"autoscaling.alpha.kubernetes.io/metrics": f"[{','.join(['{}'] * 80_000)}]"}
    scaler = {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"annotations": metrics}}
    found: list[int] = []
    assert effort(lambda: found.append(embedded_values(scaler))) < MOMENT
    assert found[0] > HEAVY
    assert embedded_values({**scaler, "apiVersion": "autoscaling/v2"}) == 0
    assert embedded_values({**scaler, "metadata": {}}) == 0
