"""Verifies the chain over the history: reads the raw rows again, in Python, and shares no statement with the code that made the chain.

docs/adr/0040 states the forms. Everything is read in pages, in the order of keys, so the memory that it takes does not grow with the
history. Rows are read before the archive is: a run that is archived meanwhile is found in one of the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from itertools import groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

from supervision import conf
from supervision.postgres import db

PAGE = 500
MARK = 4
MOST = 200  # of the breaks of one kind that are named
DAY = timedelta(days=1)
LONGEST_TRANSACTION = timedelta(hours=1)  # an entry is visible so long after its number was given, at most
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _time(column: str) -> str:
    """The column, null if it is none that Python could hold: a time that no process wrote."""
    return f"CASE WHEN {column} BETWEEN '1970-01-01' AND '9999-01-01' THEN {column} END"


_BATCHES = f"""
SELECT b.number, {_time("b.made_at")}, b.links, b.previous, b.head, l.kind, l.subject, l.through, {_time("l.newest_at")}, l.digest
  FROM (SELECT * FROM supervision_historybatch WHERE number > %(after)s ORDER BY number LIMIT 20) b
  LEFT JOIN supervision_historylink l ON l.batch = b.number ORDER BY b.number
"""  # noqa: S608 - our own columns
_LINKS = f"""
SELECT kind, subject, through, {_time("newest_at")}, batch, digest, marks FROM supervision_historylink
 WHERE (kind, subject, through) > (%(kind)s, %(subject)s::bigint, %(through)s::int) ORDER BY kind, subject, through LIMIT %(size)s
"""  # noqa: S608 - our own columns
_EVENTS = f"""
SELECT run_id, seq, position, direction, attempt, from_state, to_state, {_time("at")} FROM supervision_stepevent
 WHERE run_id = ANY (%(ids)s) ORDER BY run_id, seq
"""  # noqa: S608 - our own columns
_ARCHIVED = "SELECT run_id, body -> 'events' FROM supervision_archivedrun WHERE run_id = ANY (%(ids)s)"
_ENTRIES = f"""
SELECT id, {_time("action_time")}, user_id, content_type_id, object_id, action_flag FROM django_admin_log WHERE id = ANY (%(ids)s)
"""  # noqa: S608 - our own columns
_HEAD = "SELECT number, made_at, head FROM supervision_historybatch ORDER BY number DESC LIMIT 1"
_HAS_HEAD = "SELECT number FROM supervision_historybatch WHERE head = decode(%(head)s, 'hex')"
# Before the first batch there is no chain. While batches are made, old runs wait for their turn.
LATE = """
SELECT r.id AS run_id, f.seq, f.at::text, v.newest::text AS newest_batch
  FROM (SELECT max(made_at) AS newest FROM supervision_historybatch) v
  JOIN supervision_run r ON v.newest < now() - interval '1 hour'
  LEFT JOIN LATERAL (SELECT max(l.through) AS through FROM supervision_historylink l WHERE l.kind = 'run' AND l.subject = r.id) l ON true
  JOIN supervision_stepevent f ON f.run_id = r.id AND f.seq = coalesce(l.through, 0) + 1
 WHERE f.at < now() - interval '1 hour'
"""


class Head(NamedTuple):
    """The newest batch's number, time and head as hex."""

    number: int
    made_at: datetime
    head: str


def head() -> Head | None:
    """The head of the chain; None before the first batch."""
    rows = db.run(_HEAD)
    return Head(rows[0][0], rows[0][1], bytes(rows[0][2]).hex()) if rows else None


def since(kept: str) -> Iterator[str]:
    """What is wrong with a head that was printed earlier, as hex: no batch has it."""
    if not db.run(_HAS_HEAD, {"head": kept}):
        yield (
            f"no batch has the head {kept}: the chain was written anew since it was printed, the database was restored to a moment"
            " before, or the batch is older than RECORD_DAYS"
        )


def form(values: Iterable[Any]) -> bytes:
    """The values, each as `LENGTH:TEXT,`, null as `-,`; times as microseconds since 1970, digests as hex."""
    return b"".join(map(_field, values))


