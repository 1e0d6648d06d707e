"""Makes the history of runs and the operators' log append-only: triggers refuse to change or remove rows, for owners too.

The archive may remove the events of a run that it holds unchanged, and old entries of the log come to their end. A migration that
has to change such rows disables the trigger first (`ALTER TABLE ... DISABLE TRIGGER`), which only the owner of the table can do.
Django's test runner truncates the tables of its databases, which it names test_...; there it may. A statement that inserts runs
none of these triggers.
"""

from __future__ import annotations

from django.db import migrations

# Names are qualified: a temporary table of the same name must not stand in for the archive.
FORWARDS = """
CREATE FUNCTION supervision_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'TRUNCATE' AND starts_with(current_database(), 'test_') THEN
    RETURN NULL;
  END IF;
  RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP
    USING ERRCODE = 'integrity_constraint_violation', HINT = 'docs/operations.md, "Append-only history"';
END $$;

CREATE FUNCTION supervision_keep_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE kept bigint;
BEGIN
  EXECUTE format($q$
    SELECT g.run_id
      FROM (SELECT run_id, jsonb_agg(jsonb_strip_nulls(to_jsonb(e) - 'run_id') ORDER BY seq) AS events FROM gone e GROUP BY run_id) g
     WHERE NOT EXISTS (SELECT FROM %I.supervision_archivedrun a WHERE a.run_id = g.run_id AND a.body -> 'events' = g.events)
     LIMIT 1 $q$, TG_TABLE_SCHEMA) INTO kept;
  IF kept IS NOT NULL THEN
    RAISE EXCEPTION '% is append-only: the archive does not hold these events of run %', TG_TABLE_NAME, kept
      USING ERRCODE = 'integrity_constraint_violation', HINT = 'docs/operations.md, "Append-only history"';
  END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION supervision_keep_log() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM gone WHERE action_time > now() - interval '90 days') THEN
    RAISE EXCEPTION '% is append-only: entries younger than 90 days stay', TG_TABLE_NAME
      USING ERRCODE = 'integrity_constraint_violation', HINT = 'docs/operations.md, "Append-only history"';
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER events_unchanged BEFORE UPDATE OR TRUNCATE ON supervision_stepevent
  FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_change();
CREATE TRIGGER events_kept AFTER DELETE ON supervision_stepevent REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION supervision_keep_events();
CREATE TRIGGER log_unchanged BEFORE UPDATE OR TRUNCATE ON django_admin_log
  FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_change();
CREATE TRIGGER log_kept AFTER DELETE ON django_admin_log REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION supervision_keep_log();
"""
BACKWARDS = """
DROP TRIGGER log_kept ON django_admin_log;
DROP TRIGGER log_unchanged ON django_admin_log;
DROP TRIGGER events_kept ON supervision_stepevent;
DROP TRIGGER events_unchanged ON supervision_stepevent;
DROP FUNCTION supervision_keep_log();
DROP FUNCTION supervision_keep_events();
DROP FUNCTION supervision_refuse_change();
"""


class Migration(migrations.Migration):
    """Functions and triggers; no row is read or written."""

    accepted = {"two-tables-in-one-transaction": "no transaction of an order writes the operators' log"}
    dependencies = [("supervision", "0033_step_awaiting"), ("admin", "0003_logentry_add_action_flag_choices")]
    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
