"""Finds submissions that may kill the process that reads them: by what happened to their readers, never by how long they wait.

A consumer locks the rows it reads until its commit. If the process ends in between, PostgreSQL rolls the transaction back
and leaves its number in each of the rows (`xmax`). So the next consumer sees, at no extra cost, which rows a rolled-back
transaction had locked: they are suspects. This alone blames none of them, because that transaction had locked all of them.

A suspect is read by itself. Before that, a commit counts the reading (`deliveries`) and names the reader, and the reader holds
a session-level advisory lock until the reading is over. A reading that ends, with any result, clears these columns. So a
count that still stands while the lock is free belongs to a reading whose process died. A submission that did this
MOST_READINGS times becomes a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from django.db import InterfaceError, OperationalError

from supervision.postgres import db
from supervision.postgres.params import own_session
from supervision.runtime.identity import me
from supervision.store.records import LockedSubmission

MOST_READINGS = 3  # readings of one submission by itself that began and did not end

# A row's mark (`xmax`) has 32 of a transaction number's 64 bits. A mark that is no transaction's number (a lock that several
# transactions share) may look like any old transaction: at worst an innocent row is read alone once.
_ROLLED_BACK = """
SELECT v.id
  FROM unnest(%(ids)s::bigint[], %(marks)s::bigint[]) v(id, mark),
       (SELECT pg_current_xact_id()::text::bigint AS newest OFFSET 0) x
 WHERE pg_xact_status(greatest(0, (x.newest >> 32 << 32) + v.mark
           - CASE WHEN v.mark > (x.newest & 4294967295) THEN 4294967296 ELSE 0 END)::text::xid8) = 'aborted'
"""

_MARK = """
UPDATE supervision_submission SET suspected_at = now()
 WHERE id = ANY (%(ids)s::bigint[]) AND consumed_at IS NULL AND suspected_at IS NULL
"""

_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 20261122))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended(%(name)s, 20261122))"

# SKIP LOCKED: a process that has locked the row reads it now. A reader's own earlier reading is no evidence: the reader lives.
_BEGIN = """
WITH one AS MATERIALIZED (
    SELECT id, reader, CASE WHEN reader IS NULL THEN 0 ELSE deliveries - (reader = %(me)s)::int END AS unfinished
      FROM supervision_submission WHERE id = %(id)s AND consumed_at IS NULL FOR UPDATE SKIP LOCKED)
UPDATE supervision_submission s
   SET deliveries = one.unfinished + 1, reader = %(me)s, suspected_at = coalesce(s.suspected_at, now())
  FROM one WHERE s.id = one.id
RETURNING one.unfinished, one.reader
"""

# _CLEAR: the submission was read and harms no reader. _AS_BEFORE: it was not read, because another process had locked it.
_CLEAR = """
UPDATE supervision_submission SET deliveries = 0, reader = NULL, suspected_at = NULL
 WHERE id = %(id)s AND consumed_at IS NULL AND reader = %(me)s
"""
_AS_BEFORE = """
UPDATE supervision_submission SET deliveries = %(unfinished)s, reader = %(reader)s
 WHERE id = %(id)s AND consumed_at IS NULL AND reader = %(me)s
"""


@dataclass
class Alone:
    """A reading of one submission by itself that has begun.

    unfinished: how many such readings before it ended their process. reader: the last process that ended this way. ended:
    the caller sets it after it has read the submission, with any result.
    """

    unfinished: int = 0
    reader: str | None = None
    ended: bool = False

    @property
    def to_blame(self) -> bool:
        """Whether it has ended MOST_READINGS readers."""
        return self.unfinished >= MOST_READINGS

    @property
    def reason(self) -> str:
        """Why the submission becomes a dead letter."""
        return (
            f"read alone {self.unfinished} times, and each time the process that read it ended (the last was {self.reader}):"
            " it may stop every reader"
        )


def among(taken: Sequence[LockedSubmission]) -> set[int]:
    """The locked submissions that a rolled-back transaction had locked before: suspects. Call it inside a transaction."""
    suspects = {item.id for item in taken if item.suspected}
    marks = {item.id: item.mark for item in taken if item.mark and not item.suspected}
    if marks:
        suspects |= {row[0] for row in db.fetch(_ROLLED_BACK, {"ids": list(marks), "marks": list(marks.values())})}
    return suspects


def remember(ids: Sequence[int]) -> None:
    """Record that these are suspects, because this transaction's own lock overwrites the mark that showed it."""
    db.fetch(_MARK, {"ids": list(ids)})


@contextmanager
def alone(submission: int) -> Iterator[Alone | None]:
    """Read this submission by itself in the body; None when another process reads it or it is consumed.

    If the body has not set `ended`, the submission was not read, and the earlier count and reader are restored.
    """
    with own_session(), _locked(submission) as reading:
        yield reading


@contextmanager
def _locked(submission: int) -> Iterator[Alone | None]:
    name = f"submission {submission}"
    if not db.run(_TRY_LOCK, {"name": name})[0][0]:
        yield None
        return
    reading: Alone | None = None
    try:
        rows = db.run(_BEGIN, {"id": submission, "me": me()})
        reading = Alone(*rows[0]) if rows else None
        yield reading
    finally:
        with suppress(OperationalError, InterfaceError):  # without its connection this process has lost the lock, too
            if reading is not None:
                before = {"unfinished": reading.unfinished, "reader": reading.reader}
                db.run(_CLEAR if reading.ended else _AS_BEFORE, {"id": submission, "me": me(), **before}, patience=0.0)
            db.run(_UNLOCK, {"name": name}, patience=0.0)
