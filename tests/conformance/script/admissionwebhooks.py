"""What webhooks in the system space are asked about requests there, and what their answers come to."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from kube.authentication.pki import make_authority, make_server_certificate
from tests.conformance.conversation import Conversation
from tests.conformance.script.admissionpolicies import API, CASE, settle
from tests.conformance.script.media import MERGE

_CONFIG_MAPS: Final = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}
_KEPT: Final = ("uid", "name", "namespace", "operation", "dryRun", "kind", "requestKind", "resource", "subResource")

Body = dict[str, Any]
Say = Callable[[Body], Body]


def _patch(*operations: Body) -> Body:
    patch = base64.b64encode(json.dumps(operations).encode()).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def _echoed(request: Body) -> Body:
    """What is asked, in the words of a refusal."""
    seen = {name: request.get(name) for name in _KEPT if name != "uid"}
    seen["objects"] = [request.get(name) is not None for name in ("object", "oldObject")]
    seen["user"] = request["userInfo"]["username"] != ""
    seen["options"] = request.get("options")
    return {"allowed": False, "status": {"message": json.dumps(seen, sort_keys=True)}}


_LABEL: Final = {"op": "add", "path": "/metadata/labels/mutated", "value": "yes"}


def _counted(request: Body) -> Body:
    """One more each time it is asked."""
    count = int(request["object"].get("data", {}).get("count", "0")) + 1
    return _patch({"op": "add", "path": "/data/count", "value": str(count)})


def _toggled(request: Body) -> Body:
    return _patch({"op": "add", "path": "/data/other", "value": request["object"]["data"].get("count", "")})


ANSWERS: Final[dict[str, Say]] = {
    "allows": lambda _: {"allowed": True},
    "warns": lambda _: {"allowed": True, "warnings": ["mind the gap"]},
    "refuses": lambda _: {"allowed": False},
    "reasons": lambda _: {"allowed": False, "status": {"reason": "Conflict", "code": 409}},
    "says": lambda _: {"allowed": False, "status": {"message": "not so", "code": 418, "reason": "Teapot"}},
    "succeeds": lambda _: {"allowed": False, "status": {"message": "well", "code": 200, "status": "Success"}},
    "echoes": _echoed,
    "labels": lambda _: _patch(_LABEL),
    "breaks": lambda _: _patch({"op": "remove", "path": "/data/none"}),
    "empties": lambda _: _patch(),
    "untyped": lambda _: {"allowed": True, "patch": _patch(_LABEL)["patch"]},
    "unpatched": lambda _: {"allowed": True, "patchType": "JSONPatch"},
    "counts": _counted,
    "counts-again": _counted,
    "toggles": _toggled,
    "stranger": lambda _: {"allowed": True, "uid": "another"},
}
VALIDATING: Final = (
    "allows",
    "warns",
    "refuses",
    "reasons",
    "says",
    "succeeds",
    "echoes",
    "stranger",
    "labels",
    "silent",
)
MUTATING: Final = ("warns", "refuses", "labels", "breaks", "empties", "untyped", "unpatched", "counts", "silent")


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        review = json.loads(self.rfile.read(length))
        case = self.path.strip("/").partition("?")[0]
        if case not in ANSWERS:
            self.send_error(500)
            return
        response = {"uid": review["request"]["uid"], **ANSWERS[case](review["request"])}
        answer = {"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing is told of it."""


