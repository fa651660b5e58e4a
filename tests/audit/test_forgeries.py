"""Nobody writes a line of the record or of the log that is not theirs, nor takes another's name in it (GW13)."""

from __future__ import annotations

import io
import logging
import logging.config
import sys

import pytest
from django.conf import settings
from hypothesis import given
from hypothesis import strategies as st

from audit.actions import Action
from audit.models import Outcome
from audit.recorder import record
from audit.redaction import clean, clean_text
from tests.audit.test_requests import kept, make_record, written

HIDING = [
    "olga\nsystem:worker",
    "olga\r\x1b[2K\x1b[1Asystem:worker",
    "olga\x9b2Ksystem:worker",
    "olga\u202ereggol",
    "ol\u200bga",
    "ol\u2066ga\u2069",
    "olga\u2028system:worker",
    "olga\u00a0",
    "ol\u00adga",
    "olga\x7f",
    "ol\x00ga",
    "ol\U000e0067ga",
    "\ud800olga",
]


@pytest.mark.parametrize("text", HIDING)
def test_a_recorded_text_is_one_line_that_hides_nothing(text: str) -> None:
    cleaned = clean_text(text)
    assert cleaned.isprintable()
    assert cleaned != clean_text("olga")


@given(st.text(), st.text())
def test_different_names_stay_different(one: str, other: str) -> None:
    for text in (one, other):
        assert clean_text(text).isprintable()
        assert clean_text(clean_text(text)) == clean_text(text)
    # Who writes an escape out by hand is seen to have written one.
    if one != other and one.isprintable() and other.isprintable() and len(one + other) < 200:
        assert (clean_text(one) == clean_text(other)) is ("[redacted]" in clean_text(one) and one != other)


def test_a_manifest_keeps_its_lines() -> None:
    assert clean({"text": "a:\n\tb"}) == {"text": "a:\n\tb"}
    assert clean({"text": "a\x1b[2K"}) == {"text": "a\\u001b[2K"}


@pytest.mark.django_db(transaction=True)
def test_no_request_forges_a_row() -> None:
    """Names by impersonation and from identity providers, paths, agents, reasons."""
    written(
        [
            make_record(actor=text, path=f"/api/{text}", user_agent=text, reason=text, code=403, allowed=False)
            for text in HIDING
        ]
    )
    rows = list(kept())
    assert len(rows) == len(HIDING)
    for row in rows:
        assert all(part.isprintable() for part in (row.actor, row.path, row.user_agent, row.reason))
        assert row.actor not in ("olga", "")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("text", HIDING)
def test_no_event_is_told_in_anothers_name(text: str) -> None:
    entry = record(Action.LOGIN_ALLOWED, actor=text, outcome=Outcome.SUCCESS, target=text, user_agent=text)
    assert all(part.isprintable() for part in (entry.actor, entry.target, entry.user_agent))
    assert entry.actor != "olga"


@pytest.mark.parametrize("text", HIDING[:-1])
def test_no_message_begins_a_line_of_the_log(text: str) -> None:
    """What clusters answer and strangers send is in warnings."""
    stream = io.StringIO()
    said = settings.LOGGING["formatters"]["line"]
    configurator = logging.config.DictConfigurator({"version": 1})
    handler = logging.StreamHandler(stream)
    handler.setFormatter(configurator.configure_formatter(dict(said)))
    logger = logging.getLogger("forged")
    logger.propagate = False
    logger.handlers.clear()
    logger.addHandler(handler)
    logger.warning("the cluster %s says: %s", "fra", text)
    try:
        raise ValueError(text)
    except ValueError:
        logger.exception("failed: %s", text)
    first, second, *below = stream.getvalue().split("\n")
    assert first.isprintable()
    assert second.isprintable()
    assert below[-1] == ""
    assert all(line.startswith("  ") or line == "Traceback (most recent call last):" for line in below[:-1])
    assert sys.exc_info() == (None, None, None)
