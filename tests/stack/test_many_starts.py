"""Several copies of a role start at the same moment on the pgmq broker: none of them fails."""

from __future__ import annotations

import pytest
from django.db import connection

from supervision.transports.pgmq_tables import install_pgmq
from tests.engine.kit import another_connection, at_once


def consume() -> None:
    """Prepare a queue as a starting consumer does."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgmq.create('starting')")
        cursor.execute("SELECT pgmq.enable_notify_insert('starting', 0)")


@pytest.fixture
def pgmq(transactional_db):
    """PGMQ in the tests' database, for one test."""
    install_pgmq("default")
    install_pgmq("default")  # harmless when repeated
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA pgmq CASCADE")


def test_a_consumer_starts_while_another_one_is_frozen_with_a_message_in_hand(pgmq):
    consume()
    with another_connection() as frozen, connection.cursor() as cursor:
        cursor.execute("SELECT pgmq.send('starting', '{}'::jsonb)")
        frozen.execute("SELECT pgmq.read('starting', 60, 1)")

        cursor.execute("SET lock_timeout = '2s'")
        consume()
        cursor.execute("RESET lock_timeout")


def test_consumers_that_start_at_once_do_not_collide(pgmq):
    for _ in range(5):
        assert at_once(*[consume] * 6) == [None] * 6
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'pgmq.q_starting'::regclass AND NOT tgisinternal")
            assert cursor.fetchone() == (1,)
            cursor.execute("SELECT pgmq.drop_queue('starting')")
