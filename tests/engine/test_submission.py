"""From an accepted order to a run: one transaction, no order lost, and a bad order does not affect the others."""

from __future__ import annotations

import json

import pytest
from django.db import IntegrityError, OperationalError

from supervision.intake import submission
from supervision.intake.consuming import consume_batch
from supervision.intake.submission import NewSubmission, accept
from supervision.models import DeadLetter, Run, StepEvent, StepState, Submission
from supervision.operations import operator_verbs
from supervision.runtime import failpoints
from supervision.store import claiming
from supervision.testing import run_of, run_until_idle, schedule, step, submit, submit_many
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def new(key: str | None = None, *, n: object = 1, **fields: str) -> NewSubmission:
    fields = {"public_id": submission.new_public_id(), "workflow": "toy", "payload": json.dumps({"n": n}), **fields}
    return NewSubmission(client="user:1", client_key=key, **fields)


def waiting() -> int:
    return Submission.objects.filter(consumed_at=None).count()


# ------------------------------------------------------------------------------------------------- accepting


@pytest.mark.parametrize("keys", [[None], ["k"], [None, "k", None]])
def test_an_accepted_order_is_committed_with_its_exact_text(keys: list[str | None]):
    text = '{"n":  1,\n "note": "Grüße"}'

    accepted = accept([new(key, payload=text) for key in keys])

    with kit.another_connection() as other:
        assert other.execute("SELECT payload FROM supervision_submission").fetchall() == [(text,) for _ in keys]
    assert [(one.payload, one.replayed) for one in accepted] == [(text, False) for _ in keys]


def test_a_client_key_seen_before_answers_the_first_order():
    (first,) = accept([new("k", request_hash="a")])

    (second,) = accept([new("k", n=2, request_hash="b")])

    assert (second.public_id, second.payload, second.request_hash) == (first.public_id, first.payload, "a")
    assert second.replayed
    assert Submission.objects.count() == 1


def test_a_client_key_that_stands_twice_in_one_list_makes_one_order():
    answers = accept([new("k", n=1), new(None, n=2), new("k", n=3)])

    assert [answer.replayed for answer in answers] == [False, False, True]
    assert answers[2].public_id == answers[0].public_id
    assert Submission.objects.count() == 2


def test_the_same_key_of_two_clients_makes_two_orders():
    accept([new("k")])

    (other,) = accept([NewSubmission(public_id="x", workflow="toy", payload="{}", client="user:2", client_key="k")])

    assert not other.replayed


def test_fifty_threads_with_one_client_key_make_one_order():
    answers = kit.at_once(*[lambda n=n: accept([new("k", n=n)]) for n in range(50)])

    assert len({answer[0].public_id for answer in answers}) == 1
    assert [answer[0].replayed for answer in answers].count(False) == 1
    assert Submission.objects.count() == 1


def test_an_order_whose_commit_was_not_answered_may_be_accepted_again():
    order = new("k")
    (first,) = accept([order])

    assert accept([order]) == [first]
    keyless = new(None)
    assert accept([keyless]) == accept([keyless])
    assert Submission.objects.count() == 2


def test_accepting_nothing_is_nothing():
    assert accept([]) == []


# ------------------------------------------------------------------------------------------------- consuming


def test_a_batch_becomes_runs_steps_events_and_application_rows_at_once():
    keys = submit_many("toy", [{"n": n} for n in range(5)])

    report = consume_batch()

    assert report.consumed == 5
    assert [kit.states(key) for key in keys] == [["Processing", "Pending", "Pending"]] * 5
    assert {run.key for run in toy.INTAKE.written} == set(keys)
    assert waiting() == 0
    assert kit.seqs_are_gapless()


def test_nothing_is_written_and_the_order_waits_when_the_application_cannot_write():
    submit("toy", {"n": 1})
    toy.INTAKE.refuse[1] = RuntimeError("the application's own mistake")

    with pytest.raises(RuntimeError):
        consume_batch()

    assert (Run.objects.count(), StepState.objects.count(), StepEvent.objects.count(), DeadLetter.objects.count()) == (0, 0, 0, 0)
    assert waiting() == 1


def test_the_order_waits_when_the_process_fails_before_the_commit():
    submit("toy", {"n": 1})
    failpoints.load({"FAILPOINTS": "submit.before_commit=raise", "ALLOW_FAILPOINTS": "1"})

    with pytest.raises(failpoints.Injected):
        consume_batch()

    assert (Run.objects.count(), waiting()) == (0, 1)


def test_an_order_killed_before_the_commit_is_consumed_by_the_next_process():
    key = submit("toy", {"n": 1})

    killed = kit.Process("schedule", FAILPOINTS="submit.before_commit=kill9", ALLOW_FAILPOINTS="1").ready().begin()

    assert killed.code() == -9
    assert (Run.objects.count(), waiting()) == (0, 1)
    assert kit.idle_state(key) == "Processed"


