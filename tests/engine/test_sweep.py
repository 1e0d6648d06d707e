"""SWEEP: each expired claim is recovered once by any one supervisor; waiting steps are left alone."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest

from supervision.models import StepState, StrayReply
from supervision.recovery import failures, supervisor
from supervision.store import step_verbs
from supervision.testing import expire, make_due, schedule, step, submit, submit_many
from supervision.workflow import StepPosition
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")
sweep = supervisor.sweep_once


def expire_and_sweep(key: str, times: int, *, start: bool = True) -> None:
    """Let this many attempts of the run's current step expire, started or not."""
    for _ in range(times):
        make_due(key)
        for place, claims in schedule():
            if start:
                step_verbs.start(place, claims)
        expire(key)
        sweep()


def test_an_expired_step_is_counted_released_and_runs_again():
    key, _place, _items = kit.started()
    bystander, *_ = kit.started()
    expire(key)

    report = sweep()

    row = step(key, "alpha-step")
    assert (report.overdue, report.retried) == (1, 1)
    assert (row.process_state, row.locked_by, row.failure_count, row.dispatch_count) == ("Pending", None, 1, 0)
    assert (row.effect, row.last_error) == ("unknown", "no answer by complete_by")
    assert row.complete_by > row.not_before > row.started_at
    assert (step(bystander, "alpha-step").process_state, step(bystander, "alpha-step").failure_count) == ("Processing", 0)
    make_due(key)
    assert kit.idle_state(key) == "Processed"
    assert kit.healthy()


def test_a_claim_nobody_started_is_sent_again_and_not_counted_as_a_failure():
    key, *_ = kit.claimed()
    expire(key)

    report = sweep()

    row = step(key, "alpha-step")
    assert (report.redispatched, row.failure_count, row.dispatch_count, row.effect) == (1, 0, 1, "none")
    assert kit.alerts(key) == []
    assert kit.idle_state(key) == "Processed"


def test_claims_that_are_never_started_raise_one_alert_and_go_on_for_ever():
    key = submit("toy-plain", {"n": 1})

    expire_and_sweep(key, 11, start=False)

    row = step(key, "alpha-step")
    assert (row.failure_count, row.dispatch_count, row.process_state) == (0, 11, "Pending")
    assert (kit.alerts(key), kit.incidents(), kit.told()) == (["lost-dispatch"], ["starvation:agent.alpha"], 1)


@pytest.mark.parametrize(("expiries", "state"), [(2, "Pending"), (3, "Error")], ids=["N-1", "N"])
def test_the_threshold_ends_in_error_with_exactly_one_alert_and_one_incident(expiries, state):
    key = submit("toy", {"n": 1})

    expire_and_sweep(key, expiries)
    sweep()

    row = step(key, "alpha-step")
    assert (row.process_state, row.failure_count) == (state, expiries)
    in_error = int(state == "Error")
    assert (kit.open_alerts(key), len(kit.incidents()), kit.told()) == (["error"] * in_error, in_error, in_error)
    assert toy.TOLD["error"] == [key] * in_error


def test_a_policy_of_waiting_waits_longer_with_one_alert_and_runs_again():
    key = submit("toy-wait", {"n": 1})

    expire_and_sweep(key, 4)

    row = step(key, "alpha-step")
    assert (row.process_state, row.failure_count, kit.alerts(key)) == ("Pending", 4, ["exhausted"])
    assert row.not_before - row.started_at > timedelta(seconds=290)
    make_due(key)
    assert kit.idle_state(key) == "Processed"


def test_a_policy_of_skipping_goes_on_without_the_step():
    key = submit("toy-skip", {"n": 1})

    expire_and_sweep(key, 3)
    assert (kit.idle_state(key), kit.states(key)) == ("Processed", ["Skipped", "Processed", "Processed"])
    assert kit.alerts(key) == ["skipped"]
    assert kit.seqs_are_gapless()


