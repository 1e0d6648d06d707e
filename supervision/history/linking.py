"""Makes the links of the chain, after the fact: each batch is one statement, and no order waits for it or pays for it.

A run is linked when it has ended, when it has been quiet for a minute, or when an event has waited for ten minutes. A link covers the
run's next events in their order up to the first that is not committed yet, so transactions that commit in another order leave no hole.
Links of runs, and of entries of the operators' log, make up a batch; its head is a digest of the previous head and of these links. Two
processes may link at once: a lock orders their batches.

docs/adr/0040 states the forms. The audit has its own code for them (`supervision.audit.chain`) and imports nothing from here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from supervision.postgres import db
from supervision.runtime import failpoints

log = logging.getLogger(__name__)

TURN_SECONDS = 1.0
REST_SECONDS = 30.0  # from one turn to the next
PASS_SECONDS = 600.0  # from one pass over all runs and entries to the next
PAGE = 1000
SIZE = 500
OVERLAP = timedelta(minutes=1)  # transactions that began this long before the newest end that a pass has seen may commit yet
LOCK = 7_203_771_401

# The limits and the offset below keep the planner from a hash join of the page with all events, which it takes for cheap while the
# table is new.
_RESTING = """
    SELECT p.id FROM page p
      LEFT JOIN LATERAL (SELECT l.through FROM supervision_historylink l
                          WHERE l.kind = 'run' AND l.subject = p.id ORDER BY l.through DESC LIMIT 1) l ON true
     CROSS JOIN LATERAL (SELECT f.at FROM supervision_stepevent f
                          WHERE f.run_id = p.id AND f.seq = coalesce(l.through, 0) + 1 LIMIT 1) f
     WHERE p.finished_at IS NOT NULL OR f.at < now() - interval '10 minutes'
        OR (SELECT e.at FROM supervision_stepevent e WHERE e.run_id = p.id ORDER BY e.seq DESC LIMIT 1) < now() - interval '1 minute'
"""
# Runs that have ended since the last turn.
_ENDED = f"""
WITH page AS MATERIALIZED (
    SELECT id, finished_at FROM supervision_run WHERE finished_at > %(since)s::timestamptz ORDER BY finished_at LIMIT %(size)s)
SELECT (SELECT count(*) FROM page), (SELECT max(finished_at) FROM page), ARRAY({_RESTING})
"""  # noqa: S608 - our own text
_ALL_RUNS = f"""
WITH page AS MATERIALIZED (SELECT id, finished_at FROM supervision_run WHERE id > %(after)s ORDER BY id LIMIT %(size)s)
SELECT (SELECT max(id) FROM page), (SELECT count(*) FROM page), ARRAY({_RESTING})
"""  # noqa: S608 - our own text
_ALL_ENTRIES = """
WITH page AS MATERIALIZED (SELECT id FROM django_admin_log WHERE id > %(after)s ORDER BY id LIMIT %(size)s)
SELECT (SELECT max(id) FROM page), (SELECT count(*) FROM page), ARRAY(
    SELECT p.id FROM page p
     WHERE NOT EXISTS (SELECT FROM supervision_historylink l WHERE l.kind = 'entry' AND l.subject = p.id AND l.through = 1))
"""


def _field(value: str, counted: str) -> str:
    """One value in its form: the length in bytes (of `counted`), a colon, the text, a comma; `-,` for null."""
    return f"coalesce(octet_length({counted}) || ':' || {value} || ',', '-,')"


def _form(*values: str) -> str:
    """The forms of values whose text is ASCII, in any encoding of the database."""
    return " || ".join(_field(f"({value})::text", f"({value})::text") for value in values)


def _form_of_text(value: str) -> str:
    return _field(value, f"convert_to({value}, 'UTF8')")


def _digest(text: str) -> str:
    return f"sha256(convert_to({text}, 'UTF8'))"


def _micros(value: str) -> str:
    return f"(date_part('epoch', {value}) * 1000000)::bigint"  # exact for 200 years; `extract` computes in numeric, which costs more


_EVENT = _digest(_form("e.run_id", "e.seq", "e.position", "e.direction", "e.attempt", "e.from_state", "e.to_state", _micros("e.at")))
_ENTRY = _digest(
    _form("g.id", _micros("g.action_time"), "g.user_id", "g.content_type_id")
    + " || "
    + _form_of_text("g.object_id")
    + " || "
    + _form("g.action_flag")
)
_LEAF = _form("n.kind", "n.subject", "n.through", _micros("n.newest_at"), "encode(n.digest, 'hex')")
_OF_BATCH = _form("p.number + 1", "encode(p.head, 'hex')", _micros("now()"), "count(*)")
_HEAD = _digest(_OF_BATCH + f""" || string_agg({_LEAF}, '' ORDER BY n.kind COLLATE "C", n.subject, n.through)""")
_LINK = f"""
WITH known AS MATERIALIZED (
    SELECT c.id, coalesce(l.through, 0) AS through, coalesce(l.digest, '') AS digest
      FROM (SELECT DISTINCT unnest(%(runs)s::bigint[])) c(id)
      LEFT JOIN LATERAL (SELECT l.through, l.digest FROM supervision_historylink l
                          WHERE l.kind = 'run' AND l.subject = c.id ORDER BY l.through DESC LIMIT 1) l ON true),
