"""PGMQ, the broker in PostgreSQL: installs its tables and functions, and our versions of two functions. Needs the extra `pgmq`."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db import connections, transaction
from pgmq.install import get_embedded_install_sql

# A starting consumer creates its queue. PGMQ's own functions lock an existing queue's table: they wait for a reader (a frozen
# process, for example), and later readers wait behind them. They also drop and recreate the trigger, so that two consumers
# that start at once collide and one of them ends. These versions leave existing objects alone, and use an advisory lock.
_START_SOFTLY = """
CREATE OR REPLACE FUNCTION pgmq.create(queue_name TEXT) RETURNS void AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM pgmq.meta m WHERE m.queue_name = "create".queue_name) THEN
    PERFORM pgmq.create_non_partitioned("create".queue_name);
  END IF;
END;
$$ LANGUAGE plpgsql;
CREATE OR REPLACE FUNCTION pgmq.enable_notify_insert(queue_name TEXT, throttle_interval_ms INTEGER DEFAULT 250)
RETURNS void AS $$
DECLARE
  qtable TEXT := pgmq.format_table_name(queue_name, 'q');
BEGIN
  PERFORM pg_advisory_xact_lock(hashtext('enable pgmq notify'));
  INSERT INTO pgmq.notify_insert_throttle (queue_name, throttle_interval_ms)
  VALUES (enable_notify_insert.queue_name, enable_notify_insert.throttle_interval_ms)
  ON CONFLICT ON CONSTRAINT notify_insert_throttle_queue_name_key
  DO UPDATE SET throttle_interval_ms = EXCLUDED.throttle_interval_ms
   WHERE pgmq.notify_insert_throttle.throttle_interval_ms <> EXCLUDED.throttle_interval_ms;
  IF NOT EXISTS (SELECT FROM pg_trigger
                  WHERE tgrelid = format('pgmq.%I', qtable)::regclass AND tgname = 'trigger_notify_queue_insert_listeners') THEN
    EXECUTE format('CREATE CONSTRAINT TRIGGER trigger_notify_queue_insert_listeners AFTER INSERT ON pgmq.%I'
                   ' DEFERRABLE FOR EACH ROW EXECUTE PROCEDURE pgmq.notify_queue_listeners()', qtable);
  END IF;
END;
$$ LANGUAGE plpgsql;
"""


def install_pgmq(using: str) -> None:
    """Install PGMQ in this Django database. May be repeated."""
    connection = connections[using]
    connection.ensure_connection()
    with transaction.atomic(using=using):
        _install(connection.connection)


def install_pgmq_at(conn_string: str) -> None:
    """Install PGMQ in the database of this libpq connection string. May be repeated. Raises psycopg.Error."""
    with psycopg.connect(conn_string, connect_timeout=5) as connection:
        _install(connection)


def _install(connection: Any) -> None:
    """PGMQ and our versions of two functions, in the caller's transaction. PGMQ's script fails on a second run, so check first."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtext('install pgmq'))")
    row = connection.execute("SELECT to_regclass('pgmq.meta') IS NOT NULL").fetchone()
    if not row[0]:
        connection.execute(get_embedded_install_sql())
    connection.execute(_START_SOFTLY)
