"""Epochs of the database. An epoch lasts from the database's creation, promotion or restore until the next of these.

After a failover that lost commits, or after a restore, the services know of calls that the database does not, and its
sequences and attempts would repeat numbers that were used before. So a new epoch begins, in one transaction:

1. Ids of runs, submissions and all other numbered rows jump ahead: the ids of lost rows are never reused.
2. `attempt` of every unfinished step jumps ahead: the claims of workers from before the loss are no longer valid.
3. Running steps become Pending again, without a counted failure. Effects outside this database become unknown.
4. An agent looks for effects before it acts (`StepRequest.look_first`) in every attempt beyond the jump, even the first.
   So it does for runs of submissions that were accepted before the epoch and are consumed again.

Every new connection and every sweep check for a new epoch. They compare the cluster's identity, its timeline, and the
identities of the database and of the epoch table, which a restored dump does not keep. If none of them changed, an operator
declares the epoch with `manage.py epoch --begin`. Rows of transactional agents need none of this: their effects are in the
same database as their steps, so both were lost or restored together.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.db import DEFAULT_DB_ALIAS, DatabaseError

from supervision import conf
from supervision.agent import agents
from supervision.postgres import db
from supervision.runtime.identity import me
from supervision.states import ATTEMPTS_PER_EPOCH

log = logging.getLogger(__name__)

NUMBERS_PER_EPOCH = 1_000_000
_LOCK = 7_215_012


class Identity(NamedTuple):
    """The values by which one epoch of the database differs from another."""

    system_identifier: str
    timeline: int
    store: str


class Epoch(NamedTuple):
    """One epoch. first_run_id, first_submission_id: rows with a smaller id are older than the epoch."""

    number: int
    system_identifier: str
    timeline: int
    store: str
    first_run_id: int
    first_submission_id: int

    @property
    def identity(self) -> Identity:
        """The database's identity during this epoch."""
        return Identity(self.system_identifier, self.timeline, self.store)


# Returns no row on a standby, or before the table exists.
_IDENTITY = """
SELECT (SELECT system_identifier::text FROM pg_control_system()),
       ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int,
       d.oid::text || ':' || to_regclass('supervision_epoch')::oid::text
  FROM pg_database d
 WHERE d.datname = current_database() AND NOT pg_is_in_recovery() AND to_regclass('supervision_epoch') IS NOT NULL
"""

_NEWEST = """
SELECT number, system_identifier, timeline, store, first_run_id, first_submission_id
  FROM supervision_epoch ORDER BY number DESC LIMIT 1
"""

_EMPTY = "SELECT NOT EXISTS (SELECT FROM supervision_run) AND NOT EXISTS (SELECT FROM supervision_submission)"

_JUMP = """
SELECT setval(format('%%I.%%I', schemaname, sequencename)::regclass, coalesce(last_value, 0) + %(jump)s::bigint)
  FROM pg_sequences WHERE schemaname = current_schema() AND sequencename LIKE 'supervision\\_%%'
"""

_INSERT = """
INSERT INTO supervision_epoch (number, system_identifier, timeline, store, began_at, first_run_id, first_submission_id, reason, by)
SELECT %(number)s, %(system_identifier)s, %(timeline)s, %(store)s, now(), %(first_run)s, %(first_submission)s, %(reason)s, %(by)s
RETURNING number, system_identifier, timeline, store, first_run_id, first_submission_id
"""

# Rows are locked in the order that all statements use. A running step is released like one that expired, but no failure is
# counted; its event takes the number after the run's newest. The effect of a step outside this database becomes unknown.
# A step that failed before its order was undone was not called again in the lost time: its effect stays as it is known.
# A step that is still running while its order is undone must not run again: it expires, and the sweep abandons it.
_TURN = """
WITH c AS MATERIALIZED (
    SELECT s.run_id, s.direction, s.position,
           CASE WHEN s.process_state = 'Processing' AND s.direction = 'do' AND r.direction = 'undo' THEN 'Abandoned'
                ELSE s.process_state END AS was,
           s.process_state = 'Error' AND s.direction = 'do' AND r.direction = 'undo' AS over
      FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id
     WHERE r.process_state IN ('Pending', 'Processing', 'Error', 'Compensating')
       AND s.process_state IN ('Pending', 'Processing', 'Error')
     ORDER BY s.run_id, s.direction, s.position FOR UPDATE OF s),
n AS MATERIALIZED (
    SELECT c.*, count(*) FILTER (WHERE was = 'Processing') OVER (PARTITION BY run_id ORDER BY direction, position) AS number FROM c),
u AS (
    UPDATE supervision_stepstate s
       SET attempt = s.attempt + %(jump)s::int, locked_by = CASE c.was WHEN 'Abandoned' THEN s.locked_by END,
           effect = CASE WHEN s.direction = 'do' AND s.effect = 'none' AND s.agent <> ALL (%(transactional)s::text[]) AND NOT c.over
                         THEN 'unknown' ELSE s.effect END,
           process_state = CASE c.was WHEN 'Processing' THEN 'Pending' ELSE s.process_state END,
           complete_by = CASE c.was WHEN 'Processing' THEN now() + %(pickup)s::float8 * interval '1 s'
                                    WHEN 'Abandoned' THEN least(s.complete_by, now() - interval '1 s') ELSE s.complete_by END,
           not_before = CASE c.was WHEN 'Processing' THEN now() ELSE s.not_before END,
           turn_at = CASE c.was WHEN 'Processing' THEN coalesce(s.turn_at, now()) ELSE s.turn_at END,
           seq = CASE c.was WHEN 'Processing' THEN c.number + greatest(s.seq, (
                 SELECT max(e.seq) FROM supervision_stepevent e WHERE e.run_id = s.run_id)) ELSE s.seq END
      FROM n c WHERE s.run_id = c.run_id AND s.direction = c.direction AND s.position = c.position
    RETURNING s.run_id, s.direction, s.position, s.attempt, s.seq, c.was),
r AS (
    UPDATE supervision_run r SET event_seq = r.event_seq + n.count
      FROM (SELECT run_id, count(*) AS count FROM n WHERE was = 'Processing' GROUP BY run_id) n
     WHERE r.id = n.run_id AND r.event_seq IS NOT NULL)
INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor, why)
SELECT run_id, seq, position, direction, attempt, 'Processing', 'Pending', %(by)s, %(why)s FROM u WHERE was = 'Processing'
"""

