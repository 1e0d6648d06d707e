"""What Django's models cannot say about the store's tables.

Room for every row's update in its own page (fillfactor): what stays as it was is then not logged again. Vacuum by rows
rather than by share of the table, a trigger that keeps final states final for every writer, and one that announces events
to listening web processes, once per statement.
"""

from __future__ import annotations

from django.db import migrations

STORAGE = """
ALTER TABLE supervision_submission SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE supervision_run SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE supervision_stepstate SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_scale_factor = 0.05);
ALTER TABLE supervision_stepevent SET (autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_analyze_scale_factor = 0.05);
"""

STORAGE_BACK = """
ALTER TABLE supervision_submission RESET (fillfactor, autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE supervision_run RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE supervision_stepstate RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_analyze_scale_factor);
ALTER TABLE supervision_stepevent RESET (autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor);
"""

# The WHEN clause is evaluated without calling the function: a legal update pays next to nothing. AFTER, because a
# BEFORE trigger locks each row first, even where its WHEN is false, and writes that to the log.
FINAL = """
CREATE FUNCTION supervision_refuse_leaving_a_final_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is final and cannot become %', OLD.process_state, NEW.process_state
        USING ERRCODE = 'check_violation', TABLE = TG_TABLE_NAME;
END $$;
CREATE TRIGGER processed_never_moves_on AFTER UPDATE ON supervision_stepstate FOR EACH ROW
    WHEN (OLD.process_state = 'Processed' AND NEW.process_state <> 'Processed')
    EXECUTE FUNCTION supervision_refuse_leaving_a_final_state();
CREATE TRIGGER a_finished_run_never_moves_on AFTER UPDATE ON supervision_run FOR EACH ROW
    WHEN (OLD.process_state IN ('Processed', 'Cancelled') AND NEW.process_state <> OLD.process_state)
    EXECUTE FUNCTION supervision_refuse_leaving_a_final_state();
"""

FINAL_BACK = """
DROP TRIGGER processed_never_moves_on ON supervision_stepstate;
DROP TRIGGER a_finished_run_never_moves_on ON supervision_run;
DROP FUNCTION supervision_refuse_leaving_a_final_state();
"""

# Committed with the events, so no listener hears of a change that was rolled back, nor of a statement that wrote none. A payload holds 8,000 bytes: a larger batch is
# announced without names, and every listener looks.
ANNOUNCE = """
CREATE FUNCTION supervision_announce_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('supervision_events',
                      CASE WHEN count(*) > 300 THEN '*' ELSE coalesce(string_agg(DISTINCT run_id::text, ','), '') END)
       FROM written HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER announce_events AFTER INSERT ON supervision_stepevent REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_announce_events();
"""

ANNOUNCE_BACK = """
DROP TRIGGER announce_events ON supervision_stepevent;
DROP FUNCTION supervision_announce_events();
"""


class Migration(migrations.Migration):
    """Storage parameters and triggers."""

    dependencies = [("supervision", "0001_initial")]

    operations = [
        migrations.RunSQL(STORAGE, STORAGE_BACK),
        migrations.RunSQL(FINAL, FINAL_BACK),
        migrations.RunSQL(ANNOUNCE, ANNOUNCE_BACK),
    ]
