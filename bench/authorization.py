"""Decisions: in process from 10 to 10,000 tenants, beside pycasbin and cedarpy; by SubjectAccessReview over HTTPS.

One policy set a size, the same for everybody: ``tenants`` tenants with 20 bindings each and 1,000 cluster-wide bindings
of the system space. Requests come from random users of random tenants, one in ten for another tenant's space.
``python -m bench.authorization https`` measures over HTTPS alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import orjson

import bench.measuring.apps  # noqa: F401 - comes first

# isort: split
from access.authorization.build import build_authorization
from access.authorization.options import AuthorizationOptions
from bench.apiserver import REVIEW, Target, peer, served, tenanted
from bench.measuring.load import Figures, drive
from gateway.resources.kinds import Catalogs
from kube.authentication.identity import AUTHENTICATED, Principal
from kube.requests.requestinfo import RequestInfo
from store.types import Key, Listing, Range, Stored
from tests.story.product import Product

SIZES = (10, 100, 1_000, 10_000)
BINDINGS = 20
CLUSTER_WIDE = 1_000
QUESTIONS = 20_000
CLUSTER_WIDE_OVER_HTTPS = (0, 1_000, 10_000)
PROCESSES = 4
REVOCATIONS = 200
GROUP = "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
ROLES = ("view", "edit", "admin")
ASKED = (("get", "", "pods"), ("list", "", "configmaps"), ("create", "apps", "deployments"), ("delete", "", "secrets"))


@dataclass(frozen=True, slots=True)
class Question:
    """One request to decide about."""

    principal: Principal
    request: RequestInfo


class Memory:
    """A store that makes the objects of a space when it is asked for them."""

    def __init__(self, tenants: int) -> None:
        self._tenants = tenants

    async def get(self, key: Key, **_: Any) -> Stored | None:
        """Every tenant exists, without labels."""
        return Stored(key, 1, b'{"metadata": {}}')

    def peek(self, key: Key) -> Stored | None:  # noqa: ARG002
        """Nothing is known before it is asked for."""
        return None

    async def list(self, selection: Any, **_: Any) -> Listing:
        """The bindings of a space."""
        if not isinstance(selection, Range):
            return Listing((), 1)
        found: list[dict[str, Any]] = []
        if selection.resource == "rolebindings" and selection.space != "root":
            found = list(bindings_of())
        if selection.resource == "clusterrolebindings" and selection.space == "root":
            found = [binding(f"operator-{number}", "view", f"operator-{number}") for number in range(CLUSTER_WIDE)]
        key = Key(selection.space, GROUP, selection.resource, "", "x")
        return Listing([Stored(key, 1, orjson.dumps(body)) for body in found], 1)


def binding(name: str, role: str, user: str, namespace: str = "") -> dict[str, Any]:
    """A RoleBinding or ClusterRoleBinding."""
    return {
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "name": user}, {"kind": "Group", "name": f"group-of-{user}"}],
    }


def bindings_of() -> Iterator[dict[str, Any]]:
    """Twenty users in five namespaces."""
    for number in range(BINDINGS):
        yield binding(f"b{number}", ROLES[number % 3], f"user-{number}", f"ns-{number % 5}")


def questions(tenants: int, count: int = QUESTIONS) -> list[Question]:
    """Random ones, the same for each size."""
    chance = random.Random(7)
    found = []
    for _ in range(count):
        tenant, number = chance.randrange(tenants), chance.randrange(BINDINGS)
        target = tenant if chance.random() < 0.9 else chance.randrange(tenants)
        verb, group, resource = chance.choice(ASKED)
        principal = Principal(
            name=f"user-{number}",
            groups=("developers", f"team-{number % 4}", AUTHENTICATED),
            tenant=f"t{tenant}",
            authenticator="bench",
        )
        request = RequestInfo(
            method="GET",
            path="",
            cluster=f"root:t{target}",
            tenant=f"t{target}",
            verb=verb,
            is_resource=True,
            group=group,
            version="v1",
            resource=resource,
            namespace=f"ns-{number % 5}",
            name="x" if verb in ("get", "delete") else "",
        )
        found.append(Question(principal, request))
    return found


class Open:
    """Locks of which none is set: nothing is suspended or frozen."""

    tenants: frozenset[str] = frozenset()
    frozen_tenants: frozenset[str] = frozenset()

    def reason(self, _cluster: str, _namespace: str) -> str | None:
        """Nothing is closed."""
        return None

    def freeze(self, _cluster: str, _namespace: str, *, inside: bool = False) -> str | None:  # noqa: ARG002
        """Nothing is frozen."""
        return None


async def ours(tenants: int) -> list[bool]:
    """The whole chain of authorizers, from a compiled index a space."""
    options = AuthorizationOptions()
    authorization = build_authorization(options, Memory(tenants), locks=Open(), system_only=Catalogs().is_system_only)
    begun = time.perf_counter()
    # As many spaces in memory as there are tenants: the cache of a server would drop those out of use.
    authorization.policies.spaces_max = tenants + 1
    for number in range(tenants):
        await authorization.policies.policies_for(f"root:t{number}")
    built = time.perf_counter() - begun
    asked = questions(tenants)
    gc.collect()
    gc.freeze()
    chain, rbac = authorization.chain, authorization.rbac
    for label, decide in (("the whole chain", chain.authorize), ("RBAC alone", rbac.authorize)):
        for question in asked:  # what is asked for the first time is compiled then
            await decide(question.principal, question.request)
        at_home = next(question for question in asked if question.principal.tenant == question.request.tenant)
        if chain.decide(at_home.principal, at_home.request) is None:
            raise RuntimeError("requests at home are not decided the short way: what is measured is another one")
        times = []
        # The processor's time, for a decision waits for nothing: what else runs on the machine must not count.
        begun = time.thread_time()
        answers = [(await decide(question.principal, question.request)).allowed for question in asked]
        total = time.thread_time() - begun
        for question in asked:
            begun = time.perf_counter_ns()
            await decide(question.principal, question.request)
            times.append(time.perf_counter_ns() - begun)
        report(f"{label}, {tenants:,} tenants", len(asked) / total, times)
        if label == "the whole chain":
            allowed = answers
    print(f"    compiled in {built:.2f} s")
    gc.unfreeze()
    return allowed


def report(label: str, rate: float, nanoseconds: list[int]) -> None:
    """Decisions a second, and how long they take."""
    cuts = statistics.quantiles(nanoseconds, n=100)
    print(
        f"  {label:<36} {rate:>11,.0f}/s   mean {1e6 / rate:8.2f} us   p50 {cuts[49] / 1000:8.2f} us   "
        f"p99 {cuts[98] / 1000:8.2f} us",
        flush=True,
    )


def timed(label: str, asked: list[Question], decide: Callable[[Question], bool], expected: list[bool]) -> None:
    """A peer, on as many questions as fit into three seconds; its answers must be the same."""
    times = []
    end = time.perf_counter() + 3
    for question, answer in zip(asked, expected, strict=True):
        begun = time.perf_counter_ns()
        found = decide(question)
        times.append(time.perf_counter_ns() - begun)
        if found != answer:
            raise RuntimeError(f"{label} decides otherwise about {question}")
        if time.perf_counter() > end:
            break
    if len(times) > 1:
        report(label, len(times) * 1e9 / sum(times), times)


def permissions(role: str) -> Iterator[tuple[str, str, str]]:
    """What of the asked things a role allows."""
    from kube.authorization import bootstrappolicy
    from kube.authorization.rbac import Attributes

    rules = bootstrappolicy.INDEX.rules_of("ClusterRole", "", role) or ()
    for verb, group, resource in ASKED:
        if any(rule.allows(Attributes(verb, group, resource)) for rule in rules):
            yield verb, group, resource


def casbin(tenants: int, expected: list[bool]) -> None:
    """pycasbin, RBAC with domains: a domain is a tenant's namespace."""
    import logging

    import casbin as library

    logging.getLogger("casbin").setLevel(logging.ERROR)
    model = library.Model()
    model.load_model_from_text(
        "[request_definition]\nr = sub, dom, obj, act\n[policy_definition]\np = sub, obj, act\n"
        "[role_definition]\ng = _, _, _\n[policy_effect]\ne = some(where (p.eft == allow))\n"
        "[matchers]\nm = g(r.sub, p.sub, r.dom) && r.obj == p.obj && r.act == p.act\n"
    )
    enforcer = library.Enforcer(model)
    for role in ROLES:
        for verb, group, resource in permissions(role):
            enforcer.add_policy(role, f"{group}/{resource}", verb)
    for tenant in range(tenants):
        for number in range(BINDINGS):
            user, domain = f"t{tenant}/user-{number}", f"t{tenant}/ns-{number % 5}"
            enforcer.add_role_for_user_in_domain(user, ROLES[number % 3], domain)

    def decide(question: Question) -> bool:
        who, what = question.principal, question.request
        domain = f"{what.tenant}/{what.namespace}"
        return bool(enforcer.enforce(f"{who.tenant}/{who.name}", domain, f"{what.group}/{what.resource}", what.verb))

    timed(f"pycasbin, {tenants:,} tenants", questions(tenants), decide, expected)


