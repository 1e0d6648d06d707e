"""The effect ledger: an operation is committed before its call and settled after it; later attempts keep its row."""

from __future__ import annotations

import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction

from supervision import EffectOutcome, Intention, OutcomeUnknown, PermanentFailure, StepRequest, TransientFailure
from supervision.effects import Settlement
from supervision.execution import runner
from supervision.ledger import effect_rows
from supervision.models import Effect
from supervision.operations import operator_verbs
from supervision.store import step_verbs
from supervision.store.records import Started
from supervision.testing import schedule, submit, submit_many
from tests.engine.kit import another_connection, blocked_backends, expire, fetch, go, healthy, started, state, step, supervisor, until
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def rows(key: str) -> list[tuple[Any, ...]]:
    return list(
        Effect.objects.filter(run__key=key).order_by("intended_at").values_list("operation", "key", "outcome", "external_id", "attempt")
    )


def again(key: str) -> None:
    """Make the step that waits for its next attempt due now."""
    fetch(
        "UPDATE supervision_stepstate s SET not_before = now(), turn_at = now() FROM supervision_run r"
        " WHERE r.id = s.run_id AND r.key = %s AND s.process_state = 'Pending' AND s.not_before IS NOT NULL",
        [key],
    )
    go(schedule())


def performed_by(behaviour: Callable[[StepRequest], None]) -> str:
    """An order whose steps have been performed, the first one with this behaviour of its agent."""
    toy.ALPHA.on_perform = behaviour
    key = submit("toy-plain", {"n": 1})
    go(schedule())
    return key


def booking(request: StepRequest, **more: Any) -> Any:
    return request.intend("book", key=request.idempotency_key, service="carrier", **more)


def test_an_operation_is_committed_before_its_call_and_settled_with_the_end_of_its_step():
    seen: list[Any] = []

    def book(request: StepRequest) -> None:
        operation = booking(request, amount=Decimal("25.80"), currency="EUR")
        with another_connection() as other:
            seen.extend(
                other.execute("SELECT outcome, amount, currency, settled_at, attempt, generation FROM supervision_effect").fetchall()
            )
        operation.settle(EffectOutcome.DONE, "shp_1")

    key = performed_by(book)

    assert seen == [("intended", Decimal("25.800"), "EUR", None, 1, 1)]
    assert rows(key) == [("book", f"{key}:alpha-step:do:1", "done", "shp_1", 1)]
    assert Effect.objects.get().settled_at is not None
    assert state(key) == "Processed"
    assert healthy()


def test_no_operation_is_noted_or_called_once_the_claim_is_lost():
    called: list[int] = []

    def book(request: StepRequest) -> None:
        fetch("UPDATE supervision_stepstate SET complete_by = now() - interval '1 s' WHERE process_state = 'Processing'")
        booking(request)
        called.append(request.attempt)

    key = performed_by(book)

    assert called == []
    assert rows(key) == []
    assert step(key, "alpha-step").process_state == "Processing"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "done"),
        (TransientFailure("busy"), "refused"),
        (PermanentFailure("no"), "refused"),
        (OutcomeUnknown("gone"), "unknown"),
        (ValueError("a mistake"), "unknown"),
    ],
)
def test_what_the_agent_does_not_settle_ended_as_its_attempt_did(error: Exception | None, outcome: str):
    def book(request: StepRequest) -> None:
        booking(request)
        if error:
            raise error

    key = performed_by(book)

    assert [row[2] for row in rows(key)] == [outcome]


