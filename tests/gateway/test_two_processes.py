"""Lists and watches through two API server processes on one database (TS15): nothing lost, doubled or out of order."""

from __future__ import annotations

import threading
from typing import Any

from tests.apiserver import OwnApiserver
from tests.speaking import Speaker

MERGE = "application/merge-patch+json"
WRITERS, ROUNDS, WATCHERS = 4, 12, 4


def _write(speaker: Speaker, at: str, writer: int) -> None:
    for number in range(ROUNDS):
        name = f"w{writer}-{number}"
        assert speaker.send("POST", at, {"metadata": {"name": name}}).status == 201
        assert speaker.send("PATCH", f"{at}/{name}", {"data": {"a": "b"}}, MERGE).status == 200
        if number % 2:
            assert speaker.send("DELETE", f"{at}/{name}").status == 200


def _follow(speaker: Speaker, path: str, seen: list[dict[str, Any]], until: int) -> None:
    with speaker.watch(path) as events:
        for event in events:
            if event["type"] != "BOOKMARK":
                seen.append(event)
            if len(seen) >= until:
                return


def test_every_watcher_sees_every_event_once_and_in_order(apiserver: OwnApiserver) -> None:
    space = apiserver.tenant("watched")
    at = "/api/v1/namespaces/default/configmaps"
    start = space.send("GET", at).revision
    wanted = WRITERS * ROUNDS * 2 + WRITERS * (ROUNDS // 2)
    seen: list[list[dict[str, Any]]] = [[] for _ in range(WATCHERS)]
    watch = f"{at}?watch=1&resourceVersion={start}&timeoutSeconds=300"
    # Every connection is a new one, so that the kernel spreads them over both processes.
    watchers = [
        threading.Thread(target=_follow, args=(space.at("/clusters/root:watched"), watch, events, wanted))
        for events in seen
    ]
    writers = [
        threading.Thread(target=_write, args=(space.at("/clusters/root:watched"), at, number))
        for number in range(WRITERS)
    ]
    for thread in (*watchers, *writers):
        thread.start()
    for thread in (*writers, *watchers):
        thread.join(300)
    stories = [
        [(e["type"], e["object"]["metadata"]["name"], int(e["object"]["metadata"]["resourceVersion"])) for e in events]
        for events in seen
    ]
    assert len(stories[0]) == wanted
    revisions = [revision for _, _, revision in stories[0]]
    assert revisions == sorted(set(revisions))
    assert all(story == stories[0] for story in stories)


def test_a_watch_with_initial_events_begins_with_the_list_and_says_when_it_is_complete(apiserver: OwnApiserver) -> None:
    space = apiserver.tenant("streamed")
    at = "/api/v1/namespaces/default/secrets"
    names = {f"s{number}" for number in range(5)}
    for name in names:
        assert space.send("POST", at, {"metadata": {"name": name}}).status == 201
    query = (
        "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=300"
    )
    initial = []
    with space.watch(f"{at}?{query}") as events:
        for event in events:
            if event["type"] == "BOOKMARK":
                break
            initial.append(event)
    assert {event["object"]["metadata"]["name"] for event in initial} == names
    assert all(event["type"] == "ADDED" for event in initial)
    assert event["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_what_one_process_wrote_the_other_lists_at_once(apiserver: OwnApiserver) -> None:
    space = apiserver.tenant("linear")
    at = "/api/v1/namespaces/default/configmaps"
    for number in range(12):
        writer, reader = space.at("/clusters/root:linear"), space.at("/clusters/root:linear")
        assert writer.send("POST", at, {"metadata": {"name": f"n{number}"}}).status == 201
        names = [item["metadata"]["name"] for item in reader.send("GET", at)["items"]]
        assert f"n{number}" in names
        writer.close()
        reader.close()