def cedar(tenants: int, expected: list[bool]) -> None:
    """cedarpy, with the policies of the one tenant that is asked about and no others."""
    import cedarpy

    def policies(tenant: str) -> str:
        return "\n".join(
            f'permit(principal == User::"{tenant}/user-{number}", action in ['
            + ",".join(
                f'Action::"{verb} {group}/{resource}"' for verb, group, resource in permissions(ROLES[number % 3])
            )
            + f'], resource == Namespace::"{tenant}/ns-{number % 5}");'
            for number in range(BINDINGS)
        )

    texts = {f"t{number}": policies(f"t{number}") for number in range(tenants)}

    def decide(question: Question) -> bool:
        who, what = question.principal, question.request
        asked = {
            "principal": f'User::"{who.tenant}/{who.name}"',
            "action": f'Action::"{what.verb} {what.group}/{what.resource}"',
            "resource": f'Namespace::"{what.tenant}/{what.namespace}"',
            "context": {},
        }
        return bool(cedarpy.is_authorized(asked, texts[what.tenant], []).allowed)

    timed(f"cedarpy (one tenant's), {tenants:,} tenants", questions(tenants), decide, expected)


def over_https(target: Target, label: str) -> Figures:
    """SubjectAccessReviews, authenticated and audited."""
    figures = None
    for connections in (1, 32):
        figures = drive(
            target.url + REVIEWS,
            connections=connections,
            headers=target.headers,
            method="POST",
            body=json.dumps(REVIEW),
        )
        print(f"  {label:<36} c={connections:<3} {figures}", flush=True)
    if figures is None:
        raise RuntimeError("nothing was measured")
    return figures


