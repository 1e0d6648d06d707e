"""Makes the chain over the history append-only. Old batches may go with their links (`supervision.history.ends`)."""

from __future__ import annotations

from django.db import migrations

# Both functions look at what is left after the whole statement: a batch and its links go together.
FORWARDS = """
CREATE FUNCTION supervision_keep_batches() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT FROM gone WHERE made_at > now() - interval '90 days') THEN
    RAISE EXCEPTION '% is append-only: batches younger than 90 days stay', TG_TABLE_NAME
      USING ERRCODE = 'integrity_constraint_violation', HINT = 'docs/operations.md, "Append-only history"';
  END IF;
  RETURN NULL;
END $$;

CREATE FUNCTION supervision_keep_links() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE held boolean;
BEGIN
  EXECUTE format('SELECT EXISTS (SELECT FROM gone g JOIN %I.supervision_historybatch b ON b.number = g.batch)', TG_TABLE_SCHEMA) INTO held;
  IF held THEN
    RAISE EXCEPTION '% is append-only: links stay as long as their batch', TG_TABLE_NAME
      USING ERRCODE = 'integrity_constraint_violation', HINT = 'docs/operations.md, "Append-only history"';
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER batches_unchanged BEFORE UPDATE OR TRUNCATE ON supervision_historybatch
  FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_change();
CREATE TRIGGER batches_kept AFTER DELETE ON supervision_historybatch REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION supervision_keep_batches();
CREATE TRIGGER links_unchanged BEFORE UPDATE OR TRUNCATE ON supervision_historylink
  FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_change();
CREATE TRIGGER links_kept AFTER DELETE ON supervision_historylink REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION supervision_keep_links();
"""
BACKWARDS = """
DROP TRIGGER links_kept ON supervision_historylink;
DROP TRIGGER links_unchanged ON supervision_historylink;
DROP TRIGGER batches_kept ON supervision_historybatch;
DROP TRIGGER batches_unchanged ON supervision_historybatch;
DROP FUNCTION supervision_keep_links();
DROP FUNCTION supervision_keep_batches();
"""


class Migration(migrations.Migration):
    """Functions and triggers; no row is read or written."""

    accepted = {"two-tables-in-one-transaction": "only one process writes these tables, which the migration before has made"}
    dependencies = [("supervision", "0036_chain")]
    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
