"""Lines of token and basic-auth files (AN4, AN5)."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.authfiles import FILE_MAX, AuthFileError, entry, parse
from kube.claims import tenant_reasons
from tests.access.authentication.tables import ROWS


@pytest.mark.parametrize("row", ROWS["token_lines"], ids=lambda row: row["line"])
def test_a_line_of_the_table_is_read_as_it_says(row):
    """AN4; FILE-01, FILE-02, FILE-04, FILE-07."""
    if row.get("refused"):
        with pytest.raises(AuthFileError) as refused:
            entry(row["line"], 7)
        assert refused.value.line == 7
        assert "s3cret" not in str(refused.value)
    else:
        read = entry(row["line"], 7)
        assert (read.tenant, read.name, read.uid, list(read.groups)) == (
            row["tenant"],
            row["user"],
            row["uid"],
            row["groups"],
        )


@given(st.binary(max_size=300) | st.text('ab,"# \r\n\0\tt1:é', max_size=120).map(str.encode))
def test_any_bytes_are_read_or_refused_with_a_line(data):
    """FILE-08: nothing but the documented error."""
    try:
        entries = parse(data)
    except AuthFileError as error:
        assert error.line >= 1
    else:
        for read in entries:
            assert read.secret
            assert not tenant_reasons(read.tenant)


@given(st.text('ab,"t1: é', max_size=60))
def test_a_line_gives_the_tenant_only_where_the_rule_has_it(line):
    """No line yields a tenant that the rules don't give it: checked by another reader of CSV."""
    try:
        read = entry(line)
    except AuthFileError:
        return
    columns = next(csv.reader(io.StringIO(line), strict=True))
    assert read.name == columns[1]
    if read.explicit:
        assert len(columns) >= 6
        assert columns[-2] == ""
        assert read.tenant == columns[-1]
    else:
        assert read.tenant == "system"
        assert "" not in columns[4:]
        assert len(columns) <= 5


def test_comments_and_blank_lines_are_skipped_and_lines_counted():
    """AN4."""
    read = parse(b'# who is who\r\n\r\n  \n"#s",alice,1,dev,,t1\r\ns2,bob,2,,,t2')
    assert [(one.secret, one.name, one.line) for one in read] == [("#s", "alice", 4), ("s2", "bob", 5)]


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"\xef\xbb\xbfs,alice,1", 1),
        (b"s,alice,1\n\xff,bob,2", 2),
        (b"s,alice,1\ns2,bo\0b,2", 2),
        (b"s,alice,1\ns2,bob\r,2", 2),
        (b"s,alice,1\n" + b"x" * 70_000, 2),
        (b"x" * (FILE_MAX + 1), 1),
    ],
)
def test_a_file_that_is_no_text_is_refused(data, line):
    """FILE-08."""
    with pytest.raises(AuthFileError) as refused:
        parse(data)
    assert refused.value.line == line


def test_the_secret_is_in_no_representation():
    """GW9."""
    assert not re.search("s3cret", repr(entry("s3cret,alice,1")))
