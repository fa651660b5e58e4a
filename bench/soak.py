"""The product under a steady load, for as long as wanted: what stays flat, and what grows.

``python -m bench soak --minutes N [--rate R] [--watches W] [--warm-up N] [--every S] [--within PERCENT]``, an hour unless
told.

The quickstart runs as a newcomer starts it. Two tenants' owners sign in, make workspaces, are given kubeconfigs, use them,
delete the workspaces and sign out; beside them each tenant gets, lists, creates and deletes objects at a pace, and watches
them by watches that end and are begun again. Every few seconds it is measured what each process holds in memory and open
files, how large tables and logs are, and how many connections PostgreSQL has. What is measured after the warm-up has to be
flat: no more at the end than at its beginning, within so many per cent. Tables that are a record of what was done are
shown beside it. Exits with 1 where something grows, where a part has ended, or where an answer was not the right one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import yaml

from bench.apiserver import BASE, driver
from bench.measuring.accounts import Accounts
from tests.story.product import Person, Product, eventually

TENANTS = ("soak-a", "soak-b")
PASSWORD = "correct horse battery"
SIGN_IN_SECONDS = 60.0
"""Between a person's sign-ins: the page slows down whoever comes more often."""

ROUND_SECONDS = 12.0
"""Between a person's workspaces, which are made at a pace."""

WATCH_SECONDS = 20
SHOWN_FAILURES = 10


