"""The guarded statements of the hot path, each with its safety argument. Only `step_verbs` executes them. The statements for failed
attempts are in `failure_sql`.

All take lists; one item is a list of one. All compare deadlines with the database's clock. Two rules hold throughout:

* `process_state || ''` instead of `process_state` where a row is addressed by its key: the planner would otherwise
  prove a partial index from the guard and scan every running step for each key (2.4 times slower under load).
* A row is locked before its successor and before its run (ascending position, then run), so that two writers of one
  run queue up instead of deadlocking. Bulk writers skip rows that other transactions hold.

The current step's row carries `seq`, the number of the run's newest event. So the hand-over from one step to the next
numbers its events without touching the run.
"""

from __future__ import annotations

from supervision.states import BOUND_TO, SENT_HOME
from supervision.store.bounds.reachable_sql import REACHABLE
from supervision.store.failure_sql import KNOWN_ONLY

# Up to `limit` submissions that no other consumer is reading, oldest first. SKIP LOCKED: a second consumer takes other ones.
# The lock is held until the runs are written and `consumed_at` is set, so a submission becomes one run or one dead
# letter, never both and never two; a consumer that dies in between leaves it waiting. `since`: see `claiming`; xmax, as it
# was before this lock: see `suspicion`.
# A workflow that other code has registered and this code does not know (`names`) is left to that other code.
TAKE_SUBMISSIONS = """
SELECT id, public_id, workflow, payload, client, created_at, cancel_requested_at, cancelled_by, cancel_reason,
       suspected_at IS NOT NULL, xmax::text::bigint,
       coalesce(id < (SELECT e.first_submission_id FROM supervision_epoch e ORDER BY e.number DESC LIMIT 1), false)
  FROM supervision_submission
 WHERE consumed_at IS NULL AND id >= %(since)s::bigint AND (%(only)s::bigint[] IS NULL OR id = ANY (%(only)s))
   AND workflow <> ALL (ARRAY(SELECT DISTINCT w.name FROM supervision_workflowversion w WHERE w.name <> ALL (%(names)s::text[])))
 ORDER BY id LIMIT %(limit)s
   FOR UPDATE SKIP LOCKED
"""


# Runs, their steps and the first events, in one statement. A run that is `born` has its first step claimed already
# (attempt 1), which saves the claim: the caller checked that there is capacity and no older step waits. With `begin` it is
# started too, because the same process performs it at once. A `blocked` run waits for its turn in its session.
# The unique key of the run makes a second run for the same submission impossible.
def _write_runs(*, branched: bool) -> str:
    """branched: the plan is a graph, and every step that comes after no other begins at once."""
    run_columns, run_values = (", event_seq, open_steps", ", CASE WHEN born THEN 2 ELSE 1 END, cardinality(%(names)s::text[])")
    columns, values = (", after, waits_for, branch", ", d.after, cardinality(d.after), d.branch")
    plan, plan_columns = (", %(afters)s::text[], %(branches)s::smallint[]", ", afters, branch")
    definition, first = ("name, agent, afters::smallint[] AS after, branch", "cardinality(d.after) = 0")
    if not branched:
        run_columns = run_values = columns = values = plan = plan_columns = ""
        definition, first = "name, agent", "d.position = 0"
    return f"""
WITH v AS (
    SELECT * FROM unnest(%(submissions)s::bigint[], %(keys)s::text[], %(payloads)s::jsonb[], %(priorities)s::smallint[],
                         %(sessions)s::text[], %(partitions)s::text[], %(replies)s::text[], %(waits)s::float8[],
                         %(notifies)s::bool[], %(born)s::bool[], %(blocked)s::bool[])
             v(submission, key, payload, priority, session_key, partition, reply_to, wait, notify, born, blocked)),
m AS (
    UPDATE supervision_submission s SET consumed_at = now() FROM v WHERE s.id = v.submission),
r AS (
    INSERT INTO supervision_run (workflow, version, key, process_state, payload, priority, session_key, partition,
                                 reply_to, notify, complete_by{run_columns})
    SELECT %(workflow)s, %(version)s, key, CASE WHEN born THEN 'Processing' ELSE 'Pending' END, payload, priority,
           session_key, partition, reply_to, notify, now() + %(complete_within)s::float8 * interval '1 s'{run_values}
      FROM v
    RETURNING id, key),
d AS (
    SELECT (n - 1)::smallint AS position, {definition}
      FROM unnest(%(names)s::text[], %(agents)s::text[]{plan}) WITH ORDINALITY d(name, agent{plan_columns}, n)),
st AS (
    INSERT INTO supervision_stepstate (run_id, direction, position, name, agent, idempotency_key, seq, process_state,
                                       attempt, locked_by, started_at, complete_by, not_before, turn_at{columns})
    SELECT r.id, 'do', d.position, d.name, d.agent, r.key || ':' || d.name || ':do:1',
           CASE WHEN d.position = 0 AND v.born THEN 2 ELSE 1 END,
           CASE WHEN d.position = 0 AND v.born THEN 'Processing' ELSE 'Pending' END,
           CASE WHEN d.position = 0 AND v.born THEN 1 ELSE 0 END,
           CASE WHEN d.position = 0 AND v.born THEN %(me)s END,
           CASE WHEN d.position = 0 AND v.born AND %(begin)s THEN now() END,
           CASE WHEN d.position = 0 AND v.born THEN now() + %(lease)s::float8 * interval '1 s' END,
           CASE WHEN {first} AND NOT v.blocked THEN now() END,
           CASE WHEN {first} AND NOT v.blocked THEN now() + v.wait * interval '1 s' END{values}
      FROM r JOIN v ON v.key = r.key CROSS JOIN d),
ev AS (
    INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor)
    SELECT id, 1, NULL::smallint, NULL, NULL::int, NULL, 'Pending', %(me)s FROM r
    UNION ALL
    SELECT r.id, 2, 0::smallint, 'do', 1, 'Pending', 'Processing', %(me)s FROM r JOIN v ON v.key = r.key WHERE v.born)
SELECT id, key FROM r
"""


