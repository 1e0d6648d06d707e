"""Finished orders leave the hot tables: each becomes one compact row, from which the admin can still show it.

`manage.py archive` uses it, and so does the supervisor's role, every night. An order stays if it is unfinished, stands in
Error, still has an open alert or an undelivered message, is the child of a run that is not final, or is held by its application.

1. A pass reads runs by id, the oldest first, page by page, until they are too young. So its cost follows the rows it
   moves, not the table size, and it needs no index that every order would pay for.
2. A batch is one transaction. It locks steps before their runs, in the order that all code uses, and skips rows that
   other transactions have locked. So neither the hot path nor a second archiver waits for it. Under the locks one
   statement copies the rows and deletes them from one snapshot: every deleted row has been copied.
3. If the process is killed at any moment, each order is whole, in the hot tables or in the archive. The next pass continues. An
   order that cannot be moved, because its application raises for example, stays, and keeps no other row from leaving.

Clients' idempotency keys outlive their orders in the hot tables: the submission with a key stays for KEY_DAYS.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, TypeVar

from supervision import conf
from supervision.errors import UnreadableSubmission
from supervision.history import linking
from supervision.plans import personal
from supervision.postgres import db
from supervision.runtime import failpoints
from supervision.store.sleeping import SIGNAL_LOCK
from supervision.workflow import Intake, newest

log = logging.getLogger(__name__)
PAGE = 1000
Run = TypeVar("Run", int, str)  # its id, or its public id
DAY = timedelta(days=1)


@dataclass
class Moved:
    """How many rows one batch, or a whole pass, took out of the hot tables; with `dry_run`, how many it would take.

    held: runs that finished long enough ago but stay: an alert is open, a message undelivered, a slot in use, a run above unfinished,
    the application needs its rows, or they could not be moved.
    """

    runs: int = 0
    steps: int = 0
    events: int = 0
    submissions: int = 0
    notifications: int = 0
    deliveries: int = 0
    tellings: int = 0
    held: int = 0

    def add(self, other: Moved) -> None:
        """Count another batch."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


def batches(older_than: timedelta, *, size: int = 500, keep_orders: bool = False, dry_run: bool = False) -> Iterator[Moved]:
    """Move everything that finished longer ago than this, batch by batch. The caller stops it by taking no more batches.

    A page of rows that all stay is a batch, too, without any. keep_orders: the application's own rows stay in its tables.
    """
    waiting: list[tuple[int, str]] = []
    for chosen, held in _candidates(older_than, size):
        moved = Moved(runs=len(chosen)) if dry_run or not chosen else _move_what_can_be(chosen, keep_orders, waiting)
        moved.held += held
        yield moved
    for start in range(0, len(waiting), size):  # once more: what they waited for may have left meanwhile
        yield _move_what_can_be(waiting[start : start + size], keep_orders)
    keys = max(older_than, conf.get().keep_keys)
    for table, days in (("submission", keys), ("notification", older_than), ("delivery", older_than), ("telling", older_than)):
        for gone in _tidied(table, days, size=size, dry_run=dry_run):
            yield Moved(**{f"{table}s" if table != "delivery" else "deliveries": gone})


def take(keys: Sequence[str], size: int = 200) -> Moved:
    """Move these runs, by their public ids, as far as they are final and not held, at any age. The application's rows stay."""
    total = Moved()
    for start in range(0, len(keys), size):
        chosen = db.run(_THESE, {"keys": list(keys[start : start + size])})[0]
        found = list(zip(*chosen[:2], strict=True))
        total.add(Moved(held=chosen[2]))
        if found:
            total.add(_move(found, True))
    return total


def count(older_than: timedelta) -> int:
    """How many runs finished longer ago than this. Scans the whole table."""
    rows = db.run(
        "SELECT count(*) FROM supervision_run WHERE finished_at < now() - %(days)s::float8 * interval '1 day'",
        {"days": older_than / DAY},
    )
    return int(rows[0][0])


# -------------------------------------------------------------------------------------------------------- runs