def fill(target: Target, begin: int, end: int) -> None:
    """Cluster-wide bindings at the server itself, which answers for one space; eight at a time."""
    path = f"/apis/{GROUP}/v1/clusterrolebindings"

    def some(first: int) -> None:
        connection = target.connect()
        for number in range(first, end, 8):
            body = {
                "apiVersion": f"{GROUP}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"operator-{number}"},
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"},
                "subjects": [{"apiGroup": GROUP, "kind": "User", "name": f"operator-{number}"}],
            }
            target.call(connection, "POST", path, body)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(some, range(begin, begin + 8)))


def compare(target: Target) -> list[Figures]:
    """Reviews with more and more cluster-wide bindings in the space that is asked about."""
    found, there = [], 0
    for count in CLUSTER_WIDE_OVER_HTTPS:
        fill(target, there, count)
        there = count
        found.append(over_https(target, f"{target.name}, {count:,} bindings"))
    return found


class Asker:
    """One question, asked again and again over one connection, as quickly as a client can."""

    def __init__(self, target: Target, user: str) -> None:
        connection = target.connect()
        connection.connect()
        self._socket = connection.sock
        body = json.dumps({**REVIEW, "spec": {**REVIEW["spec"], "user": user}})
        place = urlsplit(target.url)
        lines = [f"POST {place.path}{REVIEWS} HTTP/1.1", f"Host: {place.netloc}", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in target.headers.items()]
        self._request = "\r\n".join([*lines, "", body]).encode()

    def allowed(self) -> bool:
        """Whether it was allowed."""
        self._socket.sendall(self._request)
        answer = b""
        while not answer.endswith(b"}"):
            answer += self._socket.recv(65536)
        if not answer.startswith(b"HTTP/1.1 201 "):
            raise RuntimeError(answer[:300])
        return b'"allowed":true' in answer


