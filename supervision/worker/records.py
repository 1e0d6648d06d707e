"""The records' end: what was kept as evidence is deleted RECORD_DAYS after it was over, page by page along the primary keys.

A page is read by ascending id, the oldest rows first, until they are too young; so a pass reads the rows that it deletes, and of those
that stay only the few that are as old. The application deletes its rows about an order in the transaction that deletes the order from
the archive (`Intake.forget`). If that fails, the order stays, and no other.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from datetime import timedelta
from functools import partial

from django.db import transaction

from supervision import conf
from supervision.operations.archive import by_intake
from supervision.postgres import db
from supervision.recovery import held_time
from supervision.runtime import tidying
from supervision.workflow import Intake

log = logging.getLogger(__name__)

SIZE = 500
_AT: dict[str, int] = {}  # how far each pass has come

# (the moment that rises with the id, and when a row is over); `b` is the moment before which it has to be.
RECORDS = {
    "supervision_approval": ("asked_at", "t.decided_at < b AND (t.state <> 'approved' OR t.carried_out_at IS NOT NULL)"),
    "supervision_finding": ("found_at", "t.closed_at < b"),
    "supervision_incident": ("opened_at", "t.closed_at < b"),
    "supervision_pause": ("paused_at", "coalesce(t.lifted_at, t.until) < b"),
    "supervision_deadletter": ("created_at", "t.resolved_at < b"),
    # A trigger keeps younger entries.
    "django_admin_log": ("action_time", "t.action_time < least(b, now() - interval '90 days')"),
}
# What goes with a row of these tables.
_WITH = {
    "supervision_incident": """,
n AS (DELETE FROM supervision_incidentnote WHERE incident_id = ANY (ARRAY(SELECT id FROM gone))),
m AS (DELETE FROM supervision_telling WHERE incident_id = ANY (ARRAY(SELECT id FROM gone)))""",
    # A submission that became a dead letter has no other end, nor has what was said of it. One that was put back has a run.
    "supervision_deadletter": """,
u AS (DELETE FROM supervision_submission u
       WHERE u.public_id = ANY (ARRAY(SELECT public_id FROM gone)) AND u.consumed_at IS NOT NULL
         AND NOT EXISTS (SELECT FROM supervision_run r WHERE r.key = u.public_id)
         AND NOT EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = u.public_id)
         AND NOT EXISTS (SELECT FROM supervision_deadletter d
                          WHERE d.public_id = u.public_id AND d.id NOT IN (SELECT id FROM gone)) RETURNING u.public_id),
s AS (DELETE FROM supervision_signal WHERE run_key = ANY (ARRAY(SELECT public_id FROM u))),
n AS (DELETE FROM supervision_runnote WHERE run_key = ANY (ARRAY(SELECT public_id FROM u))),
o AS (DELETE FROM supervision_assignee WHERE run_key = ANY (ARRAY(SELECT public_id FROM u)))""",
}
_DELETE = """
WITH page AS MATERIALIZED (SELECT id, {at} AS at FROM {table} WHERE id > %(after)s ORDER BY id LIMIT %(size)s),
over AS MATERIALIZED (
    SELECT t.id FROM {table} t CROSS JOIN (SELECT now() - %(days)s::float8 * interval '1 day') v(b)
     WHERE t.id = ANY (ARRAY(SELECT id FROM page)) AND {over} ORDER BY t.id {lock}),
gone AS (DELETE FROM {table} t WHERE t.id = ANY (ARRAY(SELECT id FROM over)) RETURNING t.*){more}
SELECT (SELECT max(id) FROM page), (SELECT max(at) FROM page) < now() - %(days)s::float8 * interval '1 day', (SELECT count(*) FROM gone)
"""
_OLD = """
WITH page AS MATERIALIZED (
    SELECT run_id, created_at FROM supervision_archivedrun WHERE run_id > %(after)s ORDER BY run_id LIMIT %(size)s),
over AS MATERIALIZED (
    SELECT a.run_id, a.key, a.workflow FROM supervision_archivedrun a
     WHERE a.run_id = ANY (ARRAY(SELECT run_id FROM page)) AND a.finished_at < now() - %(days)s::float8 * interval '1 day'
     ORDER BY a.run_id FOR UPDATE OF a SKIP LOCKED)
SELECT (SELECT max(run_id) FROM page), (SELECT max(created_at) FROM page) < now() - %(days)s::float8 * interval '1 day',
       (SELECT coalesce(jsonb_object_agg(key, workflow), '{}') FROM over)
"""
_FORGET = """
WITH gone AS MATERIALIZED (DELETE FROM supervision_archivedrun WHERE key = ANY (%(keys)s) RETURNING run_id, key),
y AS (DELETE FROM supervision_strayreply WHERE run_id = ANY (ARRAY(SELECT run_id FROM gone))),
x AS (DELETE FROM supervision_exchange WHERE run_id = ANY (ARRAY(SELECT run_id FROM gone))),
u AS (DELETE FROM supervision_submission WHERE public_id = ANY (ARRAY(SELECT key FROM gone))),
n AS (DELETE FROM supervision_runnote WHERE run_key = ANY (ARRAY(SELECT key FROM gone))),
o AS (DELETE FROM supervision_assignee WHERE run_key = ANY (ARRAY(SELECT key FROM gone)))
SELECT count(*) FROM gone
"""


def _kept() -> timedelta | None:
    """How long records are kept: never shorter than clients' idempotency keys, or than pauses count for an order's own time."""
    now = conf.get()
    return None if now.keep_records is None else max(now.keep_records, now.keep_keys, held_time.KEPT)


@tidying.tidier("the archive")
def forget_runs() -> bool:
    """Delete archived runs that ended RECORD_DAYS ago, with notes, owners and the application's rows. True if there may be more."""
    kept = _kept()
    if kept is None:
        return False
    return db.transact(lambda: _forget_runs(kept / timedelta(days=1)))


def _forget_runs(days: float) -> bool:
    after, more, workflow_of = db.fetch(_OLD, {"after": _AT.get("archive", 0), "size": SIZE, "days": days})[0]
    stay = {key for intake, keys in by_intake(workflow_of) for key in _staying(intake, keys)}
    db.fetch(_FORGET, {"keys": [key for key in workflow_of if key not in stay]})
    _AT["archive"] = after if more else 0
    return bool(more)


def _staying(intake: Intake, keys: Sequence[str]) -> Collection[str]:
    """Those of these orders that their application keeps. One whose rows it cannot delete stays alone, and the next pass tries it."""
    try:
        with transaction.atomic():
            return intake.forget(keys)
    except Exception as error:
        if db.passes(error):
            raise
        if len(keys) == 1:
            log.exception("the application could not delete its rows of order %s", keys[0])
            return keys
    half = len(keys) // 2
    return {*_staying(intake, keys[:half]), *_staying(intake, keys[half:])}


def deletion(table: str) -> str:
    """The statement that deletes one page of these records."""
    at, over = RECORDS[table]
    # To lock a row takes the right to change it, which no role has on the operators' log.
    lock = "" if table == "django_admin_log" else "FOR UPDATE OF t SKIP LOCKED"
    return _DELETE.format(table=table, at=at, over=over, lock=lock, more=_WITH.get(table, ""))


def _forget(table: str) -> bool:
    kept = _kept()
    if kept is None:
        return False
    statement = deletion(table)
    after, more, _gone = db.run(statement, {"after": _AT.get(table, 0), "size": SIZE, "days": kept / timedelta(days=1)})[0]
    _AT[table] = after if more else 0
    return bool(more)


for _table in RECORDS:
    tidying.tidier(_table)(partial(_forget, _table))
