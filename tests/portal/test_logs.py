"""A line of the log tells of one event, says which request it is about, and takes no orders from strangers (GW13)."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Callable, Iterator

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from audit.requestnames import request_name
from portal.logformat import JSONFormatter, LineFormatter

LINE = LineFormatter("%(levelname)s %(name)s: %(message)s")
JSON = JSONFormatter()


@pytest.fixture(autouse=True)
def _outside_of_requests() -> Iterator[None]:
    """Tests before this one may have asked in the same context, which a server makes anew for every request."""
    before = request_name.set("")
    yield
    request_name.reset(before)


def record(words: str) -> logging.LogRecord:
    return logging.LogRecord("gateway", logging.WARNING, "", 0, "they say %s", (words,), None)


@given(st.text())
def test_whatever_strangers_say_is_one_line(words: str) -> None:
    assert len(LINE.format(record(words)).splitlines()) == 1
    told = JSON.format(record(words))
    assert len(told.splitlines()) == 1
    assert json.loads(told).keys() == {"time", "level", "logger", "message"}
    assert json.loads(told)["level"] == "WARNING"


def test_the_request_is_named_in_both_forms_and_outside_of_one_nothing_is() -> None:
    assert LINE.format(record("x")) == "WARNING gateway: they say x"
    before = request_name.set("0f3c")
    try:
        assert LINE.format(record("x")) == "WARNING gateway: they say x [0f3c]"
        assert json.loads(JSON.format(record("x")))["request"] == "0f3c"
    finally:
        request_name.reset(before)


def test_an_error_is_a_field_of_its_object() -> None:
    failed = record("x")
    try:
        raise ValueError("two\nlines")
    except ValueError:
        failed.exc_info = sys.exc_info()
    told = json.loads(JSON.format(failed))
    assert told["exception"].splitlines()[0].startswith("Traceback")
    assert "two" in told["exception"]


@pytest.mark.parametrize(
    ("formatter", "named"),
    [(LINE, lambda line: line.rpartition("[")[2].rstrip("]\n")), (JSON, lambda line: json.loads(line)["request"])],
)
def test_a_refusal_is_logged_with_the_name_that_its_answer_tells(
    formatter: logging.Formatter, named: Callable[[str], str]
) -> None:
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(formatter)
    logging.getLogger("django.request").addHandler(handler)
    try:
        answers = [Client().get(f"/api/v1/nothing-{number}") for number in range(2)]
    finally:
        logging.getLogger("django.request").removeHandler(handler)
    names = [answer.headers["X-Request-ID"] for answer in answers]
    assert [named(line) for line in said.getvalue().splitlines()] == names
    assert len(set(names)) == 2