_MARK = """
UPDATE supervision_stepstate s
   SET attempt = s.attempt + %(jump)s::int,
       effect = CASE WHEN s.agent <> ALL (%(transactional)s::text[]) THEN 'unknown' ELSE s.effect END
 WHERE s.run_id = ANY (%(runs)s::bigint[]) AND s.direction = 'do' AND s.process_state || '' = 'Pending'
   AND s.attempt < %(jump)s::int
"""

_current: Epoch | None = None  # the newest that this process has seen


def look() -> Epoch | None:
    """Begin a new epoch if the database's identity differs from the newest epoch's. Returns the newest; None on a standby."""
    identity = _identity()
    if identity is None:
        return None
    newest = _newest()
    if newest is None or newest.identity != identity:
        newest = begin(_why(newest, identity), expected=newest)
    _remember(newest)
    return newest


def begin(reason: str, *, by: str = "", expected: Epoch | None = None, declared: bool = False) -> Epoch:
    """Begin an epoch, only once if several processes call this at the same time; returns the one that is then the newest.

    declared: an operator asks for it. Otherwise nothing is done if the newest epoch is no longer the expected one.
    """

    def work() -> Epoch:
        db.fetch("SELECT pg_advisory_xact_lock(%(lock)s::bigint)", {"lock": _LOCK})
        newest = _newest()
        if newest is not None and not declared and newest != expected:
            return newest
        identity = _identity()
        if identity is None:
            raise RuntimeError("this database is a standby: no epoch begins here")
        first_run = first_submission = 0
        if newest is not None and not db.fetch(_EMPTY)[0][0]:
            db.fetch(_JUMP, {"jump": NUMBERS_PER_EPOCH})
            first_run, first_submission = _next("supervision_run"), _next("supervision_submission")
            facts = {"jump": ATTEMPTS_PER_EPOCH, "transactional": _transactional(), "by": by or me()}
            why = "a new epoch of the database began: the running step was released"
            db.fetch(_TURN, {**facts, "pickup": conf.get().pickup_within.total_seconds(), "why": why})
        row = db.fetch(
            _INSERT,
            {
                **identity._asdict(),
                "number": newest.number + 1 if newest else 1,
                "first_run": first_run,
                "first_submission": first_submission,
                "reason": reason,
                "by": by or me(),
            },
        )[0]
        return Epoch(*row)

    epoch = db.transact(work)
    if epoch.number > 1:
        log.warning("epoch %d of the database: %s", epoch.number, reason)
    _remember(epoch)
    return epoch


def mark(runs: Sequence[int]) -> None:
    """Make these new runs look before they act, because their submissions are older than the epoch."""
    db.run(_MARK, {"runs": list(runs), "jump": ATTEMPTS_PER_EPOCH, "transactional": _transactional()})


def on_connection(sender: Any, connection: Any, **_: Any) -> None:
    """Check the epoch on a new connection, because it may lead to another database than the last one."""
    if connection.alias != DEFAULT_DB_ALIAS or connection.vendor != "postgresql":
        return
    try:
        identity = _identity()
        if identity is not None and (_current is None or _current.identity != identity):
            look()
    except DatabaseError as problem:
        # The next sweep checks again. A caller that only reads must not fail because of this.
        log.warning("could not look at the database's epoch: %s", str(problem).strip().splitlines()[:1])


def _identity() -> Identity | None:
    rows = db.fetch(_IDENTITY)
    return Identity(*rows[0]) if rows else None


def _newest() -> Epoch | None:
    rows = db.run(_NEWEST)
    return Epoch(*rows[0]) if rows else None


def _remember(epoch: Epoch | None) -> None:
    global _current
    _current = epoch


def _next(table: str) -> int:
    return int(db.fetch("SELECT nextval(pg_get_serial_sequence(%(table)s::text, 'id'))", {"table": table})[0][0])


def _transactional() -> list[str]:
    return [agent.name for agent in agents() if agent.transactional]


def _why(newest: Epoch | None, identity: Identity) -> str:
    if newest is None:
        return "the first epoch"
    if newest.system_identifier != identity.system_identifier:
        return "another database cluster: a restored backup"
    if newest.timeline != identity.timeline:
        return f"timeline {identity.timeline} after {newest.timeline}: a promotion or a recovery"
    return "another database: a restored dump"