@dataclass(slots=True)
class Load:
    """What is done, by whom, until it is told to stop; ``done`` and ``failures`` tell how it went."""

    product: Product
    stop: threading.Event = field(default_factory=threading.Event)
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self, rate: float, watches: int) -> None:
        """Begin, at so many requests a second to the API server, all tenants' together."""
        for tenant in TENANTS:
            owner = f"owner@{tenant}.test"
            self.product.add_person(owner, PASSWORD, tenant)
            token = driver(self.product, tenant, "--duration=24h")
            person = Person(self.product)
            self._begin(self._live, person, owner, tenant)
            self._begin(self._ask, tenant, token, len(TENANTS) / rate)
            for _ in range(watches):
                self._begin(self._watch, tenant, token)

    def end(self) -> None:
        """Let everybody finish what they are at."""
        self.stop.set()
        for thread in self.threads:
            thread.join(300)

    def _begin(self, what: Callable[..., None], *arguments: Any) -> None:
        def until_stopped() -> None:
            try:
                what(*arguments)
            except Exception as error:  # noqa: BLE001 # a thread that ends unseen would be a load that is not there
                self.failures.append(f"{what.__name__} of {arguments[0]} has ended: {error!r}")

        thread = threading.Thread(target=until_stopped, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _count(self, what: str, answer: requests.Response, *wanted: int) -> bool:
        self.done[what] += 1
        if answer.status_code in wanted:
            return True
        self.failures.append(f"{what}: {answer.status_code} {answer.text[:200]!r}")
        return False

    def _live(self, person: Person, email: str, tenant: str) -> None:
        """An owner's day, again and again."""
        signed_in = -SIGN_IN_SECONDS
        for number in itertools.count():
            if time.monotonic() - signed_in >= SIGN_IN_SECONDS:
                if number:
                    self._count("sign-outs", person.post("/logout/"), 302)
                person.sign_in(email, PASSWORD)
                signed_in = time.monotonic()
                self.done["sign-ins"] += 1
            self._count("pages", person.get("/"), 200)
            self._workspace(person, tenant, f"w{number}")
            if self.stop.wait(ROUND_SECONDS):
                return

    def _workspace(self, person: Person, tenant: str, name: str) -> None:
        wanted = {"tier": "basic", "tenant": tenant, "name": name}
        answer = person.post("/api/v1/workspaces/init", json=wanted)
        if not self._count("workspaces made", answer, 201):
            return
        workspace = f"/api/v1/workspaces/{answer.json()['id']}"
        answer = person.post(f"{workspace}/credentials")
        if self._count("kubeconfigs", answer, 200, 201):
            self._use(yaml.safe_load(answer.json()["kubeconfig"]))
        self._count("workspaces deleted", person.request("DELETE", f"{workspace}/"), 202, 204)
        eventually(lambda: _is_gone(person.get(f"{workspace}/")), every=0.2)

    def _use(self, config: dict[str, Any]) -> None:
        server = config["clusters"][0]["cluster"]["server"]
        namespace = config["contexts"][0]["context"]["namespace"]
        with self._session(config["users"][0]["user"]["token"]) as session:
            answer = session.get(f"{server}/api/v1/namespaces/{namespace}/configmaps", timeout=60)
        self._count("uses of kubeconfigs", answer, 200)

    def _ask(self, tenant: str, token: str, pace: float) -> None:
        """Of twenty requests one creates, one deletes, six list and twelve get."""
        url = self._space(tenant) + BASE
        with self._session(token) as session:
            kept = {"metadata": {"name": "kept"}, "data": {"word": "one"}}
            self._count("creations", session.post(url, json=kept, timeout=60), 201)
            due = time.monotonic()
            for number in itertools.count():
                name, turn = f"{url}/s-{number // 20}", number % 20
                if turn == 0:
                    body = {"metadata": {"name": f"s-{number // 20}"}, "data": {"word": "x" * 500}}
                    self._count("creations", session.post(url, json=body, timeout=60), 201)
                elif turn == 10:
                    self._count("deletions", session.delete(name, timeout=60), 200)
                elif turn % 3 == 1:
                    self._count("lists", session.get(f"{url}?limit=20", timeout=60), 200)
                else:
                    self._count("gets", session.get(f"{url}/kept", timeout=60), 200)
                due = max(due + pace, time.monotonic())
                if self.stop.wait(due - time.monotonic()):
                    return

    def _watch(self, tenant: str, token: str) -> None:
        """Watches that end by themselves, one after the other."""
        url = f"{self._space(tenant)}{BASE}?watch=true&timeoutSeconds={WATCH_SECONDS}"
        with self._session(token) as session:
            while not self.stop.is_set():
                with session.get(url, stream=True, timeout=120) as answer:
                    self._count("watches", answer, 200)
                    for line in answer.iter_lines():
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            self.failures.append(f"watch: {event['object']}")
                        self.done["events"] += 1

    def _space(self, tenant: str) -> str:
        return f"{self.product.facts['apiserver_url']}/clusters/root:{tenant}"

    def _session(self, token: str) -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        session.verify = self.product.facts["ca_file"]
        session.headers["Authorization"] = f"Bearer {token}"
        return session


def _is_gone(answer: requests.Response) -> bool:
    return answer.status_code == 404 or answer.json()["status"] == "deleted"


def soaked(product: Product, options: argparse.Namespace) -> bool:
    """Load it and measure it; says whether all was well."""
    owner = product.database.replace("tenantry@", "postgres@")
    assert product.process is not None
    accounts = Accounts(product.process.pid, owner, product.folder / "log")
    load, parts = Load(product), accounts.parts()
    load.start(options.rate, options.watches)
    begun, ends = time.monotonic(), options.minutes * 60
    for number in itertools.count():
        now = time.monotonic() - begun
        accounts.look(now)
        if now >= ends:
            break
        if now // 60 > (now - options.every) // 60:
            print(f"  {now / 60:5.0f} min  {load.done.total():,} done, {len(load.failures)} failed", flush=True)
        time.sleep(max(0.0, min((number + 1) * options.every, ends) - (time.monotonic() - begun)))
    ended = parts - accounts.parts()
    load.end()
    flat = _told(accounts, options)
    print("  done: " + ", ".join(f"{count:,} {what}" for what, count in sorted(load.done.items())))
    print(f"  {len(load.failures)} answers were not the right ones, {len(ended)} parts have ended")
    for failure in load.failures[:SHOWN_FAILURES]:
        print(f"    {failure}")
    return flat and not load.failures and not ended


def _told(accounts: Accounts, options: argparse.Namespace) -> bool:
    """Print what was measured; says whether all of it is flat."""
    print(f"  {'':<12} {'of':<28} {'at first':>10} {'at last':>10} {'an hour':>10}   after {options.warm_up:g} min")
    growing = 0
    for (kind, _), whole in sorted(accounts.series.items()):
        series = whole.after(options.warm_up * 60)
        if not series.points:
            continue
        (begun, ended), verdict = series.ends, series.verdict(options.within / 100)
        growing += verdict == "GROWS"
        # Sixty tables that hold next to nothing say nothing.
        if kind != "table" or verdict == "GROWS" or ended >= 0.5:
            row = f"{begun:>10.2f} {ended:>10.2f} {series.per_hour:>+10.2f}"
            print(f"  {kind:<12} {series.name:<28} {row}   {series.unit:<3} {verdict}")
    print(f"  {'all of it is flat' if not growing else f'{growing} GROW'}, within {options.within:g} %")
    return not growing


def main() -> None:
    """Start the product, load it, and print what grows."""
    parser = argparse.ArgumentParser(prog="python -m bench soak")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long, with the warm-up")
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second to the API server")
    parser.add_argument("--watches", type=int, default=5, help="watches of each tenant")
    parser.add_argument("--warm-up", type=float, help="minutes that do not count; a quarter unless given")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between measurements")
    parser.add_argument("--within", type=float, default=5.0, help="per cent that count as nothing")
    options = parser.parse_args()
    if options.warm_up is None:
        options.warm_up = options.minutes / 4
    with tempfile.TemporaryDirectory(prefix="tenantry-bench-") as folder:
        Path(folder).chmod(0o711)
        product = Product(Path(folder) / "data")
        product.start()
        try:
            held = soaked(product, options)
        finally:
            product.stop()
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