def revocations(product: Product, token: str) -> None:
    """From the answer to the deletion of a binding until each of three other processes denies what it gave.

    All four are spoken to over HTTPS by this one process, so that its own turn-around is part of the figure.
    """
    with contextlib.ExitStack() as stack:
        first, *others = [stack.enter_context(served(product, token, alone=False)) for _ in range(PROCESSES)]
        writer, readers = first.connect(), [Asker(other, "leaver") for other in others]
        review = {**REVIEW, "spec": {**REVIEW["spec"], "user": "leaver"}}
        path = f"/apis/{GROUP}/v1/namespaces/default/rolebindings"

        def allowed(position: int) -> bool:
            return readers[position].allowed()

        def denied_after(position: int) -> float:
            while allowed(position):
                time.sleep(0.001)
            return time.perf_counter()

        delays: list[float] = []
        with ThreadPoolExecutor(len(others)) as pool:
            for number in range(REVOCATIONS):
                made = binding(f"leaver-{number}", "view", "leaver", "default")
                first.call(writer, "POST", path, {"apiVersion": f"{GROUP}/v1", "kind": "RoleBinding", **made})
                while not all(list(pool.map(allowed, range(len(others))))):
                    time.sleep(0.001)
                waiting = [pool.submit(denied_after, position) for position in range(len(others))]
                first.call(writer, "DELETE", f"{path}/leaver-{number}")
                deleted = time.perf_counter()
                if first.call(writer, "POST", REVIEWS, review)["status"]["allowed"]:
                    raise RuntimeError("the process that deleted the binding still allows")
                delays += [max(0.0, future.result() - deleted) * 1000 for future in waiting]
    cuts = statistics.quantiles(delays, n=100)
    print(
        f"  {REVOCATIONS} revocations, {PROCESSES} processes: denied by the others after p50 {cuts[49]:.1f} ms, "
        f"p99 {cuts[98]:.1f} ms, at most {max(delays):.1f} ms",
        flush=True,
    )


def main() -> None:
    """In process, peers, then over HTTPS."""
    if "https" not in sys.argv:
        for tenants in SIZES:
            allowed = asyncio.run(ours(tenants))
            if tenants <= 1_000:
                casbin(tenants, allowed)
                cedar(tenants, allowed)
    with tenanted() as (product, token):
        revocations(product, token)
        with served(product, token) as target:
            mine = compare(target)
    with peer() as other:
        if other is None:
            print("  No kube-apiserver: set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd.")
            return
        theirs = compare(other)
    for count, our, their in zip(CLUSTER_WIDE_OVER_HTTPS, mine, theirs, strict=True):
        print(
            f"  With {count:,} cluster-wide bindings of its own it answers {our.rate / their.rate:.1f} times as many."
        )


if __name__ == "__main__":
    main()
