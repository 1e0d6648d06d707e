"""The triggers of child runs: a child learns who its parent is, and tells its parent of its end."""

from __future__ import annotations

# Only a run that `Child` names has a parent; its key alone says nothing. Other runs pay for the WHEN clause only.
PARENTS = (
    """
CREATE FUNCTION supervision_name_the_parent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.parent_key := (SELECT parent_key FROM supervision_child WHERE key = NEW.key);
    RETURN NEW;
END $$;
CREATE TRIGGER name_the_parent BEFORE INSERT ON supervision_run FOR EACH ROW
    WHEN (NEW.key LIKE '%:child') EXECUTE FUNCTION supervision_name_the_parent();
""",
    """
DROP TRIGGER name_the_parent ON supervision_run;
DROP FUNCTION supervision_name_the_parent();
""",
)

# In the transaction that ends a child. An item that is Processed passes its place on to the next item, and the parent hears of
# nothing. Otherwise the parent's step is called: it starts what may start, or it ends. The lock is the one of every signal: while
# it is held, the step does not fall asleep, so the signal is never missed. The signal has one row for each step, which is made
# new each time. A step asleep has its pickup time after `not_before` in `complete_by`. The rest of its wait no longer counts.
ENDS = (
    """
CREATE FUNCTION supervision_tell_the_parent() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    child supervision_child;
    signal text;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('supervision signal ' || NEW.parent_key, 0));
    IF NEW.process_state NOT IN ('Processed', 'Cancelled') THEN
        UPDATE supervision_child SET state = 'Undoing', ended_at = NULL WHERE key = NEW.key;
        RETURN NULL;
    END IF;
    UPDATE supervision_child SET state = NEW.process_state, ended_at = now() WHERE key = NEW.key RETURNING * INTO child;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    IF child.many AND NEW.process_state = 'Processed'
       AND EXISTS (SELECT FROM supervision_run p WHERE p.key = NEW.parent_key AND p.process_state = 'Processing') THEN
        WITH n AS MATERIALIZED (
            SELECT c.key FROM supervision_child c
             WHERE c.parent_key = child.parent_key AND c.step = child.step AND c.state = 'Waiting'
             ORDER BY c.number LIMIT 1 FOR UPDATE SKIP LOCKED),
        u AS (
            UPDATE supervision_child c SET state = 'Started', started_at = now() FROM n
             WHERE c.key = n.key AND c.state = 'Waiting' RETURNING c.*)
        INSERT INTO supervision_submission (public_id, workflow, payload, client, client_key, request_hash, session_key)
        SELECT key, workflow, payload, '', NULL, '', session_key FROM u;
        IF FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    IF NOT EXISTS (
        SELECT FROM supervision_run p JOIN supervision_stepstate s ON s.run_id = p.id
         WHERE p.key = NEW.parent_key AND s.name = child.step AND s.process_state || '' IN ('Pending', 'Processing', 'Error')) THEN
        RETURN NULL;
    END IF;
    signal := 'child:' || child.step;
    INSERT INTO supervision_signal (run_key, name, key, payload, sent_by) VALUES (NEW.parent_key, signal, 'ended', '{}', 'child runs')
    ON CONFLICT (run_key, name, key) DO UPDATE SET sent_at = now(), taken_by = NULL, taken_at = NULL, taken_attempt = NULL;
    WITH u AS (
        UPDATE supervision_stepstate s
           SET not_before = now(), turn_at = now() - p.priority * interval '600 s', complete_by = now() + (s.complete_by - s.not_before)
          FROM supervision_run p
         WHERE p.key = NEW.parent_key AND s.run_id = p.id AND s.awaits = signal AND s.process_state || '' = 'Pending'
           AND s.turn_at IS NULL AND s.not_before IS NOT NULL
        RETURNING s.run_id, s.direction, s.awaits_until)
    UPDATE supervision_run r SET complete_by = r.complete_by - greatest(u.awaits_until - now(), interval '0')
      FROM u WHERE r.id = u.run_id AND u.direction = 'do' AND r.complete_by IS NOT NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER tell_the_parent AFTER UPDATE OF process_state ON supervision_run FOR EACH ROW
    WHEN (NEW.parent_key IS NOT NULL AND OLD.process_state <> NEW.process_state
          AND (NEW.process_state IN ('Processed', 'Cancelled') OR OLD.process_state = 'Processed'))
    EXECUTE FUNCTION supervision_tell_the_parent();
""",
    """
DROP TRIGGER tell_the_parent ON supervision_run;
DROP FUNCTION supervision_tell_the_parent();
""",
)

# Several branches of the parent may be asleep at the same time, and what they wait together counts once: the parent's time moves
# back as the latest end of its waits does. Its run is locked first, so that the last statement sees what other branches committed.
_BEFORE = ENDS[0][ENDS[0].index("    WITH u AS (\n        UPDATE supervision_stepstate s") : ENDS[0].index("    RETURN NULL;\nEND $$;")]
_AFTER = """    FOR woken IN
        UPDATE supervision_stepstate s
           SET not_before = now(), turn_at = now() - p.priority * interval '600 s', complete_by = now() + (s.complete_by - s.not_before)
          FROM supervision_run p
         WHERE p.key = NEW.parent_key AND s.run_id = p.id AND s.awaits = signal AND s.process_state || '' = 'Pending'
           AND s.turn_at IS NULL AND s.not_before IS NOT NULL
        RETURNING s.run_id, s.direction, s.awaits_until
    LOOP
        CONTINUE WHEN woken.direction <> 'do';
        PERFORM FROM supervision_run WHERE id = woken.run_id FOR UPDATE;
        UPDATE supervision_run r
           SET complete_by = r.complete_by - (greatest(woken.awaits_until, o.until, now()) - greatest(o.until, now()))
          FROM (SELECT max(s.awaits_until) AS until FROM supervision_stepstate s
                 WHERE s.run_id = woken.run_id AND s.direction = 'do' AND s.process_state || '' = 'Pending'
                   AND s.turn_at IS NULL AND s.not_before IS NOT NULL) o
         WHERE r.id = woken.run_id AND r.complete_by IS NOT NULL;
    END LOOP;
"""


def _function(whole: str) -> str:
    return whole[: whole.index("CREATE TRIGGER")].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")


ENDS_COUNTED_ONCE = (
    _function(ENDS[0]).replace(_BEFORE, _AFTER).replace("    signal text;\n", "    signal text;\n    woken record;\n"),
    _function(ENDS[0]),
)

# A final state stays final for every writer, except that a child that is Processed is undone with its parent.
_FINAL = """
CREATE OR REPLACE TRIGGER a_finished_run_never_moves_on AFTER UPDATE ON supervision_run FOR EACH ROW
    WHEN (OLD.process_state IN ('Processed', 'Cancelled') AND NEW.process_state <> OLD.process_state{except_children})
    EXECUTE FUNCTION supervision_refuse_leaving_a_final_state();
"""
FINAL_STATES = (
    _FINAL.format(
        except_children="""
          AND NOT (OLD.process_state = 'Processed' AND NEW.process_state IN ('Compensating', 'Cancelled') AND OLD.parent_key IS NOT NULL)"""
    ),
    _FINAL.format(except_children=""),
)
