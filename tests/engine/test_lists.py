"""Lists reach PostgreSQL unchanged, with any content."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from supervision.postgres import db

pytestmark = pytest.mark.usefixtures("engine")

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


def echoed(kind: str, values: list[object]) -> object:
    return db.fetch(f"SELECT %(values)s::{kind}[]", {"values": values})[0][0]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bigint", [1, -(2**63), 2**63 - 1]),
        ("bigint", [1, None, 3]),
        ("bigint", []),
        ("text", []),
        ("text", ["", None, "NULL", "null"]),
        ("float8", [1.5, 2, -0.0, math.inf, None]),
        ("float8", [0.1, 1e300, -math.inf]),
        ("bool", [True, False]),
        ("bool", [True, None]),
    ],
)
def test_a_list_arrives_as_it_was(kind, values):
    assert echoed(kind, values) == values


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(TEXT, max_size=6))
@example(values=['"', "\\", '\\"', '","', "{}", "a,b", " x ", "\n", ""])
def test_texts_arrive_as_they_were(values):
    assert echoed("text", values) == values


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=st.lists(st.none() | TEXT, max_size=6))
def test_texts_with_nothing_among_them_arrive_as_they_were(values):
    assert echoed("text", values) == values


def test_a_text_that_the_database_cannot_keep_is_refused_and_not_cut_in_two():
    with pytest.raises(Exception, match="NUL"):
        echoed("text", ["a\0b", "c"])
