"""Both audit logs tell of the same request under the same ID: the cluster's, and ours, which knows the person (GW4, GW13).

``python -m bench door`` plays it with ten thousand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPSConnection
from itertools import islice
from threading import local
from typing import Any

import pytest

from audit.models import ApiRequest
from tenants.models import Role, Tier
from tenants.services import cluster_register
from tests.gateway.callers import Answer, Caller, answered, config_map
from tests.gateway.placed.conftest import Door
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)

REQUESTS = int(os.environ.get("AUDITED_REQUESTS", "300"))
SIDE_BY_SIDE = 8
FORGED = {"Audit-ID": "00000000-0000-4000-8000-000000000000"}
"""What a client says itself counts for nothing."""
MERGE = {"Content-Type": "application/merge-patch+json"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}


@dataclass(frozen=True)
class Asked:
    """One request, what both logs are to say of it, and the statuses that it may come to."""

    person: str
    verb: str
    method: str
    path: str
    statuses: tuple[int, ...]
    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    reaches: bool = True
    """Whether a cluster hears of it."""

    @property
    def namespace(self) -> str:
        """Empty for all."""
        parts = self.path.split("/")
        return parts[4] if parts[3] == "namespaces" else ""


@dataclass(frozen=True)
class Told:
    """What a log says: the person (of the cluster's, the namespace's account), the verb, the path, the status."""

    who: str
    verb: str
    path: str
    status: int


def mixed(places: list[str]) -> Iterator[Asked]:
    """Reads, writes, watches and refusals of two people in all their namespaces, without end; each object by its own name."""
    number = 0
    while True:
        number += 1
        where = places[number % len(places)]
        maps = f"/api/v1/namespaces/{where}/configmaps"
        one = f"{maps}/m{number}"
        yield Asked("olga", "get", "GET", one, (404,))
        yield Asked("olga", "create", "POST", maps, (201,), config_map(f"of-{number}"), tuple(FORGED.items()))
        yield Asked("olga", "update", "PUT", f"{maps}/of-one", (200, 409), config_map("of-one"))
        yield Asked("olga", "patch", "PATCH", f"{maps}/of-all", (200, 409), {"data": {"b": "2"}}, tuple(MERGE.items()))
        yield Asked("vera", "list", "GET", f"{maps}?limit=2", (200,), None, tuple(TABLE.items()))
        yield Asked("vera", "get", "GET", f"{maps}/of-all", (200,), None, tuple(FORGED.items()))
        yield Asked("vera", "watch", "GET", f"{maps}?watch=true&resourceVersion=1&timeoutSeconds=1", (200, 410))
        yield Asked("vera", "create", "POST", maps, (403,), config_map("not-hers"), (), reaches=False)
        yield Asked("olga", "create", "POST", f"{maps}?dryRun=All", (201,), config_map(f"dry-{number}"))
        yield Asked("olga", "deletecollection", "DELETE", f"{maps}?labelSelector=none", (200,))
        yield Asked("olga", "delete", "DELETE", one, (404,))
        yield Asked("olga", "list", "GET", f"/api/v1/namespaces/{where}/pods", (200,))
        yield Asked("vera", "list", "GET", "/api/v1/configmaps?limit=2", (200,), None, tuple(FORGED.items()))
        yield Asked("olga", "list", "GET", "/api/v1/secrets", (200,), None, tuple(TABLE.items()))
        yield Asked("vera", "watch", "GET", "/api/v1/pods?watch=true&timeoutSeconds=1", (200,))


class Wire:
    """The connections of those who ask: one a thread and person, kept."""

    def __init__(self, people: dict[str, Caller]) -> None:
        self._people, self._own = people, local()

    def send(self, asked: Asked) -> tuple[str, Asked, int]:
        """The audit ID of the answer, what was asked, and the status."""
        caller = self._people[asked.person]
        lines = self._own.__dict__
        line = lines.get(asked.person) or HTTPSConnection(caller.host, context=caller.context, timeout=300)
        lines[asked.person] = line
        sent = {"Content-Type": "application/json", **dict(asked.headers)}
        tried: list[int] = []

        def ask() -> Answer:
            line.request(asked.method, asked.path, asked.body and json.dumps(asked.body), sent)
            response = line.getresponse()
            tried.append(response.status)
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, headers, response.read())

        answer = answered(ask)
        # What was made by a try whose answer did not tell is there for the next one.
        made = (409,) if asked.verb == "create" and 504 in tried else ()
        assert answer.status in (*asked.statuses, *made), (asked, tried, answer.raw)
        return answer.headers["audit-id"], asked, answer.status


def theirs(door: Door) -> dict[str, dict[str, list[Told]]]:
    """What the clusters' log says, by audit ID and namespace; the last line may not be whole yet."""
    lines, _, _ = (door.cluster.real.folder / "audit.log").read_text().rpartition("\n")
    found: dict[str, dict[str, list[Told]]] = {}
    for entry in map(json.loads, lines.splitlines()):
        if entry["stage"] == "ResponseComplete":
            account, status = entry["user"]["username"], entry["responseStatus"]["code"]
            told = Told(account, entry["verb"], entry["requestURI"], status)
            namespace = entry.get("objectRef", {}).get("namespace", "")
            found.setdefault(entry["auditID"], {}).setdefault(namespace, []).append(told)
    return found


