"""What the documentation says of identities is what the tests run."""

from tests.access.authentication.tables import DOCUMENT, lines_table, subjects_table


def test_the_tables_of_the_documentation_are_the_tests_tables():
    """AN1 to AN5."""
    document = DOCUMENT.read_text()
    assert subjects_table() in document
    assert lines_table() in document
