"""The script that is put to both servers, by sections. Every section has a namespace of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.conformance.conversation import Conversation
from tests.conformance.script.accounts import accounts, boundtokens
from tests.conformance.script.admissionpolicies import admissionpolicies
from tests.conformance.script.admissionwebhooks import admissionwebhooks
from tests.conformance.script.becoming import becoming, becomingsystem
from tests.conformance.script.certificates import certificates, signers
from tests.conformance.script.controllers import aggregation, contents, kubesystem, nodes
from tests.conformance.script.customobjects import customobjects, earlier, formats
from tests.conformance.script.definitions import definitions, deprecations, redefined
from tests.conformance.script.endings import deletes, namespaces, updates
from tests.conformance.script.evictions import evictions
from tests.conformance.script.flagged import policyfile, withoutplugins
from tests.conformance.script.kinds import OBJECTS, invalid_section, kind_section
from tests.conformance.script.meanings import meanings
from tests.conformance.script.metadata import called, calledsystem, selected, selectedsystem
from tests.conformance.script.mutatingpolicies import mutatingpolicies
from tests.conformance.script.parts import connecting, counts, devices, limits, parts, resizes, reviews
from tests.conformance.script.plugins import binding, plugins
from tests.conformance.script.podsecurity import podsecurity
from tests.conformance.script.podstandards import podstandards
from tests.conformance.script.policy import namespacedpolicy, policy
from tests.conformance.script.policytypes import policytypes
from tests.conformance.script.reads import amounts, layout, lists, networks, paths, quantities, watching
from tests.conformance.script.resetting import resetting, resettingsystem
from tests.conformance.script.taken import podparts, taken
from tests.conformance.script.unwise import unwise
from tests.conformance.script.writes import applying, bodies, fields, patches, revisions

HERE = Path(__file__).parents[1]
INVALID: dict[str, list[dict[str, Any]]] = yaml.safe_load((HERE / "invalid.yaml").read_text())
JUDGED: dict[str, list[dict[str, Any]]] = yaml.safe_load((HERE / "judged.yaml").read_text())


def sections() -> Iterator[tuple[str, Callable[[Conversation], None], bool]]:
    """Every section: its name, what it says, and whether only the system space serves what it is about."""
    for number, body in enumerate(OBJECTS):
        group = body["apiVersion"].split("/")[0].split(".")[0]
        name = (
            f"kind-{body['kind'].lower()}-{group}-{number}"
            if group != "v1"
            else f"kind-{body['kind'].lower()}-{number}"
        )
        yield name, kind_section(body), body.get("system", False)
    for kind, changes in INVALID.items():
        yield f"invalid-{kind.lower()}", invalid_section(kind, changes), False
    for kind, changes in JUDGED.items():
        yield f"judged-{kind.lower()}", invalid_section(kind, changes), False
    for section in (
        bodies,
        fields,
        patches,
        applying,
        lists,
        deletes,
        evictions,
        parts,
        namespaces,
        paths,
        reviews,
        limits,
        watching,
        updates,
        connecting,
        policy,
        definitions,
        redefined,
        customobjects,
        formats,
        earlier,
        revisions,
        layout,
        deprecations,
        quantities,
        amounts,
        networks,
        counts,
        devices,
        resizes,
        podsecurity,
        podstandards,
        podparts,
        taken,
        accounts,
        aggregation,
        contents,
        kubesystem,
        meanings,
        unwise,
        resetting,
        plugins,
        becoming,
        called,
        selected,
    ):
        yield section.__name__, section, False
    yield certificates.__name__, certificates, True
    yield signers.__name__, signers, True
    yield binding.__name__, binding, True
    yield boundtokens.__name__, boundtokens, True
    yield admissionpolicies.__name__, admissionpolicies, True
    yield mutatingpolicies.__name__, mutatingpolicies, True
    yield policytypes.__name__, policytypes, True
    yield admissionwebhooks.__name__, admissionwebhooks, True
    yield nodes.__name__, nodes, True
    yield namespacedpolicy.__name__, namespacedpolicy, True
    yield resettingsystem.__name__, resettingsystem, True
    yield becomingsystem.__name__, becomingsystem, True
    yield calledsystem.__name__, calledsystem, True
    yield selectedsystem.__name__, selectedsystem, True


def flagged() -> Iterator[tuple[str, Callable[[Conversation], None], bool]]:
    """The sections for a server that is started with flags of an operator's, likewise."""
    yield policyfile.__name__, policyfile, True
    yield withoutplugins.__name__, withoutplugins, False