WRITE_RUNS, WRITE_RUNS_OF_A_GRAPH = _write_runs(branched=False), _write_runs(branched=True)

_LIVE = "p.lifted_at IS NULL AND (p.until IS NULL OR p.until > now())"


def _paused(scope: str, column: str = "name") -> str:
    """The names (or runs) paused now. An uncorrelated subquery: read once per statement, from a table that is nearly always empty."""
    return f"ARRAY(SELECT p.{column} FROM supervision_pause p WHERE p.scope = '{scope}' AND p.{column} IS NOT NULL AND {_LIVE})"


PAUSED_ORDERS = _paused("order", "run_id")

# A pause stops claims and nothing else: running steps finish, claimed steps are performed.
NOT_PAUSED = f"""NOT EXISTS (SELECT FROM supervision_pause p WHERE p.scope = 'all' AND {_LIVE})
       AND s.agent <> ALL ({_paused("agent")}) AND s.run_id <> ALL ({PAUSED_ORDERS})
       AND (NOT EXISTS (SELECT FROM supervision_pause p WHERE p.scope = 'workflow' AND {_LIVE})
            OR (SELECT b.workflow FROM supervision_run b WHERE b.id = s.run_id) <> ALL ({_paused("workflow")}))"""

# A step that may be claimed. An undo step waits until no step of its run is running, or no forward step where the plan branches:
# a cancelled order's last step ends first. Runs of versions that this code does not know are left to processes that know them.
DUE = f"""s.process_state = 'Pending' AND s.not_before IS NOT NULL AND s.turn_at IS NOT NULL AND s.not_before <= now()
       AND (s.direction = 'do' OR NOT EXISTS (
            SELECT FROM supervision_stepstate b WHERE b.run_id = s.run_id AND b.process_state || '' = 'Processing'
               AND (s.after IS NULL OR b.direction = 'do')))
       AND {NOT_PAUSED}
       AND {KNOWN_ONLY}"""

_FIRST_DUE = f"""SELECT s.turn_at FROM supervision_stepstate s WHERE {DUE} AND s.agent <> ALL (%(shut)s::text[])
   AND s.turn_at >= %(since)s::timestamptz"""
ANY_DUE = f"{_FIRST_DUE} AND {REACHABLE} ORDER BY s.turn_at LIMIT 1"