def test_a_policy_of_skipping_closes_the_order_after_its_last_step():
    key, place, items = kit.at_step(2, "toy-skip")

    failures.fail(place, [(items[0].claim, kit.refusal())])

    assert (kit.state(key), kit.states(key)) == ("Processed", ["Processed", "Processed", "Skipped"])
    assert kit.healthy()


def test_a_policy_of_undoing_undoes_what_was_done_or_may_have_been():
    key, _place, _items = kit.at_step(1, "toy-undo")
    expire(key)
    sweep()

    expire_and_sweep(key, 2)
    assert kit.idle_state(key) == "Cancelled"
    assert [request.step for request in toy.BETA.undone + toy.ALPHA.undone] == ["beta-step", "alpha-step"]
    assert toy.TOLD["cancelled"] == [key]
    assert kit.healthy()


def test_a_backlog_is_never_punished():
    kit.waiting(5)
    kit.fetch(
        "UPDATE supervision_stepstate SET not_before = now() - interval '1 day', complete_by = now() - interval '1 hour' WHERE position = 0"
    )

    report = sweep()

    assert report.overdue == 0
    assert set(StepState.objects.values_list("failure_count", "dispatch_count", "process_state")) == {(0, 0, "Pending")}


def many_expired(count: int) -> None:
    submit_many("toy-plain", [{"n": n} for n in range(count)])
    while sent := schedule():
        for place, claims in sent:
            step_verbs.start(place, claims)
    assert expire() == count


def counted() -> Counter[int]:
    return Counter(StepState.objects.filter(position=0).values_list("failure_count", flat=True))


def test_two_supervisor_processes_at_once_count_each_expiry_once():
    many_expired(500)
    supervisors = [kit.Process("sweep"), kit.Process("sweep")]

    for process in [process.ready() for process in supervisors]:
        process.begin()

    assert sum(process.answer() for process in supervisors) == 500
    assert counted() == {1: 500}
    assert kit.seqs_are_gapless()


def test_a_supervisor_killed_before_its_commit_leaves_everything_to_the_next():
    many_expired(20)

    killed = kit.Process("sweep", FAILPOINTS="supervisor.before_commit=kill9", ALLOW_FAILPOINTS="1").ready().begin()

    assert killed.code() == -9
    assert counted() == {0: 20}
    assert sweep().overdue == 20
    assert counted() == {1: 20}


def test_at_the_boundary_exactly_one_of_answer_and_sweep_wins():
    """Deadlines a few milliseconds away; an answer and a supervisor race for each batch of them. On a machine of any speed, some
    answers come in time, and some too late."""
    dice = random.Random(5)
    total, size = 0, 250
    for _ in range(12):
        submit_many("toy-plain", [{"n": n} for n in range(size)])
        items = [item for place, claims in schedule() for item in step_verbs.start(place, claims)]
        place = StepPosition("toy-plain", 1, "do", 0)
        kit.fetch(
            "UPDATE supervision_stepstate SET complete_by = clock_timestamp() + CASE run_id % 5"
            " WHEN 0 THEN interval '1 hour' WHEN 1 THEN interval '-1 ms' ELSE random() * interval '40 ms' END"
            " WHERE process_state = 'Processing' AND position = 0"
        )
        dice.shuffle(items)
        parts = [items[n : n + 10] for n in range(0, len(items), 10)]

        handed, swept = kit.at_once(
            lambda parts=parts, place=place: [kit.finish(place, part) for part in parts],
            lambda: sum(failures.sweep(20).total for _ in range(40)),
        )

        finished = sum(len(handover.claims) for handover in handed)
        assert finished + swept + failures.sweep(1000).total == size
        total += size
        kit.fetch("UPDATE supervision_stepstate SET not_before = now() + interval '1 day' WHERE process_state = 'Pending' AND position = 0")
    rows = Counter(StepState.objects.filter(position=0).values_list("process_state", "failure_count"))
    assert set(rows) <= {("Processed", 0), ("Pending", 1)}
    assert sum(rows.values()) == total == 3000
    assert len(rows) == 2, rows  # each side has won some
    assert StrayReply.objects.count() == rows["Pending", 1]
    assert kit.seqs_are_gapless()
