"""docs/privacy.md and the declarations behind it: each column of text, JSON or bytes is declared once, as personal or with a reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from orders.privacy import held
from supervision import conf
from supervision.privacy import held as engine
from supervision.privacy.words import MASK, Words

PAGE = Path(__file__).resolve().parents[2] / "docs" / "privacy.md"
# Neither has a model: counts of requests, Django's cache, the migrations' names.
NO_MODEL = {"orders_requestcount", "sas_cache", "django_migrations"}
_COLUMNS = """
SELECT c.table_name || '.' || c.column_name
  FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
 WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND NOT c.table_name = ANY (%s)
   AND c.data_type IN ('text', 'character varying', 'character', 'json', 'jsonb', 'bytea', 'ARRAY', 'inet', 'xml', 'USER-DEFINED')
"""


@pytest.mark.django_db
def test_each_column_that_can_hold_words_is_declared_once():
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, [list(NO_MODEL)])
        there = {name for (name,) in cursor.fetchall()}
    declared = Counter(held.columns())

    assert {name for name, times in declared.items() if times > 1} == set()
    assert there - declared.keys() == set(), "declare it in orders/privacy/held.py or supervision/privacy/held.py"
    assert declared.keys() - there == set()


def test_the_page_has_the_table_as_it_is_declared():
    assert "\n".join(held.table()) in PAGE.read_text()


def test_what_ends_by_itself_names_a_setting_that_exists():
    known = {*conf.DEFAULTS, *(name for name in dir(settings) if name.isupper())}
    said = {
        word.strip(";")
        for rows in (engine.PERSONAL, held.PERSONAL)
        for helds in rows.values()
        for one in helds
        for word in one.until.split()
    }

    assert {word for word in said if word.isupper()} <= known


def test_a_persons_name_takes_no_word_of_the_program_out_of_an_archived_run():
    event = {"direction": "do", "from_state": "Pending", "to_state": "Error", "why": "Do Error asked for it"}

    assert Words(["Do", "Error", "Do Error"]).out_of_json([event]) == [{**event, "why": f"{MASK} asked for it"}]
    assert Words(["Error"]).out_of_json({"direction": {"to": "Error"}}) == {"direction": {"to": MASK}}
    assert Words(["Error"]).out_of_json({"to_state": "Error again"}) == {"to_state": f"{MASK} again"}
