"""Both releases at once, as while one takes the other's place, and then the older one alone, as after going back.

Each part of the product runs twice, of the release before and of this one, on the database that this one has migrated. What
either writes the other reads; what either is told to stop stops at the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.speaking import Speaker
from tests.story.product import eventually
from tests.upgrades.inhabiting import (
    API,
    PAGES,
    PASSWORD,
    Inhabited,
    inhabit,
    listed,
    lists,
    ordered,
    said,
    shared,
    state_of,
)
from tests.upgrades.neighbours import House, Installation, moved
from tests.upgrades.objects import Sample, chosen, deleted, of_space, place, posted

pytestmark = pytest.mark.timeout(3600)

MAPS = "/api/v1/namespaces/default/configmaps"
HOUSES = ("old", "new")


@pytest.fixture(scope="module", params=HOUSES)
def writer(request: pytest.FixtureRequest, both: Installation) -> House:
    """Of which release is what writes; the other one's reads."""
    house: House = getattr(both, request.param)
    return house


@pytest.fixture(scope="module")
def reader(both: Installation, writer: House) -> House:
    return both.other(writer)


@pytest.fixture(scope="module")
def there(both: Installation, writer: House, reader: House) -> Inhabited:
    """What people made at the writer's portal; its workspace is made by the reader's worker."""
    writer.end("worker")
    try:
        return inhabit(both.operator(writer), f"by-{writer.name}")
    finally:
        writer.start("worker")


def test_what_people_make_at_one_the_other_lists(both: Installation, writer: House, there: Inhabited) -> None:
    """Every list of the REST API, as the release before has it: the newer one tells no less, and nothing else."""
    operator = both.operator(writer)

    def at_rest(path: str) -> list[Any] | None:
        """What each tells, as soon as the first of them tells the same afterwards: workers go on all the while."""
        older, newer, again = (
            said(moved(operator, house), "GET", path, expect=200) for house in (both.old, both.new, both.old)
        )
        known = shared(older, older)
        return [known, shared(older, newer)] if known == shared(again, again) else None

    for path in lists(there):
        known, told = eventually(lambda path=path: at_rest(path))  # type: ignore[misc]
        assert told == known, path


def test_objects_written_at_one_are_read_changed_and_deleted_at_the_other(
    both: Installation, writer: House, reader: House
) -> None:
    """TS4: one of every kind, with all its fields."""
    for tenant in (f"objects-of-{writer.name}", ""):
        ours, theirs = place(both.admin(writer), tenant), place(both.admin(reader), tenant)
        kept = list(of_space(system=not tenant))
        found = [flaw for sample in kept for flaw in _written_and_read(sample, ours, theirs)]
        found += [flaw for sample in reversed(kept) for flaw in deleted(sample, theirs, ours)]
        assert found == []


def _written_and_read(sample: Sample, ours: Speaker, theirs: Speaker) -> Iterator[str]:
    made = posted(ours, sample)
    if made.status != 201:
        yield f"{sample}: made with {made.status}: {made.body}"
        return
    # Custom objects are served there once their definition has been noticed there.
    read = eventually(lambda: (answer := theirs.send("GET", sample.own)).status != 404 and answer)
    if chosen(read.body) != chosen(made.body):
        yield f"{sample}: read as {read.body} instead of {made.body}"
    if sample.name not in [item["metadata"]["name"] for item in theirs.send("GET", sample.path)["items"]]:
        yield f"{sample}: not listed"
    label = {"metadata": {"labels": {"example.org/changed": "yes"}}}
    changed = theirs.send("PATCH", sample.own, label, "application/merge-patch+json")
    if changed.status != 200:
        yield f"{sample}: changed with {changed.status}: {changed.body}"
    elif chosen(again := ours.send("GET", sample.own).body) != chosen(changed.body):
        yield f"{sample}: changed as {changed.body}, and read as {again}"


def test_a_read_at_one_never_misses_what_the_other_has_acknowledged(
    both: Installation, writer: House, reader: House, there: Inhabited
) -> None:
    """TS4, and the leases by which each reads from memory: every writer ends the other's first."""
    ours, theirs = (both.admin(house, f"root:{there.tenant}") for house in (writer, reader))
    theirs.send("GET", MAPS)
    since = theirs.send("GET", MAPS).revision
    with theirs.watch(f"{MAPS}?watch=true&resourceVersion={since}") as events:
        assert ours.send("POST", MAPS, {"metadata": {"name": "counter"}, "data": {"n": "0"}}).status == 201
        for number in range(1, 30):
            change = {"data": {"n": str(number)}}
            assert ours.send("PATCH", f"{MAPS}/counter", change, "application/merge-patch+json").status == 200
            assert theirs.send("GET", f"{MAPS}/counter")["data"] == {"n": str(number)}
        told = [next(events)["object"].get("data", {}).get("n") for _ in range(30)]
    assert told == [str(number) for number in range(30)]


