"""What Django's models cannot say about the engine's tables: storage parameters, triggers and their functions.

Each entry is a statement and its reverse. Triggers are AFTER where they can be: a BEFORE trigger locks each row first, even where
its WHEN is false, and writes that to the log.
"""

from __future__ import annotations

# fillfactor: room for every row's update in its own page; what stays as it was is then not logged again. The tables are vacuumed by
# rows rather than by their share: each row is updated a few times, and the waiting ones are found first.
_VACUUM = {"autovacuum_vacuum_scale_factor": 0.02}
_INSERTS = {"autovacuum_vacuum_insert_scale_factor": 0.1}
_ANALYZE = {"autovacuum_analyze_scale_factor": 0.05}
_STORAGE = {
    "submission": {"fillfactor": 50, **_VACUUM, **_INSERTS, **_ANALYZE},
    "run": {"fillfactor": 50, **_VACUUM, **_ANALYZE},
    "stepstate": {"fillfactor": 50, **_VACUUM, **_ANALYZE},
    "stepevent": {**_INSERTS, **_ANALYZE},
    "delivery": {"fillfactor": 70, **_VACUUM, **_ANALYZE},
    "webhookendpoint": {"fillfactor": 50},
    "journalentry": {**_VACUUM, **_INSERTS, **_ANALYZE},
    "effect": {"fillfactor": 60, **_VACUUM, **_INSERTS, **_ANALYZE},
}
STORAGE = (
    "".join(
        f"ALTER TABLE supervision_{table} SET ({', '.join(f'{k} = {v}' for k, v in has.items())});\n" for table, has in _STORAGE.items()
    ),
    "".join(f"ALTER TABLE supervision_{table} RESET ({', '.join(has)});\n" for table, has in _STORAGE.items()),
)

# A final state stays final for every writer. A legal update pays for the WHEN clause only.
FINAL_STATES = (
    """
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
""",
    """
DROP TRIGGER processed_never_moves_on ON supervision_stepstate;
DROP TRIGGER a_finished_run_never_moves_on ON supervision_run;
DROP FUNCTION supervision_refuse_leaving_a_final_state();
""",
)

# Announces events to live pages, once per statement and only while one is open: transactions that announce something commit one
# after the other, behind one lock. A payload holds 8,000 bytes: a larger batch is announced without names, and every listener looks.
LIVE_EVENTS = (
    """
CREATE FUNCTION supervision_announce_events() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM supervision_audience WHERE until > now()) THEN
        PERFORM pg_notify('supervision_events',
                          CASE WHEN count(*) > 300 THEN '*' ELSE coalesce(string_agg(DISTINCT run_id::text, ','), '') END)
           FROM written HAVING count(*) > 0;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER announce_events AFTER INSERT ON supervision_stepevent REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_announce_events();
""",
    """
DROP TRIGGER announce_events ON supervision_stepevent;
DROP FUNCTION supervision_announce_events();
""",
)

