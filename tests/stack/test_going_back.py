"""`manage.py migrate` to an older migration: it deletes nothing unasked, and says which rows do not fit."""

from __future__ import annotations

import psycopg
import pytest

from tests.support.migrating import answer, manage

pytestmark = pytest.mark.timeout(900)
COLUMN = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'supervision_deadletter'::regclass AND attname = 'digest'"
LETTERS = "INSERT INTO supervision_deadletter (source, body, reason, digest) VALUES ('s', '', 'r', 'd'), ('s', '', 'r', '')"
ENDPOINT = """
INSERT INTO supervision_webhookendpoint (public_id, client, url, secret) VALUES ('w', 'shop', 'https://example.com/', 's') RETURNING id
"""
TEST = """
INSERT INTO supervision_delivery (endpoint_id, public_id, client, seq, event, message_id, body)
VALUES (%s, 'p', 'shop', 0, 'test', 'm', '{}')
"""


def test_what_would_be_lost_is_named_and_nothing_is_deleted_unasked(url: str):
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(LETTERS)
        database.execute("INSERT INTO supervision_runnote (run_key, author, text) VALUES ('r', 'olga', 'a'), ('r', 'olga', 'b')")

    refused = manage(url, "migrate", "supervision", "0018")

    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "  supervision_runnote: 2 rows (supervision.0019_run_notes)\n" in refused.stderr
    assert "  supervision_deadletter.digest: 1 row (supervision.0042_blanked_letters)\n" in refused.stderr
    assert "blanked_at" not in refused.stderr
    assert "supervision_exchange" not in refused.stderr
    assert "--lose-data" in refused.stderr
    assert (answer(url, "SELECT count(*) FROM supervision_runnote"), answer(url, COLUMN)) == (2, 1)
    assert manage(url, "migrate", "--check").returncode == 0

    done = manage(url, "migrate", "supervision", "0018", "--lose-data")

    assert done.returncode == 0, done.stderr
    assert (answer(url, "SELECT to_regclass('supervision_runnote')"), answer(url, COLUMN)) == (None, 0)


def test_rows_that_do_not_fit_the_older_tables_are_named(url: str):
    with psycopg.connect(url, autocommit=True) as database:
        (endpoint,) = database.execute(ENDPOINT).fetchone()
        database.execute(TEST, [endpoint])

    refused = manage(url, "migrate", "supervision", "0028", "--lose-data")

    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "supervision.0029_webhook_tests cannot be undone: rows do not fit the older tables" in refused.stderr
    assert 'column "run_id"' in refused.stderr
    assert answer(url, "SELECT count(*) FROM supervision_delivery") == 1

    answer(url, "DELETE FROM supervision_delivery RETURNING id")
    done = manage(url, "migrate", "supervision", "0028", "--lose-data")
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("app", ["supervision", "orders"])
def test_a_database_that_went_back_to_the_first_release_comes_forward_to_the_same_schema(url: str, app: str):
    columns = (
        "SELECT md5(string_agg(concat(table_name, '.', column_name, ' ', data_type, ' ', is_nullable, ' ', column_default), ','"
        " ORDER BY table_name, column_name)) FROM information_schema.columns WHERE table_schema = 'public'"
    )
    indexes = "SELECT md5(string_agg(indexdef, ',' ORDER BY indexdef)) FROM pg_indexes WHERE schemaname = 'public'"
    functions = (
        "SELECT md5(string_agg(pg_get_functiondef(p.oid), ',' ORDER BY p.proname)) FROM pg_proc p"
        " WHERE p.pronamespace = 'public'::regnamespace AND p.prokind = 'f'"
    )
    triggers = "SELECT md5(string_agg(pg_get_triggerdef(oid), ',' ORDER BY tgname)) FROM pg_trigger WHERE NOT tgisinternal"
    before = [answer(url, query) for query in (columns, indexes, functions, triggers)]

    back = manage(url, "migrate", app, "0001", "--lose-data", "-v0")
    forward = manage(url, "migrate", "-v0")

    assert (back.returncode, forward.returncode) == (0, 0), back.stderr + forward.stderr
    assert [answer(url, query) for query in (columns, indexes, functions, triggers)] == before
