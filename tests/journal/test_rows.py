"""The format of entries in the files: RFC 4180, UTF-8, and no cell that a spreadsheet would take for a formula."""

from __future__ import annotations

import io
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervision.journal import csv_format
from supervision.journal.csv_format import Unwritable, guarded, unguarded

AT = datetime(2026, 10, 1, 12, 0, 0, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+393331234567", "'+393331234567"),
        ("-5", "'-5"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("\n=1", "'\n=1"),
        ("＝1", "'＝1"),
        ("'=1", "''=1"),
        ("'s-Hertogenbosch", "'s-Hertogenbosch"),
        ("O'Brien", "O'Brien"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_a_text_that_a_spreadsheet_would_calculate_gets_an_apostrophe(text, cell):
    assert guarded(text) == cell
    assert unguarded(cell) == text


@given(st.text())
def test_every_text_comes_back_from_its_cell_as_it_was(text):
    assert unguarded(guarded(text)) == text
    assert not guarded(text).startswith(("=", "+", "-", "@", "\t", "\r"))


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20),
                       st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), max_size=5))  # fmt: skip
def test_what_is_written_can_be_read_again_whatever_it_is(body):
    if set(body) & set(csv_format.OWN_COLUMNS):
        return
    columns = list(body)
    cells = {name: csv_format.cell(name, value) for name, value in body.items()}

    content = csv_format.header(columns) + csv_format.line(columns, "e-1", AT, cells)
    header, row = csv_format.parse(io.StringIO(content.decode(), newline=""))

    assert [unguarded(name) for name in header] == ["event_id", "recorded_at", *columns]
    assert [unguarded(value) for value in row] == ["e-1", "2026-10-01T12:00:00.000005Z", *body.values()]
    assert content.endswith(b"\r\n")


def test_cells_with_commas_quotes_and_line_breaks_are_quoted_as_rfc_4180_has_it():
    assert csv_format.line(["a", "b"], "e", AT, {"a": 'x,"y"', "b": "1\n2"}).decode() == (
        'e,2026-10-01T12:00:00.000005Z,"x,""y""","1\n2"\r\n'
    )


def test_numbers_and_nothing_are_written_as_they_are():
    values = [-5, 1.5, True, False, None, 10**30]

    assert [csv_format.cell("a", value) for value in values] == ["-5", "1.5", "true", "false", "", "1" + "0" * 30]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"a": [1]}', "column a: expected a text"),
        ('{"a": {"b": 1}}', "column a: expected a text"),
        ('{"a": "x\\u0000"}', "column a: NUL"),
        ('{"a": "\\ud800"}', "column a: lone surrogates"),
        ('{"\\ud800": 1}', "a column's name: lone surrogates"),
        ('{"": 1}', "a column's name has 1 to 200 characters"),
        ('{"event_id": 1}', "the journal's own"),
        ('{"a": NaN}', "column a: not a number"),
        ('{"a": "' + "x" * 32768 + '"}', "column a: 32768 characters, a cell holds 32767"),
        ("[1]", "the body is not an object"),
        ('"why"', "the body is not an object: why"),
        ("{", "the body is not JSON"),
    ],
)
def test_what_no_cell_can_hold_is_refused_with_its_reason(body, words):
    with pytest.raises(Unwritable, match=words):
        csv_format.read(body)


@pytest.mark.parametrize("name", ["", "a/b", "..", "a..b", ".a", "A", "ä", "x" * 65, "a b", "a\n"])
def test_what_would_be_no_file_name_is_no_name(name):
    assert not csv_format.is_name(name)
