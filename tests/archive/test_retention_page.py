"""docs/operations.md, "Every table": each table of the database has a row that says when its rows end, and the named code ends them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from supervision import conf

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
SECTION = PAGE.partition("### Every table")[2].partition("\n**Idempotency keys**")[0]
ROWS = [tuple(cell.strip() for cell in row) for row in re.findall(r"^\| (`.*?) \|(.*)\|(.*)\|(.*)\|$", SECTION, re.MULTILINE)]
NAMED = [table for tables, *_rest in ROWS for table in re.findall(r"`(\w+)`", tables)]


@pytest.mark.django_db
def test_every_table_of_the_database_has_one_row():
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)

    assert sorted(NAMED) == sorted(tables)


@pytest.mark.parametrize(("tables", "ends", "after", "by"), ROWS, ids=[row[0][:40] for row in ROWS])
def test_each_row_names_code_and_settings_that_exist_and_what_stays_says_why(tables, ends, after, by):
    files = re.findall(r"`([\w/]+\.py)`", by)
    known = {*conf.DEFAULTS, *(name for name in dir(settings) if name.isupper())}

    for name in re.findall(r"`([A-Z_]+)`", after):
        assert name in known
    assert all((ROOT / file).is_file() for file in files)
    if not files:
        assert by == "Django's cache" or (ends.startswith("stay") and after)
        return
    code = "".join((ROOT / file).read_text() for file in files)
    for table in re.findall(r"`(\w+)`", tables):
        assert re.search(rf"\b(orders_|supervision_)?{table.partition('_')[2]}\b|\b{table}\b", code), table
        assert re.search(rf"DELETE FROM (\{{table\}}|supervision_\{{table\}}|{table}\b)", code), table  # noqa: S608 - a pattern