def _field(value: Any) -> bytes:
    if value is None:
        return b"-,"
    if isinstance(value, datetime):
        value = (value - EPOCH) // timedelta(microseconds=1)
    text = (value.hex() if isinstance(value, bytes) else str(value)).encode()
    return b"%d:%s," % (len(text), text)


# ---------------------------------------------------------------------------------------------------------- batches


def batches() -> Iterator[str]:
    """Each batch that is missing, or that does not have the digest of its links and of the batch before it; and each entry of the
    operators' log that was added among older ones."""
    young: deque[tuple[datetime, int]] = deque()  # the highest entry of each batch of the last hour
    covered = 0
    after, before, known = 0, None, True
    if conf.get().keep_records is not None:
        known = False  # the oldest batches may have come to their end
    while page := db.run(_BATCHES, {"after": after}):
        for number, rows in groupby(page, itemgetter(0)):
            its = list(rows)
            _, made_at, count, previous, digest = its[0][:5]
            links = sorted((tuple(row[5:]) for row in its if row[5] is not None), key=itemgetter(0, 1, 2))
            if number != after + 1 and (known or after):
                yield f"batches {after + 1} to {number - 1} are gone"
            elif after and previous != before:
                yield f"batch {number} does not follow the head of batch {after}"
            elif number == 1 and previous is not None:
                yield "batch 1 follows a batch that is not there"
            leaves = b"".join(form((kind, subject, through, at, bytes(link))) for kind, subject, through, at, link in links)
            if len(links) != count:
                yield f"batch {number} has {len(links)} links, and was made of {count}"
            elif sha256(form((number, previous, made_at, count)) + leaves).digest() != digest:
                yield f"batch {number} was changed, or one of its {count} links"
            after, before = number, digest
            while made_at and young and young[0][0] < made_at - LONGEST_TRANSACTION:
                covered = max(covered, young.popleft()[1])
            entries = [subject for kind, subject, *_ in links if kind == "entry"]
            for subject in entries:
                if subject < covered:
                    yield f"entry {subject} of the operators' log: it was added when entry {covered} had been under the chain for an hour"
            if made_at:
                young.append((made_at, max(entries, default=0)))


# ------------------------------------------------------------------------------------------------------------ links


class Link(NamedTuple):
    """A row of supervision_historylink."""

    kind: str
    subject: int
    through: int
    newest_at: datetime | None
    batch: int
    digest: bytes
    marks: bytes


Rows = dict[int, tuple[Any, ...]]  # the values that a digest covers, by seq


def histories() -> Iterator[str]:
    """Each linked event, and entry of the operators' log, that was changed, removed, added or moved, and each link that was."""
    after: dict[str, Any] = {"kind": "", "subject": 0, "through": 0}
    ((now,),) = db.run("SELECT now()")
    rest: list[Link] = []
    while True:
        page = [Link(*row) for row in db.run(_LINKS, {**after, "size": PAGE})]
        if page:
            after = {"kind": page[-1].kind, "subject": page[-1].subject, "through": page[-1].through}
        links, rest = rest + page, []
        if len(page) == PAGE:  # the last one's other links may be on the next page
            rest = [link for link in links if link[:2] == links[-1][:2]]
            links = links[: len(links) - len(rest)]
        yield from _breaks(links, now)
        if len(page) < PAGE:
            return


def _breaks(links: Sequence[Link], now: datetime) -> Iterator[str]:
    events = _events([link.subject for link in links if link.kind == "run"])
    entries = _entries([link.subject for link in links if link.kind == "entry"])
    for (kind, subject), its in groupby(links, itemgetter(0, 1)):
        rows = (events if kind == "run" else entries).get(subject)
        name = f"run_id={subject}" if kind == "run" else f"entry {subject} of the operators' log"
        mine = list(its)
        if rows is not None:
            yield from (f"{name}: {what}" for what in _of_one(mine, rows, kind))
        elif not _may_be_gone(mine[-1].newest_at, now):
            where = ", and is neither in the tables nor in the archive" if kind == "run" else ""
            yield f"{name}: it was removed before RECORD_DAYS were over{where}"