# CLAIM: exclusive right to the most urgent due steps. The rows are chosen and locked in a MATERIALIZED CTE, so that the
# limit cannot be re-evaluated and take more (PostgreSQL bug 15715); SKIP LOCKED sends a second scheduler to other
# work. Agents whose resource takes no calls now are left out (`shut`). Agents of limited services are claimed apart (`only`),
# without the steps that only a resource of theirs may take that takes none (`down`, `dark`).
# `attempt` is the fencing token: it rises with every claim, and the guard of every later write checks it. Where the plan branches,
# several steps of a run may be claimed at once, here and elsewhere: their events are numbered by the run's row. The runs' rows are
# locked in one order, after the steps'.
def _claim(which: str, order: str) -> str:
    return f"""
WITH c AS MATERIALIZED (
    SELECT s.run_id, s.direction, s.position, s.turn_at, s.not_before
      FROM supervision_stepstate s
     WHERE {DUE} AND {which}
     ORDER BY {order} LIMIT %(limit)s
       FOR UPDATE OF s SKIP LOCKED),
u AS (
    UPDATE supervision_stepstate s
       SET process_state = 'Processing', attempt = s.attempt + 1, locked_by = %(me)s, started_at = NULL,
           complete_by = now() + %(lease)s::float8 * interval '1 s',
           seq = 1 + CASE s.direction WHEN 'do' THEN s.seq ELSE greatest(s.seq, (
                 SELECT max(e.seq) FROM supervision_stepevent e WHERE e.run_id = s.run_id)) END
      FROM c
     WHERE s.run_id = c.run_id AND s.direction = c.direction AND s.position = c.position
       AND s.process_state || '' = 'Pending'
    RETURNING s.run_id, s.direction, s.position, s.attempt, s.seq, c.turn_at, c.not_before, s.after IS NOT NULL AS branched),
r AS (
    UPDATE supervision_run r SET process_state = 'Processing'
      FROM u WHERE r.id = u.run_id AND r.process_state || '' = 'Pending' AND NOT u.branched),
n AS MATERIALIZED (
    SELECT run_id, count(*) AS count, array_agg(direction) AS directions, array_agg(position) AS positions, array_agg(attempt) AS attempts
      FROM u WHERE branched GROUP BY run_id),
k AS MATERIALIZED (SELECT r.id FROM supervision_run r WHERE r.id IN (SELECT run_id FROM n) ORDER BY r.id FOR UPDATE),
b AS (
    UPDATE supervision_run r SET event_seq = r.event_seq + n.count,
           process_state = CASE r.process_state WHEN 'Pending' THEN 'Processing' ELSE r.process_state END
      FROM n WHERE r.id = n.run_id AND (SELECT count(*) FROM k) >= 0
    RETURNING r.id, r.event_seq - n.count AS before, n.directions, n.positions, n.attempts),
ev AS (
    INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor)
    SELECT run_id, seq, position, direction, attempt, 'Pending', 'Processing', %(me)s FROM u WHERE NOT branched
    UNION ALL
    SELECT b.id, b.before + o.number, o.position, o.direction, o.attempt, 'Pending', 'Processing', %(me)s
      FROM b, unnest(b.positions, b.directions, b.attempts) WITH ORDINALITY o(position, direction, attempt, number))
SELECT u.run_id, u.attempt, u.direction, u.position, r.workflow, r.version, extract(epoch FROM now() - u.not_before)::float8, u.turn_at
  FROM u JOIN supervision_run r ON r.id = u.run_id ORDER BY u.run_id
"""


_IN_TURN = """s.turn_at >= %(since)s::timestamptz AND s.agent <> ALL (%(shut)s::text[])
       AND (%(only)s::text[] IS NULL OR s.agent = ANY (%(only)s::text[]))"""
CLAIM = _claim(_IN_TURN, "s.turn_at")
CLAIM_REACHABLE = _claim(f"{_IN_TURN} AND {REACHABLE}", "s.turn_at")  # while a resource takes no calls

# Which orders probe a resource: an order that has not failed there, in its turn. If all have failed there, the order whose last
# try is longest ago, because one order tried again and again may be at fault itself. A step that only another resource of the
# service may take is not a probe: it says nothing about this resource. home: the resource of the service's own name, or null.
_MAY_PROBE = f"""s.agent = ANY (%(only)s::text[]) AND {REACHABLE}
       AND coalesce({BOUND_TO}, CASE WHEN {SENT_HOME} THEN %(home)s::text END, %(resource)s) = %(resource)s"""
PROBE_WITH_ANOTHER = _claim(f"{_MAY_PROBE} AND s.failing_since IS NULL", "s.turn_at")
PROBE_AGAIN = _claim(f"{_MAY_PROBE} AND s.failing_since IS NOT NULL", "s.started_at NULLS FIRST, s.turn_at")


