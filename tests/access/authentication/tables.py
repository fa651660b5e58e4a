"""The tables of subjects and file lines, as the tests run them and as docs/access/authentication.md shows them."""

from pathlib import Path
from typing import Any

import yaml

TESTS = Path(__file__).parents[2]
ROWS: dict[str, list[dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("token_lines.yaml").read_text())
SUBJECTS: list[dict[str, Any]] = yaml.safe_load((TESTS / "kube" / "certificate_subjects.yaml").read_text())
DOCUMENT = TESTS.parent / "docs" / "access" / "authentication.md"


def subjects_table() -> str:
    """Every certificate subject, one row each."""
    rows = ["| subject | tenant | user | groups | |", "| --- | --- | --- | --- | --- |"]
    for row in SUBJECTS:
        subject = "".join(f"/{kind}={value}" for kind, value in row["subject"])
        rows.append(_row(subject, row, row["case"], row.get("refused", "")))
    return "\n".join(rows)


def lines_table() -> str:
    """Every line of a token file, one row each."""
    rows = ["| line | tenant | user | groups | |", "| --- | --- | --- | --- | --- |"]
    rows += [_row(row["line"], row, row["why"], "refused" if row.get("refused") else "") for row in ROWS["token_lines"]]
    return "\n".join(rows)


def _row(what: str, row: dict[str, Any], why: str, refused: str) -> str:
    trusted = " (own authority)" if row.get("system") else ""
    if refused:
        return f"| {_code(what)}{trusted} | refused | | | {why} |"
    groups = ", ".join(map(_code, row["groups"]))
    return f"| {_code(what)}{trusted} | {_code(row['tenant'])} | {_code(row['user'])} | {groups} | {why} |"


def _code(text: str) -> str:
    shown = text if len(text) <= 60 else f"{text[:20]}… ({len(text)} characters)"
    escaped = shown.encode("unicode_escape").decode() if not shown.isprintable() else shown
    return "`" + escaped.replace("|", "\\|") + "`" if escaped else "(empty)"
