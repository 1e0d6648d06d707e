"""What agents note while a step runs, gathered into commits: checkpoints and the ledger's intentions.

Threads of the pool make notes and wait; one thread of `workshop` commits them. Every note is fenced by its claim.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from supervision import db, failpoints, ledger, recovery, store
from supervision.agent import StepRequest
from supervision.effects import LONG_AGO, Book, EffectOutcome, Intention, Operation, Settlement
from supervision.errors import AgentFailure, OutcomeUnknown, TransientFailure
from supervision.handles import Place, Started
from supervision.states import Claim


class Note:
    """What an agent has to note, or asks of the ledger, on its way to the database."""

    def __init__(
        self,
        place: Place,
        claim: Claim,
        data: Mapping[str, Any] | None = None,
        intention: Intention | None = None,
        settled: Sequence[Settlement] = (),
        *,
        reads: bool = False,
    ) -> None:
        self.place, self.claim, self.data = place, claim, data
        self.intention, self.settled, self.reads = intention, settled, reads
        self.known = EffectOutcome.INTENDED, ""
        self.found: Sequence[Operation] = ()
        self.ordered_at = LONG_AGO
        self._settled = threading.Event()
        self._error: Exception | None = None

    def settle(self, error: Exception | None) -> None:
        self._error = error
        self._settled.set()

    def wait(self) -> None:
        self._settled.wait()
        if self._error is not None:
            raise self._error


class LedgerBook(Book):
    """The operations of one attempt in the ledger; used by the agent's thread, which waits for the commits."""

    __slots__ = ("_note", "_place", "_started")

    def __init__(self, note: Callable[[Note], None], place: Place, started: Started) -> None:
        super().__init__(direction=place.direction, generation=started.generation, attempt=started.claim.attempt)
        self._note, self._place, self._started = note, place, started

    def write(self, intention: Intention, settled: Sequence[Settlement]) -> tuple[EffectOutcome, str]:
        """One note; committed together with what other agents have to note."""
        note = Note(self._place, self._started.claim, intention.checkpoint, intention, settled)
        self._note(note)
        failpoints.hit("agent.after_intention", [self._place.label])
        if intention.checkpoint is not None:
            failpoints.hit("agent.after_checkpoint", [self._place.label])
        return note.known

    def read(self) -> Sequence[Operation]:
        """One question, asked together with what others ask."""
        return self._asked().found

    def ordered_at(self) -> datetime:
        """Asked in the same way."""
        return self._asked().ordered_at

    def _asked(self) -> Note:
        note = Note(self._place, self._started.claim, reads=True)
        self._note(note)
        return note


def commit(batch: Sequence[Note]) -> set[int]:
    """Write and read what these notes ask for, in one commit; gives those (by identity) whose claims stand."""
    settled = [ledger.Settled(note.claim.run_id, note.place.position, one) for note in batch for one in note.settled]
    facts = [note for note in batch if note.data is not None]
    intending = [note for note in batch if note.intention is not None]
    reading = [note for note in batch if note.reads]

    def work() -> set[int]:
        refused: set[int] = set()
        if settled:
            ledger.settle(settled)
        if facts:
            saved = store.save_checkpoints([(note.place, note.claim, note.data or {}) for note in facts])
            refused |= {id(note) for note in facts if _address(note) not in saved}
        if intending:
            entries = [ledger.Entry(*_address(note), note.intention) for note in intending if note.intention is not None]
            rows = ledger.intend(entries)
            for note, entry in zip(intending, entries, strict=True):
                if (known := rows.get(entry.row)) is None:
                    refused.add(id(note))
                else:
                    note.known = known
        if reading:
            moments = ledger.ordered_at([note.claim.run_id for note in reading])
            found = ledger.of([(note.claim.run_id, note.place.position) for note in reading])
            for note in reading:
                note.ordered_at = moments.get(note.claim.run_id, note.ordered_at)
                note.found = [replace(one) for one in found.get((note.claim.run_id, note.place.position), ())]
        return {id(note) for note in batch} - refused

    return work() if sum(map(bool, (settled, facts, intending))) < 2 else db.transact(work)


def _address(note: Note) -> tuple[int, str, int, int]:
    return note.claim.run_id, note.place.direction, note.place.position, note.claim.attempt


def lost_claim() -> TransientFailure:
    """What an agent is told whose claim is no longer ours."""
    return TransientFailure("this claim is no longer ours", recovery.CLAIM_LOST)


def left(request: StepRequest, error: BaseException | None = None) -> Sequence[Settlement]:
    """What is to be written of an attempt's operations at its end; those that nobody settled ended as it did."""
    if request.book is None:
        return ()
    if error is None:
        return request.book.close(EffectOutcome.DONE)
    certain = isinstance(error, AgentFailure) and not isinstance(error, OutcomeUnknown)
    return request.book.close(EffectOutcome.REFUSED if certain else EffectOutcome.UNKNOWN)