# One page of runs, and which of them may be archived. Notifications have two partial indexes; each is queried by its condition.
_BUSY = """
busy AS MATERIALIZED (
    SELECT run_id FROM supervision_alert WHERE closed_at IS NULL AND run_id IN (SELECT id FROM ended)
    UNION SELECT run_id FROM supervision_notification
           WHERE delivered_at IS NULL AND kind = 'status' AND run_id IN (SELECT id FROM ended)
    UNION SELECT run_id FROM supervision_notification
           WHERE delivered_at IS NULL AND given_up_at IS NULL AND NOT (kind = 'status') AND run_id IN (SELECT id FROM ended)
    UNION SELECT run_id FROM supervision_delivery
           WHERE delivered_at IS NULL AND given_up_at IS NULL AND run_id IN (SELECT id FROM ended)
    UNION SELECT run_id FROM supervision_slot WHERE until > now() AND run_id IN (SELECT id FROM ended)
    -- A run above it that is not final may yet undo this one.
    UNION SELECT e.id FROM ended e JOIN supervision_child c ON c.key = e.key JOIN supervision_run t ON t.key = c.root_key
           WHERE e.parent_key IS NOT NULL AND t.finished_at IS NULL)
"""
_FREE = "WHERE id NOT IN (SELECT run_id FROM busy) ORDER BY id"
_CANDIDATES = f"""
WITH page AS MATERIALIZED (
    SELECT id, key, parent_key, workflow, created_at, finished_at FROM supervision_run WHERE id > %(after)s ORDER BY id LIMIT %(page)s),
ended AS MATERIALIZED (
    SELECT id, key, parent_key, workflow FROM page WHERE finished_at < now() - %(days)s::float8 * interval '1 day'),
{_BUSY}
SELECT coalesce((SELECT max(id) FROM page), 0),
       coalesce((SELECT max(created_at) FROM page) < now() - %(days)s::float8 * interval '1 day', false),
       ARRAY(SELECT id FROM ended {_FREE}), ARRAY(SELECT workflow FROM ended {_FREE}), (SELECT count(*) FROM busy)
"""  # noqa: S608 - put together from the names above
_THESE = f"""
WITH ended AS MATERIALIZED (
    SELECT id, key, parent_key, workflow FROM supervision_run WHERE key = ANY (%(keys)s) AND finished_at IS NOT NULL),
{_BUSY}
SELECT ARRAY(SELECT id FROM ended {_FREE}), ARRAY(SELECT workflow FROM ended {_FREE}), (SELECT count(*) FROM busy)
"""  # noqa: S608 - put together from the names above


def _candidates(older_than: timedelta, size: int) -> Iterator[tuple[list[tuple[int, str]], int]]:
    """(run, workflow) of the runs that may be archived, in batches, and how many runs are held."""
    after, more = 0, True
    while more:
        params = {"after": after, "page": max(PAGE, size), "days": older_than / DAY}
        after, more, runs, workflows, held = db.run(_CANDIDATES, params)[0]
        found = list(zip(runs, workflows, strict=True))
        if not found:
            yield [], held
        for start in range(0, len(found), size):
            yield found[start : start + size], held if start == 0 else 0


# A signal to one of these runs may be on its way in a sender's transaction: such a run is left to the next pass.
_LOCK = f"""
WITH locked AS MATERIALIZED (
    SELECT s.run_id FROM supervision_stepstate s WHERE s.run_id = ANY (%(runs)s)
     ORDER BY s.run_id, s.direction, s.position FOR UPDATE SKIP LOCKED),
whole AS MATERIALIZED (
    SELECT l.run_id FROM (SELECT run_id, count(*) AS n FROM locked GROUP BY run_id) l
      JOIN (SELECT run_id, count(*) AS n FROM supervision_stepstate WHERE run_id = ANY (%(runs)s) GROUP BY run_id) a
        ON a.run_id = l.run_id AND a.n = l.n)
SELECT r.id, r.key FROM supervision_run r JOIN whole ON whole.run_id = r.id
 WHERE r.finished_at IS NOT NULL AND pg_try_advisory_xact_lock({SIGNAL_LOCK.format(key="r.key")})
 ORDER BY r.id FOR UPDATE OF r SKIP LOCKED
"""  # noqa: S608 - our own expression


