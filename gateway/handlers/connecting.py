"""Logs, commands, ports and proxies of pods, services and nodes: nothing runs here, and the answers say so.

A pod that no node runs has an empty log and no host, as on a cluster whose scheduler has not come to it yet.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from access.admission.base import CONNECT, Sent
from gateway.handlers.reading import find
from gateway.handlers.writing import attributes_of
from gateway.http.messages import Request, Response
from gateway.process.runtime import Runtime
from gateway.resources import objects
from gateway.resources.kinds import Kind
from gateway.resources.writeoptions import flag, not_a_number
from kube.requests.fielderrors import invalid, invalid_object
from kube.requests.status import BadRequest, Cause, ServiceUnavailable

SUBRESOURCES: Final = frozenset({"log", "exec", "attach", "portforward", "proxy"})
_NOTHING_RUNS: Final = "this server runs no containers: there is nothing to connect to"
_DEFAULT: Final = "kubectl.kubernetes.io/default-container"
_FLAGS: Final = frozenset({"stdin", "stdout", "stderr", "tty"})
_TEXTS: Final = frozenset({"container", "path"})
_PORT_DIGITS: Final = 5
_LEAST: Final = (("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1))


async def connect(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """Answer as a server does that knows the object and reaches nothing behind it. Raises ``StatusError``."""
    info = request.info
    # Before the name of what is proxied to may stand a scheme, behind it a port.
    parts = info.name.split(":") if info.subresource == "proxy" else [info.name]
    named = parts[1] if len(parts) == 3 else parts[0]
    if info.subresource == "log":
        _check_log_options(request)
    else:
        await _admit(runtime, request, kind)
    stored = await find(runtime, objects.key_of(info, kind.resource, named), kind)
    if info.resource == "services":
        port = parts[-1] if len(parts) > 1 else ""
        ports = orjson.loads(stored.data)["spec"].get("ports", ())
        if port and not any(port in (each.get("name"), str(each.get("port"))) for each in ports):
            raise ServiceUnavailable(f'no service port {port} found for service "{named}"')
        raise ServiceUnavailable(f'no endpoints available for service "{named}"')
    if info.resource != "pods":
        raise BadRequest(_NOTHING_RUNS)
    pod: dict[str, Any] = orjson.loads(stored.data)
    placed = bool(pod["spec"].get("nodeName"))
    if info.subresource == "log":
        _check_container(request, named, pod)
        if not placed:
            return Response(204, b"")
    elif info.subresource == "proxy":
        raise BadRequest(_NOTHING_RUNS if pod.get("status", {}).get("podIP") else "address not allowed")
    elif info.subresource in ("exec", "attach"):
        _check_container(request, named, pod)
    raise BadRequest(_NOTHING_RUNS if placed else f"pod {named} does not have a host assigned")


async def _admit(runtime: Runtime, request: Request, kind: Kind) -> None:
    """Ask who judges connections; what they judge is the connection's options."""
    part = kind.part(request.info.subresource)
    options: dict[str, Any] = {"kind": part.name, "apiVersion": part.api_version}
    for name, values in request.parameters.items():
        if name in _FLAGS:
            options[name] = flag(values[0])
        elif name in _TEXTS:
            options[name] = values[0]
        elif name == "command":
            options[name] = list(values)
        elif name == "ports":
            options[name] = [_port(value) for value in values]
    if request.info.subresource == "proxy" and request.info.rest:
        options["path"] = f"/{request.info.rest}"
    attributes = attributes_of(request, kind, CONNECT, request.info.name, None, None)
    attributes.sent = Sent(
        operation=CONNECT,
        group=part.resource.group,
        version=part.version,
        kind=part.name,
        object=options,
    )
    await runtime.part_admission.admit(attributes)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _PORT_DIGITS):
        raise not_a_number(text)
    return int(text)


def _check_log_options(request: Request) -> None:
    causes: list[Cause] = []
    for field, least in _LEAST:
        text = request.query.get(field)
        if not text:
            continue
        try:
            number = int(text) if len(text) < 20 else None
        except ValueError:
            number = None
        if number is None or not text.removeprefix("-").isascii():
            raise not_a_number(text)
        if number < least:
            words = "must be greater than 0" if least else "must be greater than or equal to 0"
            causes.append(invalid(field, number, words))
    if causes:
        raise invalid_object("", "PodLogOptions", request.info.name, causes)


def _check_container(request: Request, name: str, pod: dict[str, Any]) -> None:
    spec = pod["spec"]
    held = {
        field: [container["name"] for container in spec.get(field, ())]
        for field in ("initContainers", "containers", "ephemeralContainers")
    }
    wanted = request.query.get("container", "")
    if wanted and not any(wanted in names for names in held.values()):
        raise BadRequest(f"container {wanted[:128]} is not valid for pod {name}")
    if not wanted and len(held["containers"]) > 1 and not pod["metadata"].get("annotations", {}).get(_DEFAULT):
        known = " ".join(name for names in held.values() for name in names)
        raise BadRequest(f"a container name must be specified for pod {name}, choose one of: [{known}]")