# Status messages, written in the transaction that made them true. A run without a listener (`notify` false) pays for the WHEN clause
# only. For the others each change of state raises `status_seq` under the row's own lock, so the numbers have no gap and no repetition.
STATUS_MESSAGES = (
    """
CREATE FUNCTION supervision_tell_status(run bigint, seq integer, state text) RETURNS void LANGUAGE sql AS $$
    INSERT INTO supervision_notification (kind, run_id, payload)
    VALUES ('status', run, jsonb_build_object('seq', seq, 'status', state,
            'at', to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')))
$$;
CREATE FUNCTION supervision_tell_of_a_new_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.status_seq := 1;
    PERFORM supervision_tell_status(NEW.id, 1, 'received');
    IF NEW.process_state IN ('Processing', 'Processed', 'Error', 'Cancelled') THEN
        NEW.status_seq := 2;
        PERFORM supervision_tell_status(NEW.id, 2, lower(NEW.process_state));
    END IF;
    RETURN NEW;
END $$;
CREATE FUNCTION supervision_tell_of_a_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE number integer;
BEGIN
    IF NEW.process_state IN ('Processing', 'Processed', 'Error', 'Cancelled') THEN
        UPDATE supervision_run SET status_seq = status_seq + 1 WHERE id = NEW.id RETURNING status_seq INTO number;
        PERFORM supervision_tell_status(NEW.id, number, lower(NEW.process_state));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_of_a_new_run BEFORE INSERT ON supervision_run FOR EACH ROW
    WHEN (NEW.notify) EXECUTE FUNCTION supervision_tell_of_a_new_run();
CREATE TRIGGER tell_of_a_change AFTER UPDATE OF process_state ON supervision_run FOR EACH ROW
    WHEN (NEW.notify AND OLD.process_state IS DISTINCT FROM NEW.process_state)
    EXECUTE FUNCTION supervision_tell_of_a_change();
""",
    """
DROP TRIGGER tell_of_a_change ON supervision_run;
DROP TRIGGER tell_of_a_new_run ON supervision_run;
DROP FUNCTION supervision_tell_of_a_change();
DROP FUNCTION supervision_tell_of_a_new_run();
DROP FUNCTION supervision_tell_status(bigint, integer, text);
""",
)

# The delivery workers hear of new notifications at commit. Equal announcements of one transaction are one.
OUTBOX = (
    """
CREATE FUNCTION supervision_announce_outbox() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('supervision_outbox', CASE WHEN kind = 'status' THEN 'status' ELSE 'other' END)
       FROM (SELECT DISTINCT kind FROM written) kinds;
    RETURN NULL;
END $$;
CREATE TRIGGER announce_outbox AFTER INSERT ON supervision_notification REFERENCING NEW TABLE AS written
    FOR EACH STATEMENT EXECUTE FUNCTION supervision_announce_outbox();
""",
    """
DROP TRIGGER announce_outbox ON supervision_notification;
DROP FUNCTION supervision_announce_outbox();
""",
)

# The client of a run is the client of its submission. Only runs in a session pay for it.
SESSIONS = (
    """
CREATE FUNCTION supervision_name_the_session_s_client() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.session_client := coalesce((SELECT client FROM supervision_submission WHERE public_id = NEW.key), '');
    RETURN NEW;
END $$;
CREATE TRIGGER name_the_session_s_client BEFORE INSERT ON supervision_run FOR EACH ROW
    WHEN (NEW.session_key IS NOT NULL) EXECUTE FUNCTION supervision_name_the_session_s_client();
""",
    """
DROP TRIGGER name_the_session_s_client ON supervision_run;
DROP FUNCTION supervision_name_the_session_s_client();
""",
)

# The only writer of closures. It sees a change of a resource's row by an operator's SQL, too.
CLOSURES = (
    """
CREATE FUNCTION supervision_note_closure() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    was boolean := TG_OP <> 'INSERT' AND (OLD.breaker_state <> 'closed' OR OLD.paused);
    is_shut boolean := TG_OP <> 'DELETE' AND (NEW.breaker_state <> 'closed' OR NEW.paused);
BEGIN
    IF was AND (NOT is_shut OR OLD.name <> NEW.name) THEN
        UPDATE supervision_closure SET ended_at = now() WHERE resource = OLD.name AND ended_at IS NULL;
        was := false;
    END IF;
    IF is_shut AND NOT was THEN
        INSERT INTO supervision_closure (resource) VALUES (NEW.name) ON CONFLICT DO NOTHING;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER supervision_note_closure AFTER INSERT OR DELETE OR UPDATE OF breaker_state, paused, name
    ON supervision_resource FOR EACH ROW EXECUTE FUNCTION supervision_note_closure();
""",
    """
DROP TRIGGER supervision_note_closure ON supervision_resource;
DROP FUNCTION supervision_note_closure();
""",
)