def _columns(row: str, of_run: str, as_they_are: str = "") -> str:
    """A row as JSON without its nulls; JSON columns keep theirs."""
    names = [name for name in as_they_are.split(",") if name]
    kept = ", ".join(f"'{name}', {row}.{name}" for name in names)
    plain = f"jsonb_strip_nulls(to_jsonb({row}) - '{{{','.join([of_run, *names])}}}'::text[])"
    return f"{plain} || jsonb_build_object({kept})" if kept else plain


def _all(row: str, table: str, order: str, as_they_are: str = "") -> str:
    """All rows of a table that belong to the run, as a JSON array; null where there are none."""
    rows = _columns(row, "run_id", as_they_are)
    return f"(SELECT jsonb_agg({rows} ORDER BY {order}) FROM {table} {row} WHERE {row}.run_id = r.id)"  # noqa: S608 - our own names


_MOVE = f"""
WITH kept AS (
    INSERT INTO supervision_archivedrun (key, run_id, reference, workflow, process_state, created_at, finished_at, body)
    SELECT r.key, r.id, v.reference, r.workflow, r.process_state, r.created_at, r.finished_at,
           jsonb_build_object(
             'run', {_columns("r", "id", "payload")},
             'steps', {_all("s", "supervision_stepstate", "s.direction, s.position", "result,checkpoint")},
             'events', {_all("e", "supervision_stepevent", "e.seq")},
             'strays', {_all("y", "supervision_strayreply", "y.id")},
             'alerts', {_all("a", "supervision_alert", "a.id")},
             'effects', {_all("f", "supervision_effect", "f.intended_at, f.key, f.operation")},
             'pauses', (SELECT jsonb_agg({_columns("p", "run_id")} ORDER BY p.id) FROM supervision_pause p
                         WHERE p.scope = 'order' AND p.name = r.key),
             'signals', (SELECT jsonb_agg({_columns("g", "run_key", "payload")} ORDER BY g.id) FROM supervision_signal g
                          WHERE g.run_key = r.key),
             'children', (SELECT jsonb_agg({_columns("c", "payload")} ORDER BY c.step, c.number, c.generation) FROM supervision_child c
                           WHERE c.parent_key = r.key),
             'application', v.application)
      FROM unnest(%(runs)s::bigint[], %(references)s::text[], %(applications)s::jsonb[]) v(id, reference, application)
      JOIN supervision_run r ON r.id = v.id),
e AS (DELETE FROM supervision_stepevent WHERE run_id = ANY (%(runs)s) RETURNING 1),
s AS (DELETE FROM supervision_stepstate WHERE run_id = ANY (%(runs)s) RETURNING 1),
y AS (DELETE FROM supervision_strayreply WHERE run_id = ANY (%(runs)s)),
a AS (DELETE FROM supervision_alert WHERE run_id = ANY (%(runs)s)),
f AS (DELETE FROM supervision_effect WHERE run_id = ANY (%(runs)s)),
l AS (DELETE FROM supervision_slot WHERE run_id = ANY (%(runs)s)),
g AS (DELETE FROM supervision_signal WHERE run_key = ANY (%(keys)s)),
c AS (DELETE FROM supervision_child WHERE parent_key = ANY (%(keys)s)),
p AS (DELETE FROM supervision_pause WHERE scope = 'order' AND name = ANY (%(keys)s)),
u AS (DELETE FROM supervision_submission WHERE public_id = ANY (%(keys)s) AND consumed_at IS NOT NULL
         AND (client_key IS NULL OR created_at < now() - %(key_days)s::float8 * interval '1 day') RETURNING 1),
r AS (DELETE FROM supervision_run WHERE id = ANY (%(runs)s) RETURNING 1)
SELECT (SELECT count(*) FROM r), (SELECT count(*) FROM s), (SELECT count(*) FROM e), (SELECT count(*) FROM u)
"""  # noqa: S608 - put together from the names above


