"""The invariants of runs whose plans branch. They are read from `after` alone, and not from what the engine counts by itself."""

from __future__ import annotations

# All steps before each step, directly or through others, of the runs that are being undone or were.
_BEFORE = """
before AS (
    SELECT run_id, position, unnest(after) AS earlier FROM supervision_stepstate
     WHERE direction = 'do' AND after IS NOT NULL AND run_id IN (SELECT run_id FROM supervision_stepstate WHERE direction = 'undo')
    UNION
    SELECT b.run_id, b.position, unnest(s.after)
      FROM before b JOIN supervision_stepstate s ON s.run_id = b.run_id AND s.direction = 'do' AND s.position = b.earlier)"""

CHECKS = (
    (
        "a branch processes one step at a time",
        """
        SELECT run_id, branch, count(*) AS processing
          FROM supervision_stepstate WHERE process_state = 'Processing'
         GROUP BY run_id, branch HAVING count(*) > 1
        """,
    ),
    (
        "a step begins after all steps that come before it",
        """
        SELECT s.run_id, s.position, s.process_state, p.position AS before, p.process_state AS not_done
          FROM supervision_stepstate s
          JOIN supervision_stepstate p ON p.run_id = s.run_id AND p.direction = 'do' AND p.position = ANY (s.after)
         WHERE s.direction = 'do' AND s.process_state IN ('Processing', 'Processed', 'Skipped')
           AND p.process_state NOT IN ('Processed', 'Skipped')
        """,
    ),
    (
        # By the events' numbers, as for lists. A step is undone a second time where the run went on from an earlier step.
        "branches are undone in reverse order",
        f"""
        WITH RECURSIVE {_BEFORE}
        SELECT later.run_id, later.position AS undone_too_late, earlier.position AS undone_too_early
          FROM before b
          JOIN supervision_stepstate later ON later.run_id = b.run_id AND later.direction = 'undo' AND later.position = b.position
          JOIN supervision_stepstate earlier ON earlier.run_id = b.run_id AND earlier.direction = 'undo' AND earlier.position = b.earlier
         WHERE earlier.process_state IN ('Processing', 'Processed')
           AND (later.process_state IN ('Pending', 'Processing', 'Error')
                OR (later.process_state = 'Processed' AND (SELECT max(e.seq) FROM supervision_stepevent e WHERE e.run_id = b.run_id
                        AND e.direction = 'undo' AND e.position = later.position)
                    > (SELECT min(e.seq) FROM supervision_stepevent e WHERE e.run_id = b.run_id
                        AND e.direction = 'undo' AND e.position = earlier.position AND e.to_state = 'Processing'
                        AND e.seq > coalesce((SELECT max(a.seq) FROM supervision_stepevent a WHERE a.run_id = b.run_id
                            AND a.direction = 'undo' AND a.position = earlier.position AND a.from_state = 'Processed'), 0))))
        """,  # noqa: S608 - our own words
    ),
    (
        # A run in Error holds back its waiting steps. A run of a session begins when it is released.
        "a step counts what it waits for, and is due when that is nothing",
        """
        SELECT w.run_id, w.position, w.run_state, w.waits_for, w.not_done, w.not_before
          FROM (SELECT s.run_id, s.position, r.process_state AS run_state, s.waits_for, s.not_before,
                       (SELECT count(*) FROM supervision_stepstate p
                         WHERE p.run_id = s.run_id AND p.direction = 'do' AND p.position = ANY (s.after)
                           AND p.process_state NOT IN ('Processed', 'Skipped')) AS not_done
                  FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id
                 WHERE s.direction = 'do' AND s.after IS NOT NULL AND s.process_state = 'Pending'
                   AND r.process_state IN ('Processing', 'Error')) w
         WHERE w.waits_for IS DISTINCT FROM w.not_done + CASE w.run_state WHEN 'Error' THEN 1 ELSE 0 END
            OR (w.not_before IS NOT NULL) <> (w.run_state = 'Processing' AND w.not_done = 0)
        """,
    ),
    (
        "a run whose plan branches counts its events and its open steps",
        """
        SELECT r.id AS run_id, r.event_seq, e.newest, r.open_steps, s.open
          FROM supervision_run r
          LEFT JOIN (SELECT run_id, max(seq) AS newest FROM supervision_stepevent GROUP BY run_id) e ON e.run_id = r.id
          LEFT JOIN (SELECT run_id, count(*) FILTER (WHERE process_state IN ('Pending', 'Processing', 'Error')) AS open,
                            bool_or(after IS NOT NULL) AS branches
                       FROM supervision_stepstate WHERE direction = 'do' GROUP BY run_id) s ON s.run_id = r.id
         WHERE (s.branches AND (r.event_seq IS DISTINCT FROM e.newest OR r.open_steps IS DISTINCT FROM s.open))
            OR (NOT s.branches AND (r.event_seq IS NOT NULL OR r.open_steps IS NOT NULL))
        """,
    ),
    (
        "the plan of a run is a graph whose branches are sequences",
        """
        SELECT s.run_id, s.direction, s.position, s.branch, s.after
          FROM supervision_stepstate s
          LEFT JOIN LATERAL (
               SELECT max(p.position) AS position FROM supervision_stepstate p
                WHERE p.run_id = s.run_id AND p.direction = 'do' AND p.branch = s.branch AND p.position < s.position) p ON true
         WHERE (s.after IS NULL AND s.branch <> 0)
            OR (s.after IS NOT NULL AND s.direction = 'do'
                AND (s.position <= ANY (s.after) OR (p.position IS NOT NULL AND p.position <> ALL (s.after))))
        """,
    ),
)
