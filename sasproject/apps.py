"""What must exist in the database beside the models: the broker's queues-in-SQL and the shared cache table."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.management import call_command
from django.db import connections, transaction
from django.db.models.signals import post_migrate
from pgmq.install import get_embedded_install_sql

# A consumer that starts asks for its queue. PGMQ's own functions then lock the queue's table, behind whoever is reading
# (a frozen process, for example), with everybody else behind them; and they drop and make the trigger anew, so that two
# starting at once collide and one of them ends. These touch nothing that is there already, and have a second one wait.
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


class ProjectConfig(AppConfig):
    """Completes `migrate`, so that one command prepares a database on any broker."""

    name = "sasproject"

    def ready(self) -> None:
        # Django sends the signal for apps with models only, and this one has none: listen to the engine's.
        post_migrate.connect(complete_database, sender=apps.get_app_config("supervision"))


def complete_database(using: str = "default", **_: Any) -> None:
    """Create the cache table and, where the broker lives in this database, PGMQ. Harmless when repeated."""
    call_command("createcachetable", database=using, verbosity=0)
    if settings.BROKER_IN_DATABASE:
        install_pgmq(using)


def install_pgmq(using: str) -> None:
    """Install PGMQ's functions once, with our correction; its script fails on a second run, hence the look and the lock."""
    connection = connections[using]
    with connection.cursor() as cursor, transaction.atomic(using=using):
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('install pgmq'))")
        cursor.execute("SELECT to_regclass('pgmq.meta') IS NOT NULL")
        if not cursor.fetchone()[0]:
            cursor.connection.execute(get_embedded_install_sql())
        cursor.connection.execute(_START_SOFTLY)