def _move_what_can_be(chosen: Sequence[tuple[int, str]], keep_orders: bool, waiting: list[tuple[int, str]] | None = None) -> Moved:
    """Move one batch; if that fails, smaller and smaller parts of it, so that only the runs at fault stay. The next pass tries them."""
    try:
        return _move(chosen, keep_orders, waiting)
    except Exception as error:
        if db.passes(error) or isinstance(error, failpoints.Injected):
            raise
        if len(chosen) == 1:
            log.exception("run %s could not be archived", chosen[0][0])
            return Moved(held=1)
    moved, half = Moved(), len(chosen) // 2
    for part in (chosen[:half], chosen[half:]):
        moved.add(_move_what_can_be(part, keep_orders, waiting))
    return moved


def _move(chosen: Sequence[tuple[int, str]], keep_orders: bool, waiting: list[tuple[int, str]] | None = None) -> Moved:
    """One batch, in one transaction. Runs that their application holds are counted, or appended to `waiting`."""
    workflow_of = dict(chosen)
    held: set[int] = set()

    linking.link(runs=list(workflow_of))  # an archived run gets no further link

    def work() -> Moved:
        locked = dict(db.fetch(_LOCK, {"runs": list(workflow_of)}))
        held.clear()
        held.update(_held_by_applications({run_id: workflow_of[run_id] for run_id in locked}, keep_orders))
        for run_id in held:
            del locked[run_id]
        if not locked:
            return Moved()
        application = _ask_applications({run_id: workflow_of[run_id] for run_id in locked}, keep_orders)
        _mask({run_id: workflow_of[run_id] for run_id in locked}, locked)
        facts = [application.get(run_id) for run_id in locked]
        params = {
            "runs": list(locked),
            "keys": list(locked.values()),
            "references": [fact and fact.get("reference") for fact in facts],
            "applications": [fact and json.dumps(fact) for fact in facts],
            "key_days": conf.get().keep_keys / DAY,
        }
        moved = Moved(*db.fetch(_MOVE, params)[0])
        failpoints.hit("archive.before_commit")
        return moved

    moved = db.transact(work)
    if waiting is None:
        moved.held = len(held)
    else:
        waiting += [(run_id, workflow_of[run_id]) for run_id in sorted(held)]
    return moved


_OF_STEPS = """
SELECT s.run_id, s.direction, s.position, s.name, s.result, s.checkpoint FROM supervision_stepstate s
 WHERE s.run_id = ANY (%(runs)s) AND s.name = ANY (%(names)s) ORDER BY s.run_id, s.direction, s.position
"""
_MASK_STEPS = """
UPDATE supervision_stepstate s SET result = v.result, checkpoint = v.checkpoint
  FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(results)s::jsonb[], %(checkpoints)s::jsonb[])
         v(run_id, direction, position, result, checkpoint)
 WHERE s.run_id = v.run_id AND s.direction = v.direction AND s.position = v.position
"""
_OF_SIGNALS = "SELECT id, run_key, name, payload FROM supervision_signal WHERE run_key = ANY (%(keys)s) AND name = ANY (%(names)s)"
_MASK_SIGNALS = """
UPDATE supervision_signal g SET payload = v.payload FROM unnest(%(ids)s::bigint[], %(payloads)s::jsonb[]) v(id, payload) WHERE g.id = v.id
"""


def _mask(workflow_of: Mapping[int, str], keys: Mapping[int, str]) -> None:
    """Mask the personal data of these runs, in the transaction that moves them. Costs nothing where no workflow names any."""
    fields = {workflow: personal.fields_of(workflow) for workflow in set(workflow_of.values())}
    if steps := sorted({name for by_step, _ in fields.values() for name in by_step}):
        rows = db.fetch(_OF_STEPS, {"runs": list(workflow_of), "names": steps})
        mine = [(row, names) for row in rows if (names := fields[workflow_of[row[0]]][0].get(row[3]))]
        facts = {name: [row[column] for row, _ in mine] for column, name in enumerate(("runs", "directions", "positions"))}
        facts |= {name: [_json(row[column], names) for row, names in mine] for column, name in ((4, "results"), (5, "checkpoints"))}
        db.fetch(_MASK_STEPS, facts)
    if signals := sorted({name for _, by_signal in fields.values() for name in by_signal}):
        run_of = {key: run_id for run_id, key in keys.items()}
        rows = db.fetch(_OF_SIGNALS, {"keys": list(run_of), "names": signals})
        kept = [(row, names) for row in rows if (names := fields[workflow_of[run_of[row[1]]]][1].get(row[2]))]
        db.fetch(_MASK_SIGNALS, {"ids": [row[0] for row, _ in kept], "payloads": [_json(row[3], names) for row, names in kept]})