def ours() -> dict[str, Told]:
    """What our log says, by audit ID."""
    rows = ApiRequest.objects.values_list("request_id", "actor", "verb", "path", "code")
    return {identity: Told(actor, verb, path, code) for identity, actor, verb, path, code in rows}


def has_all(told: Mapping[str, Collection[str]], wanted: Mapping[str, Collection[str]]) -> bool:
    """Whether a log tells of all these requests, and of each in all these namespaces."""
    return all(set(places) <= set(told.get(identity, ())) for identity, places in wanted.items())


def test_every_request_is_in_both_logs_under_one_id(door: Door, door_kubeconfig: str) -> None:
    """Whose it was says ours alone; what was refused at the door is in no log of the clusters'.

    What was asked of all namespaces is in the log of every cluster, once a namespace at least, under the one ID.
    """
    Tier.objects.update(workspaces_per_user=9, quota={"count/configmaps": str(REQUESTS)})
    cluster_register(actor=OPERATOR, name="second", kubeconfig=door_kubeconfig)
    people = {"olga": door.person("olga", Role.OWNER), "vera": door.person("vera", Role.VIEWER)}
    places = [door.place(people["olga"], f"{door.name}-{letter}") for letter in "ab"]
    places.append(door.place(people["olga"], f"{door.name}-c", on="second"))
    for where in places:
        for name in ("of-one", "of-all"):
            assert people["olga"].post(f"/api/v1/namespaces/{where}/configmaps", config_map(name)).status == 201
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        sent = list(pool.map(Wire(people).send, islice(mixed(places), REQUESTS)))
    asked = {identity: (request, status) for identity, request, status in sent}
    assert len(asked) == REQUESTS
    assert not FORGED.values() & asked.keys()
    reached = {
        identity: [request.namespace] if request.namespace else places
        for identity, (request, _) in asked.items()
        if request.reaches
    }
    told = door.until(lambda: found if asked.keys() <= (found := ours()).keys() else None)
    heard = door.until(lambda: found if has_all(found := theirs(door), reached) else None)
    for identity, (request, status) in asked.items():
        person = f"{request.person}@{door.name}.test"
        path = request.path.partition("?")[0].replace("/api/v1/", f"/api/v1/tenants/{door.name}/")
        assert told[identity] == Told(person, request.verb, path, status)
        if not request.reaches:
            assert identity not in heard
            continue
        assert heard[identity].keys() == set(reached[identity])
        accounts = {"olga": ("sa-tenant-edit", "sa-tenant-view"), "vera": ("sa-tenant-view",)}[request.person]
        for namespace, entries in heard[identity].items():
            assert {each.who for each in entries} <= {f"system:serviceaccount:{namespace}:{name}" for name in accounts}
            if request.namespace:
                (entry,) = entries
                assert entry == Told(entry.who, request.verb, request.path, status)
            else:
                # Page by page, and a watch begins with what is there.
                assert {each.verb for each in entries} <= {"list", request.verb}
                one = request.path.partition("?")[0].replace("/api/v1/", f"/api/v1/namespaces/{namespace}/")
                assert {each.path.partition("?")[0] for each in entries} == {one}
    print(f"\n  {REQUESTS:,} requests, {len(reached):,} of them at a cluster: all in both logs under one ID")
