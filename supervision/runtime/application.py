"""What an application gives the engine: how its submissions become runs, and what becomes of its own rows about them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from supervision.errors import UnreadableSubmission

MOST_SESSION_BYTES = 2_000  # an index of PostgreSQL holds it, beside the name of a client


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A submission after it was read: the engine's columns, the agents' payload, the application's own facts.

    session_key: at most MOST_SESSION_BYTES as UTF-8. A submission with a longer one is unreadable (`check_session`).
    """

    payload: Mapping[str, Any]
    priority: int = 0
    session_key: str | None = None
    partition: str | None = None
    reply_to: str | None = None
    facts: Any = None
    version: int | None = None  # the version that its run gets; None: the newest one that is not `by_choice`


def check_session(key: str) -> None:
    """Raise UnreadableSubmission for a key that no index holds: it could not be written, nor could what is read together with it."""
    if len(str(key).encode("utf-8", "surrogatepass")) > MOST_SESSION_BYTES:
        raise UnreadableSubmission(f"the session key has more than {MOST_SESSION_BYTES:,} bytes")


@dataclass(frozen=True, kw_only=True)
class AcceptedRun:
    """A run that has just been written, for the application to write its own rows beside it."""

    run_id: int
    key: str
    client: str
    submitted_at: datetime
    new: NewRun


@dataclass(frozen=True, kw_only=True)
class ClosedRun:
    """A run that has just reached a new state, as the workflow's hooks see it."""

    run_id: int
    key: str
    reason: str
    payload: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class KeptSignal:
    """A signal of this run that has just been kept, as the workflow's `on_signal` sees it. The run may not exist yet.

    late: no step waits for it any more.
    """

    key: str
    name: str
    payload: Mapping[str, Any]
    late: bool


@dataclass(frozen=True, kw_only=True)
class ByHand:
    """A step, or its undo, that an operator has completed by hand, as the workflow's `on_completed_by_hand` sees it."""

    key: str
    payload: Mapping[str, Any]
    step: str
    direction: str
    result: Mapping[str, Any]


class Intake:
    """How an application turns submissions into runs. This one takes any JSON object for the payload and has no rows of its own."""

    def read(self, body: str) -> NewRun:
        """Parse one submission. Raises UnreadableSubmission; touches no database."""
        try:
            payload = json.loads(body)
        except (ValueError, RecursionError):
            payload = None
        if not isinstance(payload, dict):
            raise UnreadableSubmission("expected a JSON object")
        return NewRun(payload=payload)

    def read_submission(self, body: str, submission: int) -> NewRun:
        """Parse one submission as `read` does, for an application that also needs its id (unique, and the same at each delivery)."""
        return self.read(body)

    def write(self, runs: Sequence[AcceptedRun]) -> None:
        """Write the application's rows for these runs, in the transaction that writes the runs. No network."""

    def check_amendment(self, changed: Mapping[str, Any]) -> None:
        """Check the payload fields that an operator corrects when resubmitting. Raises UnreadableSubmission."""

    def check_resubmission(self, key: str, payload: Mapping[str, Any], steps: Collection[str]) -> None:
        """Check that these failed steps of this run may be done again with this payload. Raises Refused, which says what to do instead.

        Called in the transaction in which an operator resubmits them, or lets the run go on from an earlier step.
        """

    def archive(self, run_ids: Sequence[int], *, keep: bool) -> Mapping[int, Mapping[str, Any]]:
        """The application's facts about these runs, as JSON values by run, in the transaction that archives them.

        keep: leave the application's own rows in their tables; otherwise delete them.
        """
        return {}

    def held(self, run_ids: Sequence[int], *, keep: bool) -> Collection[int]:
        """Those of these runs that are not to be archived yet, because the application still needs its rows about them.

        Called before `archive`, in its transaction, so it may lock rows; it must not wait for locks.
        """
        return ()

    def forget(self, keys: Sequence[str]) -> Collection[str]:
        """Delete the application's last rows about these runs, given by public ids, and return those that have to stay for now.

        Called RECORD_DAYS after they ended, in the transaction that deletes them from the archive.
        """
        return ()

    def bring_back(self, keys: Sequence[str]) -> Collection[str]:
        """Make the application's rows about these archived runs anew, from the facts that `archive` gave; return those that got rows.

        Runs that have their rows are left as they are, so repeating does nothing. Called by `manage.py unarchive`, in a transaction that
        holds the archive's rows of these runs locked. The runs themselves stay in the archive.
        """
        return ()
