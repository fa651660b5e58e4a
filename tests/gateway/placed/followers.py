"""Who follows config maps by a client library of others, and who writes what there is to follow."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol

import kubernetes
import lightkube
from kubernetes.informer import SharedInformer
from lightkube import KubeConfig
from lightkube.core.generic_client import httpx
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import OnErrorAction, OnErrorResult

from tests.gateway.callers import Caller, config_map
from tests.gateway.placed.informer import Event, Key

OURS = {"test": "ours"}
SELECTOR = "test=ours"
PAUSE = 0.2
"""Seconds after which whoever has failed tries again."""


def made(word: str, name: str = "one") -> dict[str, Any]:
    return config_map(name, {"word": word}, labels=OURS)


def path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps" + (f"/{name}" if name else "")


class Follower(Protocol):
    """Knows what there is, and has been told of each change."""

    told: list[Event]
    counts: Counter[str]
    """Among them ``lists``: how often it has begun anew."""

    def known(self) -> Mapping[Key, tuple[str, str]]: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


class Official:
    """The official client's informer in one namespace. It goes on from the last event, and lists again after a 410."""

    def __init__(self, file: Path, namespace: str) -> None:
        self.told: list[Event] = []
        self.counts: Counter[str] = Counter()
        core = kubernetes.client.CoreV1Api(kubernetes.config.new_client_from_config(str(file)))
        self._known: dict[Key, tuple[str, str]] = {}
        self._informer = SharedInformer(core.list_namespaced_config_map, namespace, label_selector=SELECTOR)
        for what in ("ADDED", "MODIFIED", "DELETED"):
            self._informer.add_event_handler(what, partial(self._tell, what))
        self._informer.add_event_handler("ERROR", self._fail)
        self.start, self.stop = self._informer.start, self._informer.stop

    def known(self) -> dict[Key, tuple[str, str]]:
        return dict(self._known)

    def _tell(self, what: str, item: Any) -> None:
        found = item.metadata
        key, now = (found.namespace, found.name), (found.uid, found.resource_version)
        self.told.append((found.namespace, what, *now))
        if what == "DELETED":
            self._known.pop(key, None)
        else:
            self._known[key] = now

    def _fail(self, error: Exception) -> None:
        self.counts["lists" if getattr(error, "status", None) == 410 else "failures"] += 1
        time.sleep(PAUSE)


class Light(threading.Thread):
    """lightkube's list and watch in one namespace, which lists again where it is told that its version has expired."""

    def __init__(self, file: Path, namespace: str) -> None:
        super().__init__(daemon=True)
        self.told: list[Event] = []
        self.counts: Counter[str] = Counter()
        self._known: dict[Key, tuple[str, str]] = {}
        self._version = ""
        self._light = lightkube.Client(config=KubeConfig.from_file(file), namespace=namespace)
        self._over = threading.Event()

    def known(self) -> dict[Key, tuple[str, str]]:
        return dict(self._known)

    def stop(self) -> None:
        """At the next event, or when the watch is asked for again."""
        self._over.set()

    def run(self) -> None:
        while not self._over.wait(PAUSE):
            try:
                if not self._version:
                    listed = self._light.list(ConfigMap, labels=OURS)
                    self._known = dict(named(item) for item in listed)
                    self._version = listed.resourceVersion
                    self.counts["lists"] += 1
                self._follow()
            except httpx.HTTPError:
                # Of a connection that cannot be made lightkube asks nobody whether to go on.
                self.counts["failures"] += 1

    def _follow(self) -> None:
        """From where it is, up to where the version is not known any more."""
        watched = self._light.watch(
            ConfigMap, labels=OURS, resource_version=self._version, server_timeout=30, on_error=self._fail
        )
        for what, item in watched:
            key, now = named(item)
            self.told.append((key[0], what, *now))
            self._version = now[1]
            if what == "DELETED":
                self._known.pop(key, None)
            else:
                self._known[key] = now
            if self._over.is_set():
                return
        self._version = ""

    def _fail(self, error: Exception, _: int) -> OnErrorResult:
        status = getattr(error, "status", None)
        code = status.code if status is not None else getattr(getattr(error, "response", None), "status_code", 0)
        ends = code == 410 or self._over.is_set()
        return OnErrorResult(OnErrorAction.STOP if ends else OnErrorAction.RETRY, sleep=PAUSE)


def named(item: ConfigMap) -> tuple[Key, tuple[str, str]]:
    """Which one it is, and in which version."""
    found = item.metadata
    assert found is not None
    return (str(found.namespace), str(found.name)), (str(found.uid), str(found.resourceVersion))


class Writer:
    """Writes every word once, in one namespace after the other, and knows what is there in the end."""

    def __init__(self, caller: Caller, names: list[str], patience: float) -> None:
        self._caller, self._names, self._patience, self._number = caller, names, patience, 0
        self.words: dict[Key, str] = {}
        self.last: list[str] = []

    def write(self, rounds: int = 1) -> None:
        """In every namespace a new object, a change of another, and the end of a third; each is sent until it is done."""
        self.last = []
        for _ in range(rounds):
            for namespace in self._names:
                self._number += 1
                number = self._number
                self._send("POST", path(namespace), made(f"new {number}", f"o{number}"))
                self.words[namespace, f"o{number}"] = f"new {number}"
                mine = [key for key in self.words if key[0] == namespace]
                self._send("PATCH", path(*mine[-1]), {"data": {"word": f"changed {number}"}})
                self.words[mine[-1]] = f"changed {number}"
                self.last += [f"new {number}", f"changed {number}"]
                if len(mine) > 3:
                    self._send("DELETE", path(*mine[0]), None)
                    del self.words[mine[0]]

    def _send(self, method: str, where: str, body: Any) -> None:
        """What was done by an attempt that nobody heard of is done."""
        done = {"POST": (201, 409), "PATCH": (200,), "DELETE": (200, 404)}[method]
        media = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
        deadline = time.monotonic() + self._patience
        while True:
            with contextlib.suppress(OSError, HTTPException):
                answer = self._caller.call(method, where, body, media)
                if answer.status in done:
                    return
                # A kube-apiserver that has just come back does not know its own RBAC for a moment.
                assert answer.status in (403, 429, 500, 502, 503, 504), answer.body
            assert time.monotonic() < deadline
            time.sleep(PAUSE)