def _claimed(array: str = "", column: str = "", more: str = "") -> str:
    """FROM and WHERE that address claims by key, fenced by attempt and state; optionally with one more array."""
    return f"""FROM unnest(%(runs)s::bigint[], %(attempts)s::int[]{array}) v(run_id, attempt{column}){more}
     WHERE s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s
       AND s.attempt = v.attempt AND s.process_state || '' = 'Processing'"""


def _within(seconds: str, capped: str) -> str:
    """A deadline so many seconds from now. A forward step's deadline never lies beyond its order's own (X7)."""
    return f"least(now() + %({seconds})s::float8 * interval '1 s', CASE WHEN {capped} THEN r.complete_by END)"


# START: an agents process starts claims. A duplicate delivery finds started_at set, a stale one another attempt, a cancelled
# one another state, a late one an expired deadline: all of them match no row and are dropped silently. The lease is renewed
# to the step's own budget, so that time in the queue does not shorten the time to work. The row holds the step's name and
# agent: a process whose code has another step or agent at this position starts nothing.


def _start(first: str = "", condition: str = "") -> str:
    return f"""
WITH {first}u AS (
    UPDATE supervision_stepstate s
       SET started_at = now(), complete_by = {_within("budget", "%(direction)s = 'do'")}
      {_claimed(more=" JOIN supervision_run r ON r.id = v.run_id")} AND s.started_at IS NULL AND s.complete_by > now()
       AND s.name = %(step)s AND s.agent = %(agent)s
       AND (%(direction)s = 'undo' OR coalesce(r.complete_by > now(), true)){condition}
    RETURNING s.run_id, s.attempt, s.generation, s.idempotency_key, s.checkpoint, r.key, r.payload,
              extract(epoch FROM s.complete_by - now())::float8 AS remaining, s.awaits,
              extract(epoch FROM s.awaits_until - now())::float8 AS wait_left)
SELECT u.run_id, u.attempt, u.generation, u.idempotency_key, u.checkpoint, u.key, u.payload,
       p.idempotency_key, p.result, p.checkpoint, u.remaining, u.awaits, u.wait_left
  FROM u
  LEFT JOIN LATERAL (
       SELECT p.idempotency_key, p.result, p.checkpoint FROM supervision_stepstate p
        WHERE %(direction)s = 'undo' AND p.run_id = u.run_id AND p.direction = 'do' AND p.position = %(position)s
       OFFSET 0) p ON true
 ORDER BY u.run_id
"""


START = _start()

# Where the plan branches, a failure in another branch locks all steps of its runs, run by run. An UPDATE locks its rows in the
# order of its plan, so START and FINISH of a branch lock them before, in the order of all statements.
IN_ORDER = """h AS MATERIALIZED (
    SELECT s.run_id FROM unnest(%(runs)s::bigint[]) v(run_id)
      JOIN supervision_stepstate s ON s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s
     ORDER BY s.run_id FOR UPDATE OF s),
"""
LOCKED = " AND (SELECT count(*) FROM h) >= 0"
START_BRANCH = _start(IN_ORDER, LOCKED)

# The claims that stand, not started, at another step or agent than this process's code has at this position.
MISTAKEN = f"""
SELECT s.run_id, s.name, s.agent {_claimed(more=" JOIN supervision_stepstate s ON true")} AND s.started_at IS NULL
   AND (s.name <> %(step)s OR s.agent <> %(agent)s)
"""

# Which of these claims still stand, locked until commit: asked before a transactional agent works, whose effect
# commits together with FINISH. No other transaction can sweep or cancel the rows locked here.
HOLD = """
SELECT s.run_id FROM supervision_stepstate s
  JOIN (SELECT * FROM unnest(%(runs)s::bigint[], %(attempts)s::int[]) v(run_id, attempt)) v
    ON s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s
   AND s.attempt = v.attempt AND s.process_state || '' = 'Processing' AND s.complete_by > now()
 ORDER BY s.run_id FOR UPDATE OF s
"""

# The rows before these steps in the order in which whole runs are locked. A transaction that may go on from a step to its whole
# run (undo, skip, the next undo) locks these first: a later lock on an earlier row would deadlock with a cancel.
LOCK_EARLIER = """
SELECT s.run_id FROM supervision_stepstate s
 WHERE s.run_id = ANY(%(runs)s::bigint[]) AND (s.direction, s.position) < (%(direction)s, %(position)s::smallint)
 ORDER BY s.run_id, s.direction, s.position FOR UPDATE
"""