@pytest.mark.parametrize("reference", ["shp_\x00", "shp_\ud800"], ids=["NUL", "half"])
def test_a_reference_that_the_database_cannot_keep_fails_only_its_own_step(reference: str, tuned: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "PATIENCE_SECONDS", 10.0)
    tuned(LINGER_SECONDS=10.0)  # the answers are recorded together

    def book(request: StepRequest) -> None:
        booking(request).settle(EffectOutcome.DONE, reference if request.payload["n"] == 1 else "shp_1")

    toy.ALPHA.on_perform = book
    keys = submit_many("toy-plain", [{"n": n} for n in range(3)])

    go(schedule())

    assert [state(key) for key in keys] == ["Processed", "Processing", "Processed"]
    assert [[row[2:4] for row in rows(key)] for key in keys] == [[("done", "shp_1")], [("intended", "")], [("done", "shp_1")]]
    sick = step(keys[1], "alpha-step")
    assert (sick.process_state, sick.failure_count, sick.effect) == ("Pending", 1, "unknown")
    assert str(sick.last_error).startswith("its answer could not be recorded: ")


def test_the_next_attempt_is_told_that_the_first_may_have_done_it():
    told: list[tuple[str, str]] = []

    def book(request: StepRequest) -> None:
        operation = booking(request)
        told.append((operation.outcome, operation.external_id))
        if request.attempt == 2:
            operation.settle(EffectOutcome.DONE, "shp_1")
        if request.attempt < 3:
            raise OutcomeUnknown("gone")

    key = performed_by(book)
    again(key)
    again(key)

    assert told == [("intended", ""), ("unknown", ""), ("done", "shp_1")]
    assert [row[2:] for row in rows(key)] == [("done", "shp_1", 3)]
    assert state(key) == "Processed"


def test_an_attempt_that_died_leaves_an_operation_that_may_have_been_done():
    key, _place, (first,) = started()
    effect_rows.intend([effect_rows.Entry(first.run_id, "do", 0, 1, Intention("book", first.idempotency_key, "carrier"))])
    expire(key)
    supervisor.sweep_once()
    toy.ALPHA.on_perform = lambda request: told.append(booking(request).outcome)
    told: list[str] = []

    again(key)

    assert told == ["unknown"]


def test_a_step_sees_what_it_did_in_every_generation_and_in_both_directions():
    seen: list[list[tuple[str, str, str, int]]] = []

    def look(request: StepRequest) -> list[tuple[str, str, str, int]]:
        return [(one.direction, one.operation, str(one.outcome), one.generation) for one in request.effects()]

    def book(request: StepRequest) -> None:
        booking(request)
        seen.append(look(request))
        if request.attempt == 1:
            raise OutcomeUnknown("gone")
        raise PermanentFailure("no")

    def undo(request: StepRequest) -> None:
        seen.append(look(request))
        for one in request.effects():
            request.intend("delete", key=one.key, service="carrier")
            one.settle(EffectOutcome.UNDONE)

    toy.ALPHA.on_perform, toy.ALPHA.on_compensate = book, undo
    key = submit("toy-plain", {"n": 1})
    go(schedule())
    again(key)
    assert state(key) == "Error"
    operator_verbs.resubmit(key, by="ada", reason="looked", new_generation=True)
    go(schedule())
    operator_verbs.cancel(key, by="ada", reason="enough")
    go(schedule())

    assert seen[0] == []  # a request does not list its own intention
    assert seen[1] == [("do", "book", "unknown", 1)]  # a refusal of the second call does not settle the first
    assert seen[2] == [("do", "book", "unknown", 1)]
    assert seen[3] == [("do", "book", "unknown", 1), ("do", "book", "refused", 2)]
    assert state(key) == "Cancelled"
    assert sorted((row[0], row[2]) for row in rows(key)) == [("book", "undone"), ("book", "undone"), ("delete", "done"), ("delete", "done")]