def _of_one(links: Sequence[Link], rows: Rows, kind: str) -> Iterator[str]:
    digests = {seq: sha256(form(values)).digest() for seq, values in rows.items()}
    noun = "event {}" if kind == "run" else "it"
    yield from (f"{noun.format(seq)} was added before the first event" for seq in rows if seq < 1)
    covered, before = 0, b""
    for link in links:
        count = len(link.marks) // MARK
        if link.through - count != covered:
            yield f"its link up to event {link.through} does not begin after event {covered}: a link was removed or changed"
        seqs = range(max(link.through - count, 0) + 1, link.through + 1)
        marks = {seq: link.marks[n * MARK : (n + 1) * MARK] for n, seq in enumerate(seqs)}
        changed = [seq for seq in seqs if seq in digests and digests[seq][:MARK] != marks[seq]]
        gone = [seq for seq in seqs if seq not in digests]
        yield from (f"{noun.format(seq)} was removed" for seq in gone)
        yield from (_moved_or_changed(seq, rows[seq], marks, {*changed, *gone}, noun) for seq in changed)
        if not gone and not changed:
            if sha256(before + b"".join(digests[seq] for seq in seqs)).digest() != link.digest:
                yield f"its link up to event {link.through} (batch {link.batch}) was changed, or an event in a way that keeps its mark"
            elif link.through not in rows or link.newest_at != rows[link.through][-1 if kind == "run" else 1]:
                yield f"its link up to event {link.through} (batch {link.batch}) was given another time"
        covered, before = link.through, link.digest
    beyond = sorted(seq for seq in rows if seq > covered)
    if missing := next((seq for seq, there in enumerate(beyond, covered + 1) if seq != there), None):
        yield f"event {missing} was removed before it came under a link"


def _moved_or_changed(seq: int, values: tuple[Any, ...], marks: Mapping[int, bytes], among: Iterable[int], noun: str) -> str:
    """Whether the row was at another place when it was linked: with that place's number it has that place's mark."""
    for other in sorted(among):
        if other != seq and sha256(form((values[0], other, *values[2:]))).digest()[:MARK] == marks[other]:
            return f"{noun.format(seq)} was event {other} when it was linked"
    return f"{noun.format(seq)} was changed"


def _may_be_gone(newest_at: datetime | None, now: datetime) -> bool:
    """Whether what ended then may have come to its end in the archive. A day more, for the moments between the end and its event."""
    kept = conf.get().keep_records
    return kept is not None and newest_at is not None and newest_at < now - kept + DAY


def _events(ids: Sequence[int]) -> dict[int, Rows]:
    """The events of these runs, from the tables or the archive; a run that is in neither is left out."""
    wanted = sorted(set(ids))
    found: dict[int, Rows] = {}
    for row in db.run(_EVENTS, {"ids": wanted}) if wanted else ():
        found.setdefault(row[0], {})[row[1]] = tuple(row)
    if left := [run_id for run_id in wanted if run_id not in found]:
        for run_id, events in db.run(_ARCHIVED, {"ids": left}):
            rows = (_archived(run_id, event) for event in events) if isinstance(events, list) else ()
            found[run_id] = {row[1]: row for row in rows}
    return found


def _archived(run_id: int, event: Any) -> tuple[Any, ...]:
    """The values of an event in the archive; of one that was made unreadable, what can be read."""
    facts = event if isinstance(event, dict) else {}
    at: Any = facts.get("at")
    with suppress(TypeError, ValueError):
        at = datetime.fromisoformat(at)
    seq = facts.get("seq")
    others = (facts.get(name) for name in ("position", "direction", "attempt", "from_state", "to_state"))
    return (run_id, seq if isinstance(seq, int) else 0, *others, at)


def _entries(ids: Sequence[int]) -> dict[int, Rows]:
    return {row[0]: {1: tuple(row)} for row in db.run(_ENTRIES, {"ids": list(ids)})} if ids else {}


def bounded(breaks: Iterator[str]) -> Iterator[str]:
    """The first of them, and a note if there are more."""
    yield from islice(breaks, MOST)
    if next(breaks, None) is not None:
        yield f"and more than {MOST} in all"