@contextmanager
def reviewer() -> Iterator[tuple[str, str]]:
    """A server that answers as ``ANSWERS`` says: its URL, and what it is trusted by as webhooks have it."""
    now = datetime.now(UTC)
    authority = make_authority("reviewers", now=now)
    pair = make_server_certificate(authority, ["127.0.0.1"], now=now)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pair.pem")
        path.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", base64.b64encode(authority.certificate).decode()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def webhook(name: str, client: Mapping[str, Any], case: str = "", **further: Any) -> Body:
    """A webhook for ConfigMaps that are labelled with its case."""
    return {
        "name": f"{name}.example.org",
        "clientConfig": client,
        "rules": [_CONFIG_MAPS],
        "objectSelector": {"matchLabels": {CASE: case or name}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
        **further,
    }


def admissionwebhooks(say: Conversation) -> None:
    """Webhooks of both kinds, what they allow, refuse and change, and what comes of those that do not answer."""
    say.set_up()
    service = {"service": {"name": "nothing", "namespace": "default", "path": "/x"}}
    with reviewer() as (url, authority):

        def at(case: str) -> Body:
            return {"url": f"{url}/{case}", "caBundle": authority}

        own = {"matchConditions": [{"name": "asked", "expression": "object.data.a == 'bad'"}]}
        broken = {"matchConditions": [{"name": "asked", "expression": "object.data.none == 'bad'"}]}
        validating = [
            *(webhook(f"v-{case}", at(case)) for case in VALIDATING),
            webhook("v-open", at("silent"), failurePolicy="Ignore"),
            webhook("v-service", service),
            webhook("v-service-open", service, failurePolicy="Ignore"),
            webhook("v-effects", at("allows"), sideEffects="NoneOnDryRun"),
            webhook("v-conditions", at("refuses"), **own),
            webhook("v-conditions-broken", at("refuses"), **broken),
            webhook("v-conditions-open", at("refuses"), failurePolicy="Ignore", **broken),
        ]
        mutating = [
            *(webhook(f"m-{case}", at(case)) for case in MUTATING),
            webhook("m-open", at("silent"), failurePolicy="Ignore"),
            webhook("m-service", service),
            webhook("m-first", at("counts"), "m-again", reinvocationPolicy="IfNeeded"),
            webhook("m-second", at("toggles"), "m-again"),
        ]
        made = {"validatingwebhookconfigurations": validating, "mutatingwebhookconfigurations": mutating}
        for plural, webhooks in made.items():
            answer = say.speaker.send(
                "POST", f"{API}/{plural}", {"metadata": {"name": "eq-webhooks"}, "webhooks": webhooks}
            )
            assert answer.status == 201, answer.body
        try:
            _seen(say, "v-refuses")
            _seen(say, "m-refuses")
            cases = {each["objectSelector"]["matchLabels"][CASE] for webhooks in made.values() for each in webhooks}
            _asked(say, sorted(cases))
        finally:
            for plural in made:
                say.speaker.send("DELETE", f"{API}/{plural}/eq-webhooks")
        settle(say)
    _wrong(say)


def _asked(say: Conversation, cases: list[str]) -> None:
    maps = f"{say.core}/configmaps"
    for case in cases:
        # What is said of a port, or of the time that a question took, is each server's own.
        ask = say.refused if case.endswith(("silent", "breaks")) else say.say
        for value in ("good", "bad"):
            ask("POST", f"{maps}?dryRun=All&case={case}&value={value}", _map(case, value))
    for case in ("v-echoes", "m-labels"):
        name = f"eq-{case}"
        plain = _map(case, "kept")
        plain["metadata"] |= {"name": name, "labels": {}}
        say.speaker.send("POST", maps, plain)
        say.say("PATCH", f"{maps}/{name}", {"metadata": {"labels": {CASE: case}}}, MERGE)
        say.speaker.send("DELETE", f"{maps}/{name}")
    made = _map("v-echoes", "x")
    say.say("POST", f"{maps}?fieldManager=poster", made)


def _wrong(say: Conversation) -> None:
    """Configurations that are refused."""
    good = webhook("a", {"url": "https://127.0.0.1:1/x"})
    for change in (
        {"name": "short"},
        {"clientConfig": {}},
        {"clientConfig": {"url": "http://127.0.0.1/x"}},
        {"clientConfig": {"url": "https://127.0.0.1/x?a=b"}},
        {"clientConfig": {"url": "https://127.0.0.1/x", "service": {"name": "a", "namespace": "b"}}},
        {"clientConfig": {"service": {"name": "", "namespace": ""}}},
        {"sideEffects": "Some"},
        {"sideEffects": "Never"},
        {"admissionReviewVersions": []},
        {"admissionReviewVersions": ["v7"]},
        {"timeoutSeconds": 31},
        {"failurePolicy": "Maybe"},
        {"matchPolicy": "Maybe"},
        {"rules": [{**_CONFIG_MAPS, "operations": []}]},
        {"rules": [{**_CONFIG_MAPS, "operations": ["*", "CREATE"]}]},
        {"rules": [{**_CONFIG_MAPS, "apiGroups": ["*", "a"]}]},
        {"rules": [{**_CONFIG_MAPS, "resources": []}]},
        {"rules": [{**_CONFIG_MAPS, "scope": "Some"}]},
        {"matchConditions": [{"name": "a", "expression": "object."}]},
        {"matchConditions": [{"name": "", "expression": "true"}]},
        {"matchConditions": [{"name": "a", "expression": ""}]},
        {"namespaceSelector": {"matchLabels": {"a b": "c"}}},
    ):
        body = {"metadata": {"name": "eq-wrong"}, "webhooks": [{**good, **change}]}
        say.verdict("POST", f"{API}/validatingwebhookconfigurations?dryRun=All&wrong={min(change)}", body)
    twice = {"metadata": {"name": "eq-wrong"}, "webhooks": [good, good]}
    say.verdict("POST", f"{API}/validatingwebhookconfigurations?dryRun=All&twice", twice)
    again = {"metadata": {"name": "eq-wrong"}, "webhooks": [{**good, "reinvocationPolicy": "Maybe"}]}
    say.verdict("POST", f"{API}/mutatingwebhookconfigurations?dryRun=All&again", again)


def _seen(say: Conversation, case: str) -> None:
    """Wait until the server has seen the webhooks that were written before: it takes a moment to."""
    probe = _map(case, "probe")
    say.until(lambda: "denied" in str(say.speaker.send("POST", f"{say.core}/configmaps?dryRun=All", probe).body))


def _map(case: str, value: str) -> Body:
    return {"metadata": {"name": f"eq-{case}-{value}", "labels": {CASE: case}}, "data": {"a": value}}
