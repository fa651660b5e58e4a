"""The OpenAPI documents over HTTP: what is asked for, what the client has already, and what a definition costs (TS10, TS15)."""

from __future__ import annotations

import pytest

from tests.gateway.conftest import Caller

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def definition(kind: str, words: str) -> dict:
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "description": words}}}
    return {
        "metadata": {"name": f"{plural}.openapi.example.com"},
        "spec": {
            "group": "openapi.example.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.mark.parametrize("path", ["/openapi/v2", "/openapi/v3/apis/apps/v1"])
def test_who_has_a_document_is_not_sent_it_again(alice: Caller, path: str) -> None:
    tag = alice.get(path).headers["etag"]
    for same in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        answer = alice.get(path, headers={"If-None-Match": same})
        assert (answer.status, answer.raw, answer.headers["etag"]) == (304, b"", tag)
    other = alice.get(path, headers={"If-None-Match": '"x"'})
    assert (other.status, other.headers["etag"], other.headers["vary"]) == (200, tag, "Accept")
    assert alice.get(path, headers={"If-Match": '"x"'}).status == 412
    assert alice.get(path, headers={"If-Match": f"W/{tag}"}).status == 412
    assert alice.get(path, headers={"If-Match": tag}).status == 200


def test_a_document_is_kept_for_good_under_its_hash_alone(alice: Caller) -> None:
    url = alice.get("/openapi/v3").body["paths"]["apis/apps/v1"]["serverRelativeURL"]
    kept = alice.get(url)
    assert kept.headers["cache-control"] == "private, immutable, max-age=31536000"
    assert kept.headers["etag"].strip('"') == url.partition("hash=")[2]
    elsewhere = alice.get("/openapi/v3/apis/apps/v1?hash=0")
    assert (elsewhere.status, elsewhere.headers["location"]) == (301, f"?{url.partition('?')[2]}")
    assert alice.get("/openapi/v3/apis/apps/v1").headers["cache-control"] == "no-cache, private"


@pytest.mark.parametrize(
    ("path", "accept", "media"),
    [
        ("/openapi/v2", PROTOBUF, PROTOBUF.replace("@", ".")),
        ("/openapi/v2", "*/*", "application/json"),
        ("/openapi/v2", f"application/json;q=0.5,{PROTOBUF}", PROTOBUF.replace("@", ".")),
        ("/openapi/v2", f"text/html, {PROTOBUF}", PROTOBUF.replace("@", ".")),
        ("/openapi/v2", "text/html", None),
        ("/openapi/v3/api/v1", "application/yaml", None),
        ("/openapi/v3/api/v1", "application/json", "application/json"),
    ],
)
def test_a_document_comes_in_the_first_form_that_the_client_takes(
    alice: Caller, path: str, accept: str, media: str | None
) -> None:
    answer = alice.get(path, headers={"Accept": accept})
    assert (answer.status, answer.headers.get("content-type") or None) == ((200, media) if media else (406, None))


@pytest.mark.parametrize(
    "path", ["/openapi/v2/", "/openapi/v2/x", "/openapi/v3/", "/openapi/v3/apis/none/v1", "/openapi/v3/apis/apps/v1/"]
)
def test_no_other_path_has_one(alice: Caller, path: str) -> None:
    assert alice.get(path).status == 404


def test_a_changed_definition_is_another_document_in_its_own_group_alone(alice: Caller) -> None:
    def hashes() -> dict[str, str]:
        found = alice.get("/openapi/v3").body["paths"].items()
        return {path: item["serverRelativeURL"] for path, item in found}

    assert alice.post(CRDS, definition("Sheep", "First words.")).status == 201
    before, tag = hashes(), alice.get("/openapi/v2").headers["etag"]
    url = f"{CRDS}/sheeps.openapi.example.com"
    changed = definition("Sheep", "Other words.") | {"metadata": alice.get(url).body["metadata"]}
    assert alice.put(url, changed).status == 200
    after = hashes()
    assert {path for path in after if after[path] != before[path]} == {"apis/openapi.example.com/v1"}
    renewed = alice.get("/openapi/v2", headers={"If-None-Match": tag})
    assert renewed.status == 200
    assert b"Other words." in renewed.raw
    assert alice.delete(url).status == 200
