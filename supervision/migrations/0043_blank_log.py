"""Lets the erasure of a person blank messages of the operators' log, where a trigger refuses every change of it.

A message, and the name of what it was about, may become `[erased]`, as a whole; nothing else may change. Where no trigger watches the
log, nothing is done.
"""

from __future__ import annotations

from django.db import migrations

FORWARDS = """
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_trigger WHERE tgname = 'log_unchanged' AND tgrelid = 'django_admin_log'::regclass) THEN
    CREATE FUNCTION supervision_blank_log() RETURNS trigger LANGUAGE plpgsql AS $f$
    BEGIN
      IF NEW.change_message NOT IN (OLD.change_message, '[erased]') OR NEW.object_repr NOT IN (OLD.object_repr, '[erased]')
         OR to_jsonb(NEW) - '{change_message,object_repr}'::text[] <> to_jsonb(OLD) - '{change_message,object_repr}'::text[] THEN
        RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP
          USING ERRCODE = 'integrity_constraint_violation', HINT = 'docs/operations.md, "Append-only history"';
      END IF;
      RETURN NEW;
    END $f$;
    DROP TRIGGER log_unchanged ON django_admin_log;
    CREATE TRIGGER log_unchanged BEFORE TRUNCATE ON django_admin_log FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_change();
    CREATE TRIGGER log_blanked BEFORE UPDATE ON django_admin_log FOR EACH ROW EXECUTE FUNCTION supervision_blank_log();
  END IF;
END $$;
"""
BACKWARDS = """
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_trigger WHERE tgname = 'log_blanked' AND tgrelid = 'django_admin_log'::regclass) THEN
    DROP TRIGGER log_blanked ON django_admin_log;
    DROP FUNCTION supervision_blank_log();
    DROP TRIGGER log_unchanged ON django_admin_log;
    CREATE TRIGGER log_unchanged BEFORE UPDATE OR TRUNCATE ON django_admin_log
      FOR EACH STATEMENT EXECUTE FUNCTION supervision_refuse_change();
  END IF;
END $$;
"""


class Migration(migrations.Migration):
    """One trigger in place of another; no row is read or written."""

    dependencies = [("supervision", "0042_blanked_letters"), ("admin", "0003_logentry_add_action_flag_choices")]
    operations = [migrations.RunSQL(FORWARDS, BACKWARDS)]
