"""Which submissions may end whoever reads them: told by what happened to their readers, never by how long they wait.

A consumer locks the rows it reads until its commit. Where the process ends in between, PostgreSQL rolls the transaction
back and leaves its number in each of the rows (`xmax`). So the next consumer sees, at no cost to anybody, which rows were
in the hands of a transaction that came to nothing: they are suspects. None of them is blamed for that, because the
others were in the same hands.

A suspect is read by itself. Before that a commit counts the reading (`deliveries`) and names the reader, and a session's
advisory lock is held until it is over. A reading that ends clears what was written, whatever came of it. So a count that
still stands while the lock is free belongs to a reading whose process did not live to its end. The submission that did
this MOST_READINGS times is set aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from django.db import InterfaceError, OperationalError

from supervision import db
from supervision.handles import Taken
from supervision.identity import me

MOST_READINGS = 3  # of one submission alone, begun and not ended

# A row's mark has 32 of a transaction number's 64 bits. What is no number of a transaction (a lock that several share)
# reads as one of any time: at worst an innocent row is read alone once.
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

# SKIP LOCKED: whoever has the row reads it now. A reader's own earlier reading is no evidence, for the reader lives.
_BEGIN = """
WITH one AS MATERIALIZED (
    SELECT id, reader, CASE WHEN reader IS NULL THEN 0 ELSE deliveries - (reader = %(me)s)::int END AS unfinished
      FROM supervision_submission WHERE id = %(id)s AND consumed_at IS NULL FOR UPDATE SKIP LOCKED)
UPDATE supervision_submission s
   SET deliveries = one.unfinished + 1, reader = %(me)s, suspected_at = coalesce(s.suspected_at, now())
  FROM one WHERE s.id = one.id
RETURNING one.unfinished, one.reader
"""

# It harms no reader; or, where it was not read (another process had locked it), nobody knows any more than before.
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

    unfinished: how many such readings before it ended their process. reader: the last process that ended so. ended: set
    by who has read it, whatever came of that.
    """

    unfinished: int = 0
    reader: str | None = None
    ended: bool = False

    @property
    def to_blame(self) -> bool:
        """Whether it has ended enough readers."""
        return self.unfinished >= MOST_READINGS

    @property
    def reason(self) -> str:
        """Why it is set aside."""
        return (
            f"read alone {self.unfinished} times, and each time the process that read it ended (the last was {self.reader}):"
            " it may stop whoever reads it"
        )


def among(taken: Sequence[Taken]) -> set[int]:
    """Those of these locked submissions that a transaction had taken before which came to nothing. Inside a transaction."""
    suspects = {item.id for item in taken if item.suspected}
    marks = {item.id: item.mark for item in taken if item.mark and not item.suspected}
    if marks:
        suspects |= {row[0] for row in db.fetch(_ROLLED_BACK, {"ids": list(marks), "marks": list(marks.values())})}
    return suspects


def remember(ids: Sequence[int]) -> None:
    """Write down that these are suspects: this transaction's own lock replaces the mark that told so."""
    db.fetch(_MARK, {"ids": list(ids)})


@contextmanager
def alone(submission: int) -> Iterator[Alone | None]:
    """Read this submission by itself in the body; None when another process is at it or it is consumed.

    Where the body has not set `ended`, it was not read, and what stood before stands again.
    """
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
        with suppress(OperationalError, InterfaceError):  # who cannot reach the database has lost the lock as well
            if reading is not None:
                before = {"unfinished": reading.unfinished, "reader": reading.reader}
                db.run(_CLEAR if reading.ended else _AS_BEFORE, {"id": submission, "me": me(), **before}, patience=0.0)
            db.run(_UNLOCK, {"name": name}, patience=0.0)