@pytest.mark.parametrize(
    ("known", "said", "sure", "after"),
    [
        ("undone", "done", True, "undone"),
        ("done", "unknown", True, "done"),
        ("done", "refused", True, "done"),
        ("unknown", "refused", False, "unknown"),
        ("unknown", "refused", True, "refused"),
        ("refused", "done", True, "done"),
        ("done", "undone", True, "undone"),
    ],
)
def test_a_late_word_never_hides_an_effect(known: str, said: str, sure: bool, after: str):
    fetch(
        "INSERT INTO supervision_effect (run_id, direction, position, key, operation, generation, attempt, service, outcome, actor)"
        " VALUES (1, 'do', 0, 'k', 'book', 1, 1, 'carrier', %s, 'x')",
        [known],
    )

    effect_rows.settle([effect_rows.Settled(1, 0, Settlement("do", "k", "book", EffectOutcome(said), "", sure))])

    assert Effect.objects.get().outcome == after


def test_no_sweep_takes_a_step_over_whose_operation_is_being_noted():
    key, _place, (first,) = started()
    fetch("UPDATE supervision_stepstate SET complete_by = clock_timestamp() + interval '1 s' WHERE process_state = 'Processing'")

    noting = threading.Thread(target=note_slowly, args=(first,))
    with another_connection() as other:
        # Another transaction has inserted the same row: `intend` holds the claim's lock and waits for that transaction.
        other.execute(
            "INSERT INTO supervision_effect (run_id, direction, position, key, operation, generation, attempt, service, actor)"
            " VALUES (%s, 'do', 0, %s, 'book', 1, 1, 'carrier', 'x')",
            [first.run_id, first.idempotency_key],
        )
        noting.start()
        until(lambda: blocked_backends() == 1)
        until(
            lambda: (
                fetch("SELECT complete_by < clock_timestamp() FROM supervision_stepstate WHERE process_state = 'Processing'") == [(True,)]
            )
        )
        meanwhile = supervisor.sweep_once().overdue
    noting.join(20)

    assert meanwhile == 0
    assert len(rows(key)) == 1
    assert supervisor.sweep_once().overdue == 1


def note_slowly(first: Started) -> None:
    try:
        effect_rows.intend([effect_rows.Entry(first.run_id, "do", 0, 1, Intention("book", first.idempotency_key, "carrier"))])
    finally:
        connection.close()


class Opening(toy.ToyAgent):
    """An agent that books; the engine writes its first operation into the ledger before the call."""

    def opens_with(self, request: StepRequest) -> Intention:
        if request.payload["n"] == "poison":
            raise ValueError("cannot be read")
        if request.payload["n"] == "forgetful":
            transaction.atomic().__enter__()
        return Intention("book", request.idempotency_key, "carrier")


@pytest.fixture
def opening(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy.ALPHA, "__class__", Opening)


@pytest.mark.usefixtures("opening")
def test_the_first_operation_of_a_whole_cohort_is_noted_in_one_statement(monkeypatch: pytest.MonkeyPatch):
    noted: list[int] = []
    intend = effect_rows.intend
    monkeypatch.setattr(effect_rows, "intend", lambda entries: noted.append(len(entries)) or intend(entries))
    toy.ALPHA.on_perform = lambda request: booking(request).settle(EffectOutcome.DONE, f"shp_{request.payload['n']}")
    keys = [submit("toy-plain", {"n": n}) for n in range(3)]

    go(schedule())

    assert noted == [3]
    assert [rows(key)[0][2:4] for key in keys] == [("done", "shp_0"), ("done", "shp_1"), ("done", "shp_2")]
    assert {state(key) for key in keys} == {"Processed"}


@pytest.mark.usefixtures("opening")
def test_an_attempt_whose_claim_was_lost_before_its_first_operation_makes_no_call():
    key = submit("toy-plain", {"n": 1})
    ((place, claims),) = schedule()
    items = step_verbs.start(place, claims)
    expire(key)

    runner.go_on(place, items)

    assert toy.ALPHA.performed == []
    assert rows(key) == []


@pytest.mark.usefixtures("opening")
@pytest.mark.parametrize("how", ["poison", "forgetful"])
def test_an_agent_that_cannot_say_what_it_begins_with_is_called_all_the_same(how: str):
    key = submit("toy-plain", {"n": how})

    go(schedule())

    assert state(key) == "Processed"
    assert rows(key) == []