# CHECKPOINT and HEARTBEAT lock their rows before they write them, too, in the order of all statements.
_EACH_IN_ORDER = """h AS MATERIALIZED (
    SELECT s.run_id FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[]) v(run_id, direction, position)
      JOIN supervision_stepstate s ON s.run_id = v.run_id AND s.direction = v.direction AND s.position = v.position
     ORDER BY s.run_id, s.direction, s.position FOR UPDATE OF s)"""

# A checkpoint is merged only while the claim stands; its row count tells the agent whether to go on.
CHECKPOINT = f"""
WITH {_EACH_IN_ORDER}
UPDATE supervision_stepstate s SET checkpoint = coalesce(s.checkpoint, '{{}}'::jsonb) || v.data
  FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(attempts)s::int[],
              %(data)s::jsonb[]) v(run_id, direction, position, attempt, data)
 WHERE s.run_id = v.run_id AND s.direction = v.direction AND s.position = v.position AND s.attempt = v.attempt
   AND s.process_state || '' = 'Processing' AND s.complete_by > now(){LOCKED}
RETURNING s.run_id, s.direction, s.position, s.attempt
"""

# HEARTBEAT moves the deadline of a running attempt, while its claim stands; its row count tells the agent whether to go on. A
# deadline never moves back, and never beyond the attempt's longest time or the order's own. No event: the state is the same.
HEARTBEAT = f"""
WITH {_EACH_IN_ORDER}
UPDATE supervision_stepstate s
   SET complete_by = greatest(s.complete_by, least(
           now() + v.budget * interval '1 s', s.started_at + v.longest * interval '1 s',
           CASE s.direction WHEN 'do' THEN r.complete_by END))
  FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(attempts)s::int[],
              %(budgets)s::float8[], %(longest)s::float8[]) v(run_id, direction, position, attempt, budget, longest)
  JOIN supervision_run r ON r.id = v.run_id
 WHERE s.run_id = v.run_id AND s.direction = v.direction AND s.position = v.position AND s.attempt = v.attempt
   AND s.process_state || '' = 'Processing' AND s.complete_by > now() AND s.started_at IS NOT NULL{LOCKED}
RETURNING s.run_id, s.direction, s.position, s.attempt, extract(epoch FROM s.complete_by - now())::float8,
          s.direction = 'undo' OR r.process_state || '' <> 'Compensating'
"""


def done(first: str = "", condition: str = "") -> str:
    """The update with which each FINISH begins, `d`; optionally after another part of the statement, and under one more condition."""
    return f"""
WITH {first}d AS (
    UPDATE supervision_stepstate s
       SET process_state = 'Processed', effect = 'done', finished_at = now(), result = v.result, locked_by = NULL,
           complete_by = NULL, last_error = NULL, seq = s.seq + 1
      {_claimed(", %(results)s::jsonb[]", ", result")} AND s.complete_by > now(){condition}
    RETURNING s.run_id, s.position, s.attempt, s.seq, s.turn_at),"""


# True where the first step of a new run, or the next step of this one, must wait and is not claimed at once.
GATE_OF_A_STEP = f"""%(wait)s OR EXISTS (
        SELECT FROM supervision_pause p
         WHERE {_LIVE} AND (p.scope = 'all' OR (p.scope = 'agent' AND p.name = %(agent)s)
                            OR (p.scope = 'workflow' AND p.name = %(workflow)s)))"""

GATE = f"""
SELECT {GATE_OF_A_STEP}, ARRAY(SELECT p.name FROM supervision_pause p WHERE p.scope = 'order' AND {_LIVE}),
       ({_FIRST_DUE} ORDER BY s.turn_at LIMIT 1)
"""

# For orders that were paused before they had a run: write the run's id into the pause.
BIND_PAUSES = """
UPDATE supervision_pause p SET run_id = r.id FROM supervision_run r
 WHERE p.scope = 'order' AND p.lifted_at IS NULL AND p.name = ANY (%(keys)s) AND r.key = p.name
"""

# FINISH in the middle of a list: the step is Processed and its successor claimed (and, with `fuse`, started, because the same
# worker goes on with it) in one statement, so the order always has an owner. FINISH needs complete_by > now(), SWEEP needs
# complete_by < now(), on the same clock and the same row: exactly one can win. A cancel that came first has made the
# successor Cancelled: it is not found. The result has a row for each finished step and one for each successor. The caller
# joins them: the planner expects one row of each, so its own join of 200 rows would compare each with each (two fifths of the
# statement's time). If the successor has to `wait` (its resource has limits, or it is paused, or it is not the step that this
# code expects there), it becomes due instead, in its order's turn, and CLAIM takes it later. OFFSET 0 keeps the planner from
# copying the expression of `waits` into each column.
_WAITS = "(w.waits OR s.name <> %(step)s OR s.agent <> %(agent)s)"

