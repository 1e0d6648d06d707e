"""The engine's invariants: each in words, with the SELECT that finds its violations. Run by `audit`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from supervision.agent import agents
from supervision.audit import branches, chain, children, jobs, liveness, plans
from supervision.audit.registry import Check, register


def _undoable_agents() -> Mapping[str, Any]:
    return {"undoable": [agent.name for agent in agents() if agent.undoable]}


for _invariant, _violations in (
    (
        "a running step has an owner and a deadline, and no other step has an owner",
        """
        SELECT run_id, direction, position, process_state, locked_by, complete_by
          FROM supervision_stepstate
         WHERE CASE WHEN process_state = 'Processing' THEN locked_by IS NULL OR complete_by IS NULL
                    ELSE locked_by IS NOT NULL END
        """,
    ),
    (
        "a Processed step has finished and its effect is known to be done",
        """
        SELECT run_id, direction, position, finished_at, effect
          FROM supervision_stepstate
         WHERE process_state = 'Processed' AND (finished_at IS NULL OR effect <> 'done')
        """,
    ),
    (
        "steps are done in order",
        """
        SELECT run_id, max(position) FILTER (WHERE process_state = 'Processed') AS processed,
               min(position) FILTER (WHERE process_state IN ('Pending', 'Processing', 'Error')) AS still_open
          FROM supervision_stepstate WHERE direction = 'do' AND after IS NULL
         GROUP BY run_id
        HAVING max(position) FILTER (WHERE process_state = 'Processed')
             > min(position) FILTER (WHERE process_state IN ('Pending', 'Processing', 'Error'))
        """,
    ),
    (
        # By the events' numbers, not by finished_at: the clock may have been put back between two undo steps.
        "steps are undone in reverse order",
        """
        SELECT later.run_id, later.position AS undone_too_late, earlier.position AS undone_too_early
          FROM supervision_stepstate earlier
          JOIN supervision_stepstate later
            ON later.run_id = earlier.run_id AND later.direction = 'undo' AND later.position > earlier.position
         WHERE earlier.direction = 'undo' AND earlier.after IS NULL AND earlier.process_state IN ('Processing', 'Processed')
           AND (later.process_state IN ('Pending', 'Processing', 'Error')
                OR (later.process_state = 'Processed' AND earlier.process_state = 'Processed'
                    AND (SELECT max(e.seq) FROM supervision_stepevent e WHERE e.run_id = later.run_id
                            AND e.direction = 'undo' AND e.position = later.position)
                      > (SELECT max(e.seq) FROM supervision_stepevent e WHERE e.run_id = earlier.run_id
                            AND e.direction = 'undo' AND e.position = earlier.position)))
        """,
    ),
    (
        "nothing is undone while it is still being done",
        """
        SELECT undo.run_id, undo.position
          FROM supervision_stepstate undo
          JOIN supervision_stepstate done
            ON done.run_id = undo.run_id AND done.direction = 'do' AND done.position = undo.position
         WHERE undo.direction = 'undo' AND undo.process_state IN ('Processing', 'Processed')
           AND done.process_state = 'Processing'
        """,
    ),
    (
        "a step that is asleep waits for a signal or a moment, and its wait has an end",
        """
        SELECT run_id, direction, position, awaits, awaits_until
          FROM supervision_stepstate
         WHERE process_state = 'Pending' AND not_before IS NOT NULL AND turn_at IS NULL
           AND (awaits IS NULL OR awaits_until IS NULL)
        """,
    ),
    (
        "no step sleeps while its signal is here",
        """
        SELECT s.run_id, s.direction, s.position, g.name, g.key
          FROM supervision_signal g JOIN supervision_run r ON r.key = g.run_key
          JOIN supervision_stepstate s ON s.run_id = r.id AND s.awaits = g.name
         WHERE g.taken_by IS NULL AND s.process_state = 'Pending' AND s.not_before IS NOT NULL AND s.turn_at IS NULL
        """,
    ),
    (
        # The undo of a step that is done anew, under a further generation of its key, has left no row.
        "a signal that was taken belongs to a step that has it, and every signal to an order",
        """
        SELECT r.id AS run_id, g.run_key, g.name, g.taken_by
          FROM supervision_signal g
          LEFT JOIN supervision_run r ON r.key = g.run_key
         WHERE (r.id IS NULL AND NOT EXISTS (SELECT FROM supervision_submission u WHERE u.public_id = g.run_key))
            OR (g.taken_by IS NOT NULL AND NOT EXISTS (
                SELECT FROM supervision_stepstate s
                 WHERE s.run_id = r.id AND s.attempt > 0
                   AND (CASE s.direction WHEN 'undo' THEN 'undo:' ELSE '' END || s.name = g.taken_by
                        OR (s.direction = 'do' AND s.generation > 1 AND 'undo:' || s.name = g.taken_by))))
        """,
    ),
    (
        "a Processed run has done every step",
        """
        SELECT s.run_id, s.position, s.name, s.process_state
          FROM supervision_run r JOIN supervision_stepstate s ON s.run_id = r.id
         WHERE r.process_state = 'Processed'
           AND (s.direction = 'undo' OR s.process_state NOT IN ('Processed', 'Skipped'))
        """,
    ),
    (
        # A do step that its service refused for good stays in Error while its run is undone, as part of the history.
        "a final run has no open step",
        """
        SELECT s.run_id, r.process_state AS run_state, s.direction, s.position, s.process_state
          FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id
         WHERE s.process_state IN ('Pending', 'Processing', 'Error')
           AND r.process_state IN ('Processed', 'Cancelled')
           AND NOT (s.process_state = 'Error' AND s.direction = 'do' AND r.process_state = 'Cancelled')
        """,
    ),
    (
        # After the last undo step a separate commit closes the run; if that was lost, the supervisor's next sweep closes it.
        "an unfinished run has a step that is running or may be claimed",
        """
        SELECT r.id AS run_id, r.process_state
          FROM supervision_run r
         WHERE r.process_state IN ('Pending', 'Processing', 'Compensating')
           AND NOT EXISTS (
                SELECT FROM supervision_stepstate s
                 WHERE s.run_id = r.id
                   AND (s.process_state = 'Processing'
                        OR (s.process_state = 'Pending' AND s.not_before IS NOT NULL)))
           AND (r.process_state <> 'Compensating' OR EXISTS (
                SELECT FROM supervision_stepstate s
                 WHERE s.run_id = r.id AND s.process_state = 'Pending'))
           -- It waits for its turn in its session.
           AND NOT (r.process_state = 'Pending' AND EXISTS (
                SELECT FROM supervision_run e
                 WHERE e.session_key = r.session_key AND e.session_client = r.session_client
                   AND e.finished_at IS NULL AND e.id < r.id))
        """,
    ),
    (
        "a Pending run has begun nothing",
        """
        -- An epoch of the database counts on from a multiple of 10,000.
        SELECT s.run_id, s.position, s.attempt
          FROM supervision_run r JOIN supervision_stepstate s ON s.run_id = r.id
         WHERE r.process_state = 'Pending' AND (mod(s.attempt, 10000) > 0 OR s.direction = 'undo')
        """,
    ),
    (
        # Where its plan branches, several branches may have failed.
        "a run in Error stands at exactly one step in Error, and only such a run does",
        """
        SELECT r.id AS run_id, r.process_state AS run_state, r.direction, count(s.run_id) AS in_error
          FROM supervision_run r
          LEFT JOIN supervision_stepstate s
            ON s.run_id = r.id AND s.direction = r.direction AND s.process_state = 'Error'
         WHERE r.process_state = 'Error'
         GROUP BY r.id HAVING count(s.run_id) = 0 OR (count(s.run_id) > 1 AND r.event_seq IS NULL)
        UNION ALL
        SELECT r.id, r.process_state, r.direction, count(*)
          FROM supervision_stepstate s
          JOIN supervision_run r ON r.id = s.run_id AND r.direction = s.direction
         WHERE s.process_state = 'Error' AND r.process_state <> 'Error'
         GROUP BY r.id
        """,
    ),
    (
        # An acknowledged alert is still open: the operator has seen the error but not ended it.
        "a run in Error has an open alert of its failed step",
        """
        SELECT s.run_id, s.direction, s.position, s.generation
          FROM supervision_stepstate s
          JOIN supervision_run r ON r.id = s.run_id AND r.direction = s.direction
         WHERE s.process_state = 'Error' AND r.process_state = 'Error'
           AND NOT EXISTS (
                SELECT FROM supervision_alert a
                 WHERE a.run_id = s.run_id AND a.position = s.position AND a.direction = s.direction
                   AND a.kind = 'error' AND a.closed_at IS NULL)
        """,
    ),
    (
        "a run's steps are complete: positions from 0, an undo only beside its do step",
        """
        SELECT r.id AS run_id, count(s.run_id) FILTER (WHERE s.direction = 'do') AS steps,
               max(s.position) AS last
          FROM supervision_run r LEFT JOIN supervision_stepstate s ON s.run_id = r.id
         GROUP BY r.id
        HAVING count(s.run_id) FILTER (WHERE s.direction = 'do') = 0
            OR max(s.position) + 1 <> count(s.run_id) FILTER (WHERE s.direction = 'do')
        """,
    ),
    (
        "events are numbered without a gap",
        """
        SELECT run_id, min(seq) AS first, max(seq) AS last, count(*) AS events
          FROM supervision_stepevent
         GROUP BY run_id HAVING min(seq) <> 1 OR max(seq) <> count(*)
        """,
    ),
    (
        "the newest event of a run tells its state",
        """
        SELECT r.id AS run_id, r.process_state, e.to_state AS newest_event
          FROM supervision_run r
          LEFT JOIN (SELECT DISTINCT ON (run_id) run_id, to_state
                       FROM supervision_stepevent WHERE position IS NULL
                      ORDER BY run_id, seq DESC) e ON e.run_id = r.id
         WHERE e.to_state IS DISTINCT FROM r.process_state
           AND NOT (r.process_state = 'Processing' AND e.to_state = 'Pending')
        """,
    ),
    (
        "the events of a step tell its state and its attempts",
        """
        SELECT s.run_id, s.direction, s.position, s.process_state, e.newest AS newest_event,
               s.attempt, e.claims, s.failure_count, s.dispatch_count
          FROM supervision_stepstate s
          LEFT JOIN (SELECT run_id, direction, position,
                            (array_agg(to_state ORDER BY seq DESC))[1] AS newest,
                            count(*) FILTER (WHERE to_state = 'Processing') AS claims
                       FROM supervision_stepevent WHERE position IS NOT NULL
                      GROUP BY run_id, direction, position) e
            ON e.run_id = s.run_id AND e.direction = s.direction AND e.position = s.position
         WHERE s.process_state IS DISTINCT FROM coalesce(e.newest, 'Pending')
            -- Attempts jump by 10,000 (states.ATTEMPTS_PER_EPOCH) where an epoch begins.
            OR mod(s.attempt, 10000) <> mod(coalesce(e.claims, 0), 10000)
            OR s.failure_count + s.dispatch_count > s.attempt
        """,
    ),
    (
        "nothing belongs to a run that does not exist",
        """
        SELECT orphan.kind, orphan.run_id, count(*) AS rows
          FROM (SELECT 'step' AS kind, run_id FROM supervision_stepstate
                UNION ALL SELECT 'event', run_id FROM supervision_stepevent
                UNION ALL SELECT 'alert', run_id FROM supervision_alert
                UNION ALL SELECT 'stray reply', run_id FROM supervision_strayreply
                UNION ALL SELECT 'effect', run_id FROM supervision_effect
                UNION ALL SELECT 'notification', run_id FROM supervision_notification
                           WHERE run_id IS NOT NULL) orphan
         WHERE NOT EXISTS (SELECT FROM supervision_run r WHERE r.id = orphan.run_id)
           -- What came, or was told, after the run had been archived.
           AND NOT (orphan.kind IN ('stray reply', 'notification')
                    AND EXISTS (SELECT FROM supervision_archivedrun v WHERE v.run_id = orphan.run_id))
           -- Late answers of workers to runs that a failover or a restore has lost.
           AND NOT (orphan.kind = 'stray reply' AND orphan.run_id < (SELECT max(e.first_run_id) FROM supervision_epoch e))
         GROUP BY orphan.kind, orphan.run_id
        """,
    ),
    (
        "a consumed submission has become a run or a dead letter",
        """
        SELECT s.id AS submission, s.public_id, s.consumed_at
          FROM supervision_submission s
         WHERE s.consumed_at IS NOT NULL
           AND NOT EXISTS (SELECT FROM supervision_run r WHERE r.key = s.public_id)
           AND NOT EXISTS (SELECT FROM supervision_deadletter d WHERE d.public_id = s.public_id)
           AND NOT EXISTS (SELECT FROM supervision_archivedrun v WHERE v.key = s.public_id)
        """,
    ),
    (
        "a run is in the tables or in the archive, and the archive holds it whole",
        """
        SELECT v.key, v.run_id, v.process_state, 'is in both' AS why
          FROM supervision_archivedrun v
         WHERE EXISTS (SELECT FROM supervision_run r WHERE r.id = v.run_id)
            OR EXISTS (SELECT FROM supervision_run r WHERE r.key = v.key)
        UNION ALL
        -- What is archived is never written again: looked into while it is new.
        SELECT v.key, v.run_id, v.process_state, 'is not whole'
          FROM supervision_archivedrun v
         WHERE v.archived_at > now() - interval '2 days'
           AND (v.process_state NOT IN ('Processed', 'Cancelled')
                OR coalesce(jsonb_array_length(nullif(v.body -> 'steps', 'null')), 0) = 0
                OR (v.body -> 'events' -> -1 ->> 'seq')::int IS DISTINCT FROM jsonb_array_length(nullif(v.body -> 'events', 'null')))
        """,
    ),
    (
        "a run comes from one submission, which is consumed",
        """
        SELECT r.id AS run_id, r.key, s.id AS submission, s.consumed_at
          FROM supervision_run r LEFT JOIN supervision_submission s ON s.public_id = r.key
         WHERE s.consumed_at IS NULL
        """,
    ),
    *branches.CHECKS,
    *children.CHECKS,
    *jobs.CHECKS,
    *plans.CHECKS,
):
    register(Check(_invariant, _violations))

register(
    Check(
        "a Cancelled run has undone every effect it had or may have had",
        """
        SELECT s.run_id, s.position, s.name, s.effect, u.process_state AS undo
          FROM supervision_run r
          JOIN supervision_stepstate s ON s.run_id = r.id AND s.direction = 'do'
          LEFT JOIN supervision_stepstate u
            ON u.run_id = r.id AND u.direction = 'undo' AND u.position = s.position
         WHERE r.process_state = 'Cancelled' AND s.effect IN ('done', 'unknown')
           AND s.agent = ANY(%(undoable)s) AND coalesce(u.process_state, '') NOT IN ('Processed', 'Skipped')
        """,
        _undoable_agents,
    )
)

register(
    Check(
        "a Cancelled run leaves no effect outside",
        """
        SELECT e.run_id, e.position, e.operation, e.key, e.outcome
          FROM supervision_run r
          JOIN supervision_effect e ON e.run_id = r.id AND e.direction = 'do'
          JOIN supervision_stepstate s ON s.run_id = e.run_id AND s.direction = 'do' AND s.position = e.position
          LEFT JOIN supervision_stepstate u
            ON u.run_id = e.run_id AND u.direction = 'undo' AND u.position = e.position
         WHERE r.process_state = 'Cancelled' AND e.outcome IN ('intended', 'unknown', 'done')
           AND s.agent = ANY(%(undoable)s) AND coalesce(u.process_state, '') <> 'Skipped'
        """,
        _undoable_agents,
    )
)
register(
    Check(
        "what a step did outside is settled when the step is Processed",
        """
        SELECT e.run_id, e.direction, e.position, e.operation, e.key
          FROM supervision_effect e
          JOIN supervision_stepstate s ON s.run_id = e.run_id AND s.direction = e.direction AND s.position = e.position
         WHERE s.process_state = 'Processed' AND e.outcome = 'intended'
        """,
    )
)


def _standing_still() -> Iterator[str]:
    for order, run_id, why in liveness.stuck():
        yield f"order={order}, run_id={run_id}, {why}"


register(Check("every unfinished order makes progress, or an open incident or a bounded wait explains why not", find=_standing_still))

register(
    Check("each batch of the history's chain is as it was made and follows the one before it", find=lambda: chain.bounded(chain.batches()))
)
register(
    Check(
        "the history of runs and the operators' log are as they were when they came under the chain",
        find=lambda: chain.bounded(chain.histories()),
    )
)
register(Check("what happens comes under the chain within an hour", chain.LATE))