def test_a_suspension_at_one_ends_watches_at_the_other(
    both: Installation, writer: House, reader: House, there: Inhabited
) -> None:
    """GW5, P4, P5: and a credential of the one opens the other's doors until then."""
    operator, owner = both.operator(writer), both.signed_in(writer, there.owner, PASSWORD)
    issued = said(owner, "POST", f"workspaces/{there.workspace}/credentials")["kubeconfig"]
    inside = f"/api/v1/namespaces/{there.namespace}/configmaps"
    ours, theirs = writer.speaker(issued), reader.speaker(issued)
    opens(both, issued, inside)
    with theirs.watch(f"{inside}?watch=true&resourceVersion={theirs.send('GET', inside).revision}") as events:
        said(operator, "POST", f"workspaces/{there.workspace}/suspend", expect=200, reason="mining")
        assert [event["type"] for event in events if event["type"] not in ("ADDED", "BOOKMARK")] in ([], ["ERROR"])
    # Each hears of it by itself: the watch tells of one of them.
    eventually(lambda: {speaker.send("GET", inside).status for speaker in (ours, theirs)} <= {401, 403})
    eventually(lambda: state_of(owner, there.workspace) == "suspended", within=300)
    back = moved(operator, reader)
    said(back, "POST", f"workspaces/{there.workspace}/resume", expect=200)
    eventually(lambda: state_of(moved(owner, reader), there.workspace) == "provisioned", within=300)
    assert {speaker.send("GET", inside).status for speaker in (ours, theirs)} <= {401, 403}, "no old one lives again"
    fresh = said(moved(owner, reader), "POST", f"workspaces/{there.workspace}/credentials")["kubeconfig"]
    opens(both, fresh, inside)


def opens(both: Installation, kubeconfig: str, path: str) -> None:
    """Whichever has given it. API servers of 0.1 refuse until they have seen what a token is bound to; those of this do not.

    Both refuse until they have heard that a suspension is over, each by itself.
    """
    assert (
        eventually(lambda: (status := both.new.speaker(kubeconfig).send("GET", path).status) != 403 and status) == 200
    )
    eventually(lambda: both.old.speaker(kubeconfig).send("GET", path).status == 200, within=300)


def test_the_audit_is_one_chain_for_both(both: Installation, there: Inhabited) -> None:
    """GW13."""
    for house in (both.old, both.new):
        house.manage("audit", "verify")


def test_the_release_before_goes_on_when_this_one_has_gone(both: Installation) -> None:
    """Going back by one, and forward again: nothing is taken away, and what was written meanwhile stays."""
    new, old = both.new, both.old
    operator = both.operator(new)
    tenant = "only-new"
    there = inhabit(operator, tenant)
    said(operator, "PATCH", f"tiers/{tenant}-tier/", expect=200, stored_mebibytes=64)
    said(operator, "POST", f"tenants/{tenant}-cold/thaw", expect=204)
    said(operator, "POST", f"tenants/{tenant}-cold/offboard", expect=200, reason="They leave.", days=30)

    def at_rest() -> dict[str, Any] | None:
        """What it lists once its workers have done what was asked of them."""
        states = [said(operator, "GET", f"operations/?state={state}", expect=200) for state in ("pending", "running")]
        return None if any(state["results"] for state in states) else listed(operator, there)

    before = eventually(at_rest)
    maps = both.admin(new, f"root:{tenant}")
    assert maps.send("POST", MAPS, {"metadata": {"name": "kept"}, "data": {"a": "b"}}).status == 201
    new.end(*new.parts)
    both.prepare(old)

    operator = both.operator(old)
    for page in PAGES:
        assert operator.get(f"/{page}").status_code == 200, page
    after = listed(operator, there)
    # Workers go on meanwhile: what they note of operations and clusters, and tell in the audit and by notices, moves.
    moves = {"operations/", "clusters/", "audit-logs/?limit=200", "notifications/", "inbox/"}
    known, shown = shared(after, after), shared(after, before)
    assert {path: (shown[path], known[path]) for path in known.keys() - moves if shown[path] != known[path]} == {}
    assert both.admin(old, f"root:{tenant}").send("GET", f"{MAPS}/kept")["data"] == {"a": "b"}
    owner = both.signed_in(old, there.owner, PASSWORD)
    more = ordered(owner, tenant, "after")
    issued = said(owner, "POST", f"workspaces/{more['id']}/credentials")["kubeconfig"]
    inside = f"/api/v1/namespaces/{more['namespace']}/configmaps"
    # It refuses until it has seen what the token is bound to.
    eventually(lambda: old.speaker(issued).send("POST", inside, {"metadata": {"name": "later"}}).status == 201)
    # It knows nothing of a tenant that leaves, and deletes it all the same.
    said(operator, "DELETE", f"tenants/{tenant}-cold/", expect=202)
    eventually(lambda: operator.get(f"{API}tenants/{tenant}-cold/").status_code == 404, within=300)
    old.manage("audit", "verify")

    # And forward again: what was written meanwhile is counted, for the database counts it.
    assert both.miscounted() == []
    both.prepare(new)
    new.start(*new.parts)
    space = both.admin(new, f"root:{tenant}")
    assert space.send("GET", f"{inside}/later").status == 200
    assert space.send("POST", inside, {"metadata": {"name": "latest"}}).status == 201
    new.manage("audit", "verify")