def _json(value: Any, names: Collection[str]) -> str | None:
    return None if value is None else json.dumps(personal.masked(value, names))


def _held_by_applications(workflow_of: Mapping[int, str], keep_orders: bool) -> set[int]:
    """Those of these runs that their applications do not let go yet."""
    return {run_id for intake, ids in by_intake(workflow_of) for run_id in intake.held(ids, keep=keep_orders)}


def _ask_applications(workflow_of: Mapping[int, str], keep_orders: bool) -> dict[int, Mapping[str, Any]]:
    """The facts that each workflow's application wants to keep about its runs."""
    facts: dict[int, Mapping[str, Any]] = {}
    for intake, ids in by_intake(workflow_of):
        facts |= intake.archive(ids, keep=keep_orders)
    return facts


def by_intake(workflow_of: Mapping[Run, str]) -> Iterator[tuple[Intake, list[Run]]]:
    """These runs by their application. Those of a workflow that is not registered any more are left out: no code knows their rows."""
    runs: dict[str, list[Run]] = defaultdict(list)
    for run, workflow in workflow_of.items():
        runs[workflow].append(run)
    for workflow, its in runs.items():
        try:
            intake = newest(workflow).intake
        except UnreadableSubmission:
            continue
        yield intake, its


# ------------------------------------------------------------------------------------- rows without a run of their own

_DONE_WITH = {
    # Kept longer than its order, for the idempotency key. A dead letter's submission is kept, because it may be requeued.
    "submission": "t.consumed_at IS NOT NULL AND t.created_at < {before}"
    " AND EXISTS (SELECT FROM supervision_archivedrun a WHERE a.key = t.public_id)",
    "notification": "coalesce(t.delivered_at, t.given_up_at) < {before}",
    "delivery": "coalesce(t.delivered_at, t.given_up_at) < {before}",
    # The channels that were told of an incident are told of its end.
    "telling": "coalesce(t.delivered_at, t.given_up_at) < {before}"
    " AND NOT EXISTS (SELECT FROM supervision_incident i WHERE i.id = t.incident_id AND i.closed_at IS NULL)",
}
_TIDY = """
WITH page AS MATERIALIZED (
    SELECT id, created_at FROM supervision_{table} WHERE id > %(after)s ORDER BY id LIMIT %(page)s),
over AS MATERIALIZED (
    SELECT t.id FROM supervision_{table} t JOIN page ON page.id = t.id WHERE {done_with}
     ORDER BY t.id {lock}),
gone AS ({act})
SELECT coalesce((SELECT max(id) FROM page), 0), coalesce((SELECT max(created_at) FROM page) < {before}, false),
       (SELECT count(*) FROM gone)
"""


def _tidied(table: str, older_than: timedelta, *, size: int, dry_run: bool = False) -> Iterator[int]:
    """Delete rows of that age that are no longer needed, batch by batch, oldest first; yields the size of each batch."""
    before = "now() - %(days)s::float8 * interval '1 day'"
    delete = f"DELETE FROM supervision_{table} t USING over WHERE t.id = over.id RETURNING t.id"  # noqa: S608
    statement = _TIDY.format(
        table=table,
        before=before,
        done_with=_DONE_WITH[table].format(before=before),
        lock="" if dry_run else "FOR UPDATE OF t SKIP LOCKED",
        act="SELECT id FROM over" if dry_run else delete,
    )
    after, more = 0, True
    while more:
        after, more, gone = db.run(statement, {"after": after, "page": size, "days": older_than / DAY})[0]
        yield gone
