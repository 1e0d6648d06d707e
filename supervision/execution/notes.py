"""Commits what agents record while a step runs: checkpoints, and intentions in the effect ledger.

An agent's pool thread hands in a note and waits. One thread of `agents_process` commits many notes at once. The claim fences a note.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from supervision import conf
from supervision.agent import StepRequest
from supervision.effects import LONG_AGO, Book, EffectOutcome, Intention, Operation, Said, Settlement
from supervision.errors import AgentFailure, AwaitSignal, OutcomeUnknown, TransientFailure
from supervision.execution import extension
from supervision.ledger import effect_rows, exchanges
from supervision.postgres import db
from supervision.recovery import decisions
from supervision.runtime import failpoints
from supervision.signals import untaken
from supervision.states import Claim, Direction
from supervision.store import step_verbs
from supervision.store.records import Started
from supervision.store.runs import attempts
from supervision.workflow import StepPosition

SLOT_LOST = "slot_lost"
NOT_EXTENDED = extension.Extension(0.0, wanted=True, slot_lost=False)


class Note:
    """One record that an agent writes, or one question that it asks of the effect ledger."""

    def __init__(
        self,
        place: StepPosition,
        claim: Claim,
        data: Mapping[str, Any] | None = None,
        intention: Intention | None = None,
        settled: Sequence[Settlement] = (),
        *,
        reads: bool = False,
        extends: bool = False,
        said: Sequence[Said] = (),
        hears: untaken.Asked | None = None,
    ) -> None:
        self.place, self.claim, self.data = place, claim, data
        self.intention, self.settled, self.reads, self.extends = intention, settled, reads, extends
        self.said, self.hears = said, hears
        self.known = EffectOutcome.INTENDED, ""
        self.found: Sequence[Operation] = ()
        self.ordered_at = LONG_AGO
        self.heard: Sequence[Mapping[str, Any]] = ()
        self.extension = NOT_EXTENDED
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

    __slots__ = ("_note", "_place", "_put", "_started")

    def __init__(self, note: Callable[[Note], None], put: Callable[[Note], None], place: StepPosition, started: Started) -> None:
        super().__init__(direction=place.direction, generation=started.generation, attempt=started.claim.attempt)
        self._note, self._put, self._place, self._started = note, put, place, started

    def write(self, intention: Intention, settled: Sequence[Settlement]) -> tuple[EffectOutcome, str]:
        """Write one note. It is committed together with the notes of other agents."""
        note = Note(self._place, self._started.claim, intention.checkpoint, intention, settled)
        self._note(note)
        failpoints.hit("agent.after_intention", [self._place.label])
        if intention.checkpoint is not None:
            failpoints.hit("agent.after_checkpoint", [self._place.label])
        return note.known

    def read(self) -> Sequence[Operation]:
        """The step's operations. One query serves the reads of several agents."""
        return self._asked().found

    def ordered_at(self) -> datetime:
        """When the order was accepted. Read in the same way."""
        return self._asked().ordered_at

    def untaken(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The payloads of these signals. Read in the same way."""
        step = self._place.step.name if self.direction == Direction.UNDO else None
        note = Note(self._place, self._started.claim, hears=(self._started.key, name, step))
        self._note(note)
        return note.heard

    def close(self, rest: EffectOutcome) -> Sequence[Settlement]:
        """End the attempt. What was said to services is handed to the thread that writes notes: no order waits for it."""
        if self.said is not None:
            if conf.get().keep_exchanges:
                self._put(Note(self._place, self._started.claim, said=self.said))
            self.said = None
        return super().close(rest)

    def _asked(self) -> Note:
        note = Note(self._place, self._started.claim, reads=True)
        self._note(note)
        return note


class Extender:
    """What `request.heartbeat` calls: extends one attempt, at most once in a share of its step's budget."""

    def __init__(self, note: Callable[[Note], None], place: StepPosition, claim: Claim) -> None:
        self._note, self._place, self._claim = note, place, claim
        self._pause = extension.SHARE * step_verbs.budget(place.step.complete_within)
        self._known: extension.Extension | None = None
        self._next = 0.0

    def __call__(self) -> tuple[float, bool]:
        """The deadline that the attempt has now, and whether its order still wants it."""
        now = time.monotonic()
        if self._known is None or now >= self._next:
            note = Note(self._place, self._claim, extends=True)
            self._note(note)
            if note.extension.slot_lost:
                why = f"its slot at {self._place.agent.resource} was not extended in time: another call may have it"
                raise OutcomeUnknown(why, SLOT_LOST)
            self._known, self._next = note.extension, now + self._pause
        return self._known.deadline, self._known.wanted


def commit(batch: Sequence[Note]) -> set[int]:
    """Execute these notes in one commit. Returns the identities (`id`) of the notes whose claims still stand."""
    settled = [effect_rows.Settled(note.claim.run_id, note.place.position, one) for note in batch for one in note.settled]
    facts = [note for note in batch if note.data is not None]
    intending = [note for note in batch if note.intention is not None]
    reading = [note for note in batch if note.reads]
    extending = [note for note in batch if note.extends]
    saying = [note for note in batch if note.said]
    hearing = {id(note): note.hears for note in batch if note.hears is not None}

    def work() -> set[int]:
        refused: set[int] = set()
        if saying:
            exchanges.keep([(note.place, note.claim, note.said) for note in saying])
        if settled:
            effect_rows.settle(settled)
        if facts:
            saved = attempts.save_checkpoints([(note.place, note.claim, note.data or {}) for note in facts])
            refused |= {id(note) for note in facts if _address(note) not in saved}
        if intending:
            entries = [effect_rows.Entry(*_address(note), note.intention) for note in intending if note.intention is not None]
            rows = effect_rows.intend(entries)
            for note, entry in zip(intending, entries, strict=True):
                if (known := rows.get(entry.row)) is None:
                    refused.add(id(note))
                else:
                    note.known = known
        if extending:
            kept = extension.extend([(note.place, note.claim) for note in extending])
            for note in extending:
                note.extension = kept.get(_address(note), note.extension)
            refused |= {id(note) for note in extending if _address(note) not in kept}
        if reading:
            moments = effect_rows.ordered_at([note.claim.run_id for note in reading])
            found = effect_rows.of([(note.claim.run_id, note.place.position) for note in reading])
            for note in reading:
                note.ordered_at = moments.get(note.claim.run_id, note.ordered_at)
                note.found = [replace(one) for one in found.get((note.claim.run_id, note.place.position), ())]
        if hearing:
            came = untaken.of(list(hearing.values()))
            for note in batch:
                note.heard = came[note.hears] if note.hears is not None else note.heard
        return {id(note) for note in batch} - refused

    return work() if not extending and sum(map(bool, (settled, facts, intending, saying))) < 2 else db.transact(work)


def _address(note: Note) -> tuple[int, str, int, int]:
    return note.claim.run_id, note.place.direction, note.place.position, note.claim.attempt


def lost_claim() -> TransientFailure:
    """The error for an agent whose process has lost the claim."""
    return TransientFailure("this claim is no longer ours", decisions.CLAIM_LOST)


def left(request: StepRequest, error: BaseException | None = None) -> Sequence[Settlement]:
    """The settlements to write when an attempt ends. Operations that the agent did not settle get the attempt's outcome."""
    if request.book is None:
        return ()
    if error is None:
        return request.book.close(EffectOutcome.DONE)
    certain = isinstance(error, AgentFailure) and not isinstance(error, OutcomeUnknown | AwaitSignal)
    return request.book.close(EffectOutcome.REFUSED if certain else EffectOutcome.UNKNOWN)