@pytest.mark.parametrize(
    ("sick", "reason"),
    [
        ({"payload": '{"no": "n"}\ufeff'}, "JSONDecodeError"),
        ({"payload": '{"m": 1}'}, "n: expected a number"),
        ({"workflow": "toyy"}, "did you mean 'toy'"),
        ({"payload": "not json \u2603"}, "JSONDecodeError"),
    ],
    ids=["trailing bytes", "unreadable", "unknown workflow", "the intake's own mistake"],
)
def test_an_order_nobody_can_read_is_kept_with_its_bytes_and_the_others_go_on(sick, reason):
    good = submit("toy", {"n": 1})
    (bad,) = accept([new(**sick)])
    better = submit("toy", {"n": 2})

    report = consume_batch()

    letter = DeadLetter.objects.get()
    assert (report.consumed, report.dead_letters) == (2, 1)
    assert bytes(letter.body) == bad.payload.encode()
    assert reason in letter.reason
    assert letter.public_id == bad.public_id
    assert [kit.states(key)[0] for key in (good, better)] == ["Processing"] * 2
    assert waiting() == 0


@pytest.mark.parametrize("error", [IntegrityError("duplicate"), RuntimeError("the application's own mistake")], ids=["database", "code"])
def test_only_the_culprit_is_set_aside_when_a_batch_cannot_be_written(error):
    keys = submit_many("toy", [{"n": n} for n in range(5)])
    toy.INTAKE.refuse[3] = error

    report = consume_batch()

    assert (report.consumed, report.dead_letters) == (4, 1)
    assert DeadLetter.objects.get().public_id == keys[3]
    assert set(Run.objects.values_list("key", flat=True)) == {*keys[:3], keys[4]}
    assert waiting() == 0
    run_until_idle()
    assert [kit.state(key) for key in (*keys[:3], keys[4])] == ["Processed"] * 4
    assert kit.healthy()


def test_a_payload_the_database_cannot_keep_is_set_aside():
    submit("toy", {"n": 1, "note": "\x00"})
    good = submit("toy", {"n": 2})

    report = consume_batch()

    assert (report.consumed, report.dead_letters) == (1, 1)
    assert kit.state(good) == "Pending"


def test_a_database_that_does_not_answer_makes_no_dead_letter(monkeypatch):
    submit_many("toy", [{"n": 1}, {"n": 2}])
    toy.INTAKE.refuse[1] = OperationalError("gone")
    monkeypatch.setattr(submission.db, "_PATIENCE_SECONDS", 0.0)

    with pytest.raises(OperationalError):
        consume_batch()

    assert (DeadLetter.objects.count(), waiting()) == (0, 2)


def test_two_consumers_share_the_batch_and_write_each_order_once():
    submit_many("toy", [{"n": n} for n in range(100)])

    reports = kit.at_once(*[lambda: [consume_batch(10) for _ in range(10)]] * 4)

    assert sum(batch.consumed for report in reports for batch in report) == 100
    assert Run.objects.count() == 100
    assert kit.healthy()


# ----------------------------------------------------------------------------------------- claimed when written


def test_a_first_step_is_born_claimed_when_nothing_waits():
    submit("toy", {"n": 1})

    report = consume_batch()

    ((place, claims),) = report.born.items()
    assert (place.position, [claim.attempt for claim in claims]) == (0, [1])
    assert StepState.objects.get(position=0).complete_by is not None


def test_a_first_step_is_born_waiting_when_something_older_waits():
    older = submit("toy", {"n": 1})
    consume_batch(born=False)
    younger = submit("toy", {"n": 2})

    report = consume_batch()

    assert report.born == {}
    assert (kit.states(older)[0], kit.states(younger)[0]) == ("Pending", "Pending")


def test_a_first_step_is_born_waiting_when_too_much_is_in_flight(tuned):
    tuned(IN_FLIGHT=2)
    submit_many("toy", [{"n": n} for n in range(3)])

    report = consume_batch()

    assert report.born == {}
    assert set(StepState.objects.values_list("process_state", flat=True)) == {"Pending"}


def test_an_order_cancelled_before_it_is_consumed_ends_cancelled_and_never_starts():
    key = submit("toy", {"n": 1})
    bystander = submit("toy", {"n": 2})
    operator_verbs.cancel(key, by="customer", reason="changed my mind")

    assert kit.idle_state(key) == "Cancelled"
    assert kit.states(key) == ["Cancelled"] * 3
    assert run_of(key).cancel_requested_at == Submission.objects.get(public_id=key).cancel_requested_at
    assert toy.TOLD["cancelled"] == [key]
    assert kit.state(bystander) == "Processed"
    assert kit.healthy()


def test_urgent_orders_go_first_and_waiting_makes_up_for_it():
    low, normal, high = (submit("toy", {"n": 1, "priority": priority}) for priority in (-1, 0, 1))
    consume_batch(born=False)
    patient = submit("toy", {"n": 1, "priority": -1})
    consume_batch(born=False)
    kit.fetch("UPDATE supervision_stepstate SET turn_at = turn_at - interval '30 min' WHERE run_id = %s", [run_of(patient).pk])

    order = [claims[0].run_id for _ in range(4) for claims in claiming.claim(1).values()]

    assert order == [run_of(key).pk for key in (patient, high, normal, low)]


def test_an_order_keeps_what_its_intake_read():
    key = submit("toy", {"n": 1, "priority": 1, "session_key": "s-1"})
    schedule()

    run = run_of(key)
    assert (run.priority, run.session_key, run.payload["n"]) == (1, "s-1", 1)
    assert step(key, "beta-step").idempotency_key == f"{key}:beta-step:do:1"
