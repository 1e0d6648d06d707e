"""Seeded bugs. Each is switched on by patching the running code: the text of a statement, or a function.

A text to be patched must exist: when the engine changes, a mutant that was not changed with it fails loudly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from django.db import connection

from orders.agents import payment, stock
from supervision.operations import operator_verbs
from supervision.recovery import failures
from supervision.retry import Outcome, Retry
from supervision.store import claiming, failure_sql, run_verbs, step_sql, step_verbs
from supervision.store.records import LockedSubmission
from tests.engine import kit

Patch = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A bug: its title, how it is switched on, and the check that has to fail."""

    bug: str
    patch: Patch
    caught_by: str


def _sql(*changes: tuple[str, str, str]) -> Patch:
    """Replace texts in statements: (statement, old, new)."""

    @contextmanager
    def patched() -> Iterator[None]:
        with ExitStack() as stack:
            for name, what, instead in changes:
                module = step_sql if hasattr(step_sql, name) else failure_sql
                text = getattr(module, name)
                assert what in text, f"{name} no longer contains {what!r}: change the mutant with it"
                stack.enter_context(mock.patch.object(module, name, text.replace(what, instead)))
            yield

    return patched


def _function(owner: Any, name: str, replacement: Callable[[Any], Any]) -> Patch:
    return lambda: mock.patch.object(owner, name, replacement(getattr(owner, name)))


ATTEMPT, DEADLINE = "AND s.attempt = v.attempt", "AND s.complete_by > now()"


# ------------------------------------------------------------------------------------------- functions with a bug


def _key_with_attempt(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: [item._replace(idempotency_key=f"{item.idempotency_key}:{item.attempt}") for item in real(*args)]


def _consumed_too_early(real: Callable[..., Any]) -> Callable[..., Any]:
    def take(limit: int, **_: Any) -> Sequence[Any]:
        with kit.another_connection() as other:
            rows = other.execute(
                "UPDATE supervision_submission SET consumed_at = now() WHERE consumed_at IS NULL RETURNING id, public_id,"
                " workflow, payload, client, created_at, cancel_requested_at, cancelled_by, cancel_reason, false, 0, false"
            ).fetchall()
            other.commit()
        return [LockedSubmission(*row) for row in rows]

    return take


def _undo_forward(real: Callable[..., Any]) -> Callable[..., Any]:
    def next_undo(self: Any, *args: Any) -> None:
        self.undos = sorted(self.undos, key=lambda step: step.position)
        real(self, *args)

    return next_undo


def _any_attempt(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda locked, attempt: real(locked, None)


def _counted(outcome: Outcome) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def replacement(real: Callable[..., Any]) -> Callable[..., Any]:
        def decide(count: int, failure: Any, *args: Any, **more: Any) -> Any:
            decision = real(count, failure, *args, **more)
            if failure.outcome is outcome and isinstance(decision, Retry):
                return dataclasses.replace(decision, counted=True)
            return decision

        return decide

    return replacement


def _never_unknown(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: real(*args)._replace(effect=None)


@contextmanager
def _no_unique_key() -> Iterator[None]:
    index = "a_client_key_names_one_submission"
    with connection.cursor() as cursor:
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE indexname = %s", [index])
        [(definition,)] = cursor.fetchall()
        cursor.execute(f"DROP INDEX {index}")
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM supervision_submission")
            cursor.execute(definition)


@contextmanager
def _pay_blindly() -> Iterator[None]:
    real = payment._Charge.__init__

    def blind(self: Any, request: Any) -> None:
        real(self, request)
        self.noted, self.spent = None, request.attempt > 1

    with mock.patch.object(payment._Charge, "__init__", blind), mock.patch.object(payment._Charge, "found", return_value=None):
        yield


def _no_stock_guard(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda skus: dict.fromkeys(real(skus), 10**6)


MUTANTS = (
    Mutant("FINISH does not name the attempt", _sql(("FINISH", ATTEMPT, ""), ("FINISH_LAST", ATTEMPT, "")), "a_late_answer"),
    Mutant("FINISH does not look at complete_by", _sql(("FINISH", DEADLINE, ""), ("FINISH_LAST", DEADLINE, "")), "a_late_answer"),
    Mutant("START takes an attempt that has begun", _sql(("START", "AND s.started_at IS NULL", "")), "a_repeated_message"),
    Mutant(
        "CLAIM takes what another scheduler takes",
        _sql(("CLAIM", "FOR UPDATE OF s SKIP LOCKED", ""), ("CLAIM", "AND s.process_state || '' = 'Pending'", "")),
        "two_claimers",
    ),
    Mutant(
        "the supervisor reads without a lock and updates by id",
        _sql(
            ("HOLD_OVERDUE", "FOR UPDATE OF s SKIP LOCKED", ""),
            ("SETTLE", f"{ATTEMPT}\n       AND s.process_state || '' = 'Processing'", ""),
        ),
        "two_sweepers",
    ),
    Mutant(
        "SWEEP does not look at the state",
        _sql(
            ("HOLD_OVERDUE", "s.process_state = 'Processing' AND s.complete_by", "s.complete_by"),
            ("SETTLE", f"{ATTEMPT}\n       AND s.process_state || '' = 'Processing'", ATTEMPT),
        ),
        "only_overdue_claims_expire",
    ),
    Mutant(
        "SWEEP compares with the worker's clock, which is ten minutes fast",
        _sql(("HOLD_OVERDUE", "s.complete_by < now()", "s.complete_by < now() + interval '10 minutes'")),
        "only_overdue_claims_expire",
    ),
    Mutant("the idempotency key contains the attempt", _function(step_verbs, "start", _key_with_attempt), "the_simulation"),
    Mutant(
        "consumed_at is committed before the runs",
        _function(claiming, "take_submissions", _consumed_too_early),
        "a_consumer_dies",
    ),
    Mutant("steps are undone in forward order", _function(run_verbs.LockedRun, "next_undo", _undo_forward), "the_simulation"),
    Mutant("resubmit does not look at the attempt", _function(operator_verbs, "_failed", _any_attempt), "a_late_click"),
    Mutant("a client's key need not be unique", _no_unique_key, "one_key_twice"),
    Mutant("a postponed step counts as a failure", _function(failures, "decide", _counted(Outcome.POSTPONED)), "a_postponed_call"),
    Mutant("a lost dispatch counts as a failure", _function(failures, "decide", _counted(Outcome.EXPIRED)), "the_simulation"),
    Mutant("an expired attempt has had no effect", _function(failures, "_row", _never_unknown), "the_simulation"),
    Mutant("stock is taken without looking", _function(stock, "_lock", _no_stock_guard), "the_last_piece"),
    Mutant("payment repeats without looking", _pay_blindly, "a_lost_charge"),
)