FINISH = f"""{done()}
g AS MATERIALIZED (SELECT {GATE_OF_A_STEP} AS wait, {PAUSED_ORDERS} AS held),
n AS (
    UPDATE supervision_stepstate s
       SET process_state = CASE WHEN {_WAITS} THEN 'Pending' ELSE 'Processing' END,
           attempt = s.attempt + CASE WHEN {_WAITS} THEN 0 ELSE 1 END,
           locked_by = CASE WHEN NOT {_WAITS} THEN %(me)s END,
           seq = d.seq + CASE WHEN {_WAITS} THEN 0 ELSE 1 END,
           complete_by = CASE WHEN NOT {_WAITS} THEN {_within("lease", "true")} END,
           started_at = CASE WHEN %(fuse)s AND NOT {_WAITS} THEN now() END,
           not_before = CASE WHEN {_WAITS} THEN now() ELSE s.not_before END,
           turn_at = CASE WHEN {_WAITS} THEN coalesce(d.turn_at, now()) ELSE s.turn_at END
      FROM d JOIN supervision_run r ON r.id = d.run_id CROSS JOIN g
           CROSS JOIN LATERAL (SELECT g.wait OR d.run_id = ANY (g.held) AS waits OFFSET 0) w
     WHERE s.run_id = d.run_id AND s.direction = 'do' AND s.position = %(position)s::smallint + 1
       AND s.process_state || '' = 'Pending'
    RETURNING s.run_id, s.seq, s.position, s.attempt, s.generation, s.idempotency_key, s.checkpoint, {_WAITS} AS waits,
              extract(epoch FROM s.complete_by - now())::float8 AS remaining),
ev AS (
    INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor)
    SELECT run_id, seq, position, 'do', attempt, 'Processing', 'Processed', %(me)s FROM d
    UNION ALL
    SELECT run_id, seq, position, 'do', attempt, 'Pending', 'Processing', %(me)s FROM n WHERE NOT waits)
SELECT run_id, NULL::int, NULL::smallint, NULL::text, NULL::jsonb, NULL::float8, NULL::bool FROM d
UNION ALL
SELECT run_id, attempt, generation, idempotency_key, checkpoint, remaining, waits FROM n
"""

# FINISH of the last step also closes the run. A run that is being undone stays as it is (its undo steps wait). The result has
# a row for each finished step and one for each closed run. A run with more steps than this code knows is not closed: its next
# step becomes due.
FINISH_LAST = f"""{done()}
n AS (
    UPDATE supervision_stepstate s SET not_before = now(), turn_at = coalesce(d.turn_at, now()), seq = d.seq
      FROM d
     WHERE s.run_id = d.run_id AND s.direction = 'do' AND s.position = %(position)s::smallint + 1
       AND s.process_state || '' = 'Pending'
    RETURNING s.run_id),
r AS (
    UPDATE supervision_run r SET process_state = 'Processed', finished_at = now()
      FROM d WHERE r.id = d.run_id AND r.process_state || '' = 'Processing' AND d.run_id NOT IN (SELECT n.run_id FROM n)
    RETURNING r.id, r.session_key, d.seq + 1 AS seq),
ev AS (
    INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor)
    SELECT run_id, seq, position, 'do', attempt, 'Processing', 'Processed', %(me)s FROM d
    UNION ALL
    SELECT id, seq, NULL::smallint, NULL, NULL::int, 'Processing', 'Processed', %(me)s FROM r)
SELECT run_id, false, NULL::text FROM d
UNION ALL
SELECT id, true, session_key FROM r
"""

# Evidence of answers that came too late; their runs are left alone.
RECORD_STRAYS = """
INSERT INTO supervision_strayreply (run_id, direction, position, attempt, outcome, detail, actor)
SELECT run_id, %(direction)s, %(position)s, attempt, outcome, detail, %(me)s
  FROM unnest(%(runs)s::bigint[], %(attempts)s::int[], %(outcomes)s::text[], %(details)s::text[])
         v(run_id, attempt, outcome, detail)
"""
