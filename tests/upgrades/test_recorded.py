"""This release goes on with what the release before has left: a record of its rows, which needs no history to be read.

``TENANTRY_RECORD_ANEW=1`` has the release before write it anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.databases import ROOT
from tests.speaking import Speaker
from tests.story.product import eventually
from tests.upgrades.inhabiting import PASSWORD, Inhabited, inhabit, listed, said, shared
from tests.upgrades.neighbours import Installation, installation
from tests.upgrades.objects import NAMESPACE, Sample, chosen, deleted, of_space, place, posted
from tests.upgrades.recording import ANSWERS, MIGRATE, empty, load, record, recorded, timeless
from tests.upgrades.releasebefore import PORTAL

ANEW = "TENANTRY_RECORD_ANEW"
OBJECTS = "objects"
"""The tenant whose space has one of every kind."""


@pytest.mark.skipif(ANEW not in os.environ, reason=f"{ANEW} is not set")
def test_the_record_is_made_anew(release_before: Path) -> None:
    """By the release before, on its own tables, through what it offers to people and programs."""
    with empty("recorded") as database, installation(database) as running:
        old = running.add("old", release_before, PORTAL)
        running.prepare(old)
        old.start(*old.parts)
        operator = running.operator(old)
        there = inhabit(operator, "recorded")
        refused = []
        for tenant in (OBJECTS, ""):
            space = place(running.admin(old), tenant)
            made = [(sample, posted(space, sample)) for sample in of_space(system=not tenant)]
            refused += [f"{sample}: {answer.status} {answer.body}" for sample, answer in made if answer.status != 201]
        assert refused == []
        old.end("beat", "worker")
        answers = listed(operator, there)
        old.end(*old.parts)
        facts = {name: running.facts[name] for name in ("operator_email", "operator_password")}
        record(database)
    kept = {"facts": facts, "there": asdict(there), "answers": timeless(answers)}
    ANSWERS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")


@pytest.fixture(scope="module")
def left() -> dict[str, Any]:
    """Who was there, and what was listed then."""
    found: dict[str, Any] = json.loads(ANSWERS.read_text())
    return found


@pytest.fixture(scope="module")
def there(left: dict[str, Any]) -> Inhabited:
    return Inhabited(**left["there"])


@pytest.fixture(scope="module")
def kept(left: dict[str, Any]) -> Iterator[Installation]:
    """This release on those rows: loaded into the tables of then, which it migrates as they are."""
    with empty("kept") as database, installation(database) as running:
        new = running.add("new", ROOT)
        new.run("-c", MIGRATE)
        load(database)
        running.facts |= left["facts"]
        running.prepare(new)
        # No worker: nothing is to change what was left before it is read.
        new.start("apiserver", "portal")
        yield running


def test_what_people_had_made_is_listed_as_it_was(kept: Installation, there: Inhabited, left: dict[str, Any]) -> None:
    """Tenants, tiers, policies, quotas, members, workspaces, credentials, requests, tokens, the audit, and what is closed."""
    operator = kept.operator(kept.new)
    answers = timeless(listed(operator, there))
    then = left["answers"]
    # Of what is done since, by bootstrap and by signing in, the audit tells first.
    entries = then["audit-logs/?limit=200"]["results"]
    tail = answers["audit-logs/?limit=200"]["results"][-len(entries) :]
    answers["audit-logs/?limit=200"]["results"] = tail
    for each in (then, answers):
        # Drift is shown for a day, a backup is missed after some, and the record grows older.
        each["inbox/"] = [group for group in each["inbox/"] if group["kind"] not in {"drift", "backups"}]
    assert shared(then, answers) == shared(then, then)


def test_the_audit_of_then_still_verifies(kept: Installation, there: Inhabited) -> None:
    """GW13: chained on, and not begun anew."""
    rows = [row for table, row in recorded()[1] if table == "audit_logs" and row["chain"] == there.tenant]
    with psycopg.connect(kept.environment["DATABASE_URL"]) as connection:
        found = connection.execute(
            "SELECT hash FROM audit_logs WHERE chain = %s ORDER BY sequence", [there.tenant]
        ).fetchall()
    assert len(rows) > 10
    assert {row["hash"] for row in rows} <= {digest for (digest,) in found}
    kept.new.manage("audit", "verify")


def test_its_bytes_are_counted(kept: Installation) -> None:
    """AD8: what was there before anybody counted."""
    assert kept.miscounted() == []


def test_people_and_their_workspaces_go_on(kept: Installation, there: Inhabited) -> None:
    """Who had a password signs in by it; a workspace opens, is closed and opens again."""
    new = kept.new
    owner, operator = kept.signed_in(new, there.owner, PASSWORD), kept.operator(new)
    new.start("worker", "beat")
    issued = said(owner, "POST", f"workspaces/{there.workspace}/credentials")["kubeconfig"]
    inside = f"/api/v1/namespaces/{there.namespace}/configmaps"
    assert new.speaker(issued).send("POST", inside, {"metadata": {"name": "later"}}).status == 201
    said(operator, "POST", f"workspaces/{there.workspace}/suspend", expect=200, reason="mining")
    eventually(lambda: new.speaker(issued).send("GET", inside).status in (401, 403))
    said(operator, "POST", f"tenants/{there.tenant}-closed/resume", expect=200)
    said(operator, "POST", f"tenants/{there.tenant}-cold/thaw", expect=204)
    thawed = kept.admin(new, f"root:{there.tenant}-cold")
    made = thawed.send("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "thawed"}})
    assert made.status == 201, made


def test_every_object_is_read_listed_changed_and_deleted(kept: Installation, there: Inhabited) -> None:
    """TS4: as it was kept, of every kind; what was good then is good now."""
    stored = {
        (row["space"], row["group"], row["resource"], row["namespace"], row["name"]): json.loads(row["data"])
        for table, row in recorded()[1]
        if table == "store_object"
    }
    then = {(body["kind"], body["metadata"]["name"]) for body in stored.values() if "kind" in body}
    found: list[str] = []
    for tenant in (OBJECTS, ""):
        space = place(kept.admin(kept.new), tenant)
        # What has come to the samples since was not there then; it is tried with both releases.
        every = list(of_space(system=not tenant))
        samples = [sample for sample in every if (sample.body["kind"], sample.name) in then]
        assert len(samples) > len(every) / 2
        for sample in samples:
            found += _read_and_changed(sample, space, stored, f"root:{tenant}" if tenant else "root")
        for sample in reversed(samples):
            found += deleted(sample, space, space)
    assert found == []


def _read_and_changed(sample: Sample, speaker: Speaker, stored: dict[Any, Any], space: str) -> Iterator[str]:
    # Custom objects are served once their definition has been noticed.
    read = eventually(lambda: (answer := speaker.send("GET", sample.own)).status != 404 and answer)
    group = sample.body["apiVersion"].rpartition("/")[0]
    plural = sample.path.rpartition("/")[2]
    namespace = NAMESPACE if f"/namespaces/{NAMESPACE}/" in sample.path else ""
    was = stored.get((space, group, plural, namespace, sample.name)) or {}
    if was.get("apiVersion") == sample.body["apiVersion"] and chosen(read.body) != chosen(was):
        yield f"{sample}: read as {read.body} instead of {was}"
    if sample.name not in [item["metadata"]["name"] for item in speaker.send("GET", sample.path)["items"]]:
        yield f"{sample}: not listed"
    kept = speaker.send("PUT", sample.own, read.body)
    if kept.status != 200:
        yield f"{sample}: put back with {kept.status}: {kept.body}"
    label = {"metadata": {"labels": {"example.org/changed": "yes"}}}
    changed = speaker.send("PATCH", sample.own, label, "application/merge-patch+json")
    if changed.status != 200:
        yield f"{sample}: changed with {changed.status}: {changed.body}"
