"""Lines of token and basic-auth files (AN4, AN5)."""

import csv
import io
import re

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from kube.authentication.authfiles import FILE_MAX, AuthFileError, entry, parse
from kube.authentication.userinfo import tenant_reasons
from kube.requests.names import RESERVED_TENANTS
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
        assert len(columns) >= 5
        assert columns[-2] == ""
        assert read.tenant == columns[-1]
    else:
        assert read.tenant == "system"
        assert "" not in columns[4:]
        assert len(columns) < 5 or columns[-2]


def quoted(column: str) -> str:
    return f'"{column.replace(chr(34), chr(34) * 2)}"'


COLUMNS = st.sampled_from(
    ["", "", "s", "ann", "1", "dev,ops", "t1", "T1", "system", "all", "*", "t1 ", " t1", "tenant:t1"]
)
COLUMNS |= st.sampled_from(
    ["t\uff11", "\u212a8s", "a.b", "a/b", "-a", "x" * 63, "x" * 64, 'say "hi"', "#s", "é", "a\0b"]
)
COLUMNS |= st.sampled_from(
    ["apis.kcp.io:binding:x", "system:masters", "system:serviceaccounts", "\ufefft1", "a\rb", "dev,"]
)
WRITTEN = COLUMNS | COLUMNS.map(quoted)
LINES = st.lists(WRITTEN, min_size=1, max_size=9).map(",".join)
TENANTS = st.sampled_from(["t1", "T1", "system"])
GROUPS = st.sampled_from(["", "dev", '"dev,ops"'])
OTHERS = st.sampled_from(["", "", ",note", ",note,", ',"a, b"'])
USERS = st.builds("s,ann,1,{}{},,{}".format, GROUPS, OTHERS, TENANTS | WRITTEN) | st.builds(
    "s,ann,1,{}{}".format, GROUPS, OTHERS
)
REACHING = settings(max_examples=3000, deadline=None, phases=[Phase.generate], derandomize=True)
FILES = st.builds(
    lambda mark, lines, end: (mark + end.join(lines)).encode("utf-8", "surrogatepass"),
    st.sampled_from(["", "", "\ufeff"]),
    st.lists(USERS, max_size=3)
    | st.lists(LINES | USERS | st.sampled_from(["", "  ", "# a,b,c,,,t9", '"# a",b,c,,,t9']), max_size=4),
    st.sampled_from(["\n", "\r\n", "\r"]),
)


@settings(max_examples=300)
@given(FILES)
def test_a_file_gives_the_tenants_that_the_rule_gives(data: bytes) -> None:
    """AN4, FILE-01 to FILE-08: another reader of CSV finds each user, and its tenant where the rule wants it."""
    try:
        entries = parse(data)
    except AuthFileError as error:
        assert error.line >= 1
        return
    lines = data.decode().split("\n")
    for read in entries:
        (columns,) = csv.reader([lines[read.line - 1].removesuffix("\r")], strict=True)
        assert (read.secret, read.name, read.uid) == tuple(columns[:3])
        assert read.groups == tuple(columns[3].split(",") if len(columns) > 3 and columns[3] else ())
        empty = [position for position, column in enumerate(columns) if position > 3 and not column]
        if read.explicit:
            assert (read.tenant, empty) == (columns[-1], [len(columns) - 2] if len(columns) > 5 else [])
            assert not columns[-2]
        else:
            assert (read.tenant, empty, len(columns) == 5 and not columns[3]) == ("system", [], False)
        assert re.fullmatch("[A-Za-z0-9-]{1,63}", read.tenant)
        assert read.tenant == "system" or read.tenant.lower() not in RESERVED_TENANTS


@pytest.mark.parametrize(
    "reached",
    [
        lambda read: read.explicit and read.tenant == "T1" and len(read.groups) > 1,
        lambda read: not read.explicit and read.line > 1,
    ],
)
def test_the_files_that_are_tried_are_not_all_refused(reached) -> None:
    """The property above would hold if nothing were ever accepted."""

    def is_reached(data: bytes) -> bool:
        try:
            return any(map(reached, parse(data)))
        except AuthFileError:
            return False

    assert find(FILES, is_reached, settings=REACHING)


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