event AS (
    SELECT e.run_id, e.seq, e.at, k.through, k.digest AS before, {_EVENT} AS digest,
           row_number() OVER (PARTITION BY e.run_id ORDER BY e.seq) AS place
      FROM known k CROSS JOIN LATERAL (SELECT * FROM supervision_stepevent e WHERE e.run_id = k.id AND e.seq > k.through OFFSET 0) e),
new AS MATERIALIZED (
    SELECT 'run' AS kind, run_id AS subject, max(seq) AS through, (array_agg(at ORDER BY seq DESC))[1] AS newest_at,
           sha256(before || string_agg(digest, '' ORDER BY seq)) AS digest,
           string_agg(substring(digest FOR 4), '' ORDER BY seq) AS marks
      FROM event WHERE seq = through + place GROUP BY run_id, before
    UNION ALL
    SELECT 'entry', g.id, 1, g.action_time, sha256({_ENTRY}), substring({_ENTRY} FOR 4)
      FROM django_admin_log g
     WHERE g.id = ANY (%(entries)s::bigint[])
       AND NOT EXISTS (SELECT FROM supervision_historylink l WHERE l.kind = 'entry' AND l.subject = g.id AND l.through = 1)),
previous AS MATERIALIZED (
    SELECT coalesce(max(number), 0) AS number, (array_agg(head ORDER BY number DESC))[1] AS head
      FROM (SELECT number, head FROM supervision_historybatch ORDER BY number DESC LIMIT 1) newest),
batch AS (
    INSERT INTO supervision_historybatch (number, made_at, links, previous, head)
    SELECT p.number + 1, now(), count(*), p.head, {_HEAD}
      FROM new n CROSS JOIN previous p GROUP BY p.number, p.head
    RETURNING number, links, head)
INSERT INTO supervision_historylink (kind, subject, through, newest_at, batch, digest, marks)
SELECT n.kind, n.subject, n.through, n.newest_at, b.number, n.digest, n.marks FROM new n CROSS JOIN batch b
RETURNING batch, (SELECT links FROM batch), (SELECT encode(head, 'hex') FROM batch)
"""  # noqa: S608 - our own text


class Batch(NamedTuple):
    """What one call of `link` has committed. head: of the chain, as hex."""

    number: int
    links: int
    head: str


def link(*, runs: Sequence[int] = (), entries: Sequence[int] = ()) -> Batch | None:
    """Link what these runs have written since their last links, and these entries of the log, in one batch and one commit.

    None if there was nothing new. Waits for another process that is linking. The new head is written to the log.
    """

    def work() -> Batch | None:
        # A statement of its own: the next one sees what the holder of the lock has committed.
        db.fetch("SELECT pg_advisory_xact_lock(%(lock)s)", {"lock": LOCK})
        rows = db.fetch(_LINK, {"runs": list(runs), "entries": list(entries)})
        failpoints.hit("history.before_commit")
        return Batch(*rows[0]) if rows else None

    made = db.transact(work) if runs or entries else None
    if made:
        log.info("history: batch %d with %d links has the head %s", *made)
    return made


class _Pass:
    """How far this process has read. It may forget that: links are compared with events, so no link is made twice."""

    def __init__(self) -> None:
        self.ended: datetime | str = "-infinity"
        self.run = self.entry = 0
        self.next_turn = self.next_pass = 0.0


_pass = _Pass()


def forget() -> None:
    """Begin again at the first run, as a new process does."""
    global _pass
    _pass = _Pass()


def turn(seconds: float = TURN_SECONDS) -> bool:
    """Link for so long, page by page: what has ended and been logged since the last turn, and every ten minutes all else. True if
    there is more.

    A failure is logged and the next turn tries again. Processes that take turns at the same time do each other no harm.
    """
    if time.monotonic() < _pass.next_turn:
        return False
    end = time.monotonic() + seconds
    try:
        for step in (_ended, _entries, _runs):
            while step():
                if time.monotonic() >= end:
                    return True
    except Exception as error:
        if db.passes(error):
            raise
        log.exception("the history could not be linked; the next turn tries again")
    _pass.next_turn = time.monotonic() + REST_SECONDS
    return False


def _ended() -> bool:
    found, newest, runs = db.run(_ENDED, {"since": _pass.ended, "size": PAGE})[0]
    _in_batches(runs)
    if found == PAGE:
        _pass.ended = newest
    elif newest is not None:
        _pass.ended = newest - OVERLAP
    return bool(found == PAGE)


def _entries() -> bool:
    last, found, entries = db.run(_ALL_ENTRIES, {"after": _pass.entry, "size": PAGE})[0]
    for first in range(0, len(entries), SIZE):
        link(entries=entries[first : first + SIZE])
    # Ids become visible in another order: the newest are read again.
    _pass.entry = last if found == PAGE else max((last or 0) - PAGE // 2, 0)
    return bool(found == PAGE)


def _runs() -> bool:
    if time.monotonic() < _pass.next_pass:
        return False
    last, found, runs = db.run(_ALL_RUNS, {"after": _pass.run, "size": PAGE})[0]
    _in_batches(runs)
    if found == PAGE:
        _pass.run = last
        return True
    _pass.run = _pass.entry = 0
    _pass.next_pass = time.monotonic() + PASS_SECONDS
    return False


def _in_batches(runs: Sequence[int]) -> None:
    for first in range(0, len(runs), SIZE):
        link(runs=runs[first : first + SIZE])
