"""How an agent performs a cohort: it drops stale messages and late answers, and one failing order does not stop the others."""

from __future__ import annotations

from dataclasses import MISSING, fields
from datetime import timedelta

import pytest

from supervision.agent import StepRequest
from supervision.errors import OutcomeUnknown, PermanentFailure, Postpone, TransientFailure
from supervision.execution import runner
from supervision.models import StrayReply
from supervision.operations import operator_verbs
from supervision.recovery import failures
from supervision.states import Claim
from supervision.store import step_verbs
from supervision.testing import expire, make_due, run_of, schedule, step, submit, submit_many
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def test_an_order_runs_through_every_agent_once_and_tells_its_end():
    key = submit("toy", {"n": 1})

    assert (kit.idle_state(key), kit.states(key)) == ("Processed", ["Processed"] * 3)
    assert [len(agent.performed) for agent in (toy.ALPHA, toy.BETA, toy.GAMMA)] == [1, 1, 1]
    assert step(key, "beta-step").result == {"by": "beta"}
    assert toy.TOLD["processed"] == [key]
    assert kit.healthy()


def test_a_request_lacks_none_of_the_facts_that_its_class_names():
    submit("toy", {"n": 1})
    kit.run_until_idle()

    for agent in (toy.ALPHA, toy.BETA, toy.GAMMA):
        [request] = agent.performed
        whole = StepRequest(**{field.name: getattr(request, field.name) for field in fields(StepRequest)})
        assert repr(whole) == repr(request)
        assert vars(request).keys() >= {field.name for field in fields(StepRequest) if field.default is MISSING}
        assert (request.step, request.attempt, request.checkpoint_data) == (f"{agent.name}-step", 1, {})


def test_a_message_delivered_twice_is_performed_once():
    _key, place, claims = kit.claimed()

    assert len(step_verbs.start(place, claims)) == 1
    assert step_verbs.start(place, claims) == []
    assert runner.run(place, claims) is None
    assert toy.ALPHA.performed == []


def test_a_message_of_an_earlier_attempt_is_dropped():
    key, place, claims = kit.claimed()
    kit.expire_and_sweep(key)
    ((_, fresh),) = schedule()

    assert runner.run(place, claims) is None
    assert [claim.attempt for claim in fresh] == [2]
    assert toy.ALPHA.performed == []


def test_a_message_that_comes_after_its_deadline_is_dropped():
    key, place, claims = kit.claimed()
    expire(key)

    assert step_verbs.start(place, claims) == []
    assert kit.states(key)[0] == "Processing"


def test_a_message_of_a_cancelled_order_is_dropped():
    key, place, claims = kit.claimed()
    operator_verbs.cancel(key, by="customer", reason="no")

    assert runner.run(place, claims) is None
    assert toy.ALPHA.performed == []
    assert kit.state(key) == "Cancelled"


def test_a_message_about_nothing_is_dropped():
    _, place, _ = kit.claimed()

    assert runner.run(place, [Claim(999_999_999, 1)]) is None


def test_starting_renews_the_deadline_to_the_steps_own_budget(tuned):
    tuned(DISPATCH_SECONDS=5)
    key, place, claims = kit.claimed()
    before = step(key, "alpha-step").complete_by

    step_verbs.start(place, claims)

    after = step(key, "alpha-step")
    assert after.complete_by - after.started_at == timedelta(seconds=30)
    assert after.complete_by > before


def test_finishing_claims_the_successor_in_the_same_commit():
    key, place, items = kit.started()

    handed = kit.finish(place, items)

    assert handed.claims == [Claim(run_of(key).pk, 1)]
    assert kit.states(key) == ["Processed", "Processing", "Pending"]
    assert step(key, "beta-step").started_at is None
    assert kit.seqs_are_gapless()


def test_an_answer_that_comes_after_the_deadline_changes_nothing_and_is_kept_as_evidence():
    key, place, items = kit.started()
    expire(key)
    before = len(kit.events(key))

    handed = kit.finish(place, items)

    assert (handed.claims, handed.stale) == ([], [items[0].claim])
    assert kit.states(key) == ["Processing", "Pending", "Pending"]
    stray = StrayReply.objects.get()
    assert (stray.run_id, stray.attempt, stray.outcome) == (items[0].run_id, 1, "processed")
    assert len(kit.events(key)) == before


def test_an_answer_of_an_earlier_attempt_changes_nothing():
    key, place, items = kit.started()
    kit.expire_and_sweep(key)
    make_due(key)
    schedule()

    kit.finish(place, items)

    assert (step(key, "alpha-step").process_state, step(key, "alpha-step").attempt) == ("Processing", 2)
    assert StrayReply.objects.count() == 1


def test_an_answer_given_twice_counts_once():
    key, place, items = kit.started()
    kit.finish(place, items)

    again = kit.finish(place, items)

    assert again.claims == []
    assert kit.states(key) == ["Processed", "Processing", "Pending"]


def test_a_late_error_is_no_error_and_is_kept_as_evidence():
    key, place, items = kit.started()
    expire(key)

    failures.fail(place, [(items[0].claim, kit.refusal())])

    assert (kit.state(key), kit.alerts(key)) == ("Processing", [])
    assert StrayReply.objects.get().outcome == "permanent"


def test_the_members_of_a_cohort_that_are_still_ours_are_finished_when_one_is_not():
    keys = submit_many("toy-plain", [{"n": n} for n in range(3)])
    ((place, claims),) = schedule()
    items = step_verbs.start(place, claims)
    expire(keys[1])

    handed = kit.finish(place, items)

    assert len(handed.claims) == 2
    assert [kit.states(key)[0] for key in keys] == ["Processed", "Processing", "Processed"]


def test_a_worker_that_serves_the_next_queue_goes_on_without_a_message():
    runner.process.serve({"agent.alpha", "agent.beta"})
    key, place, claims = kit.claimed()

    there, successors = runner.run(place, claims)

    assert [len(agent.performed) for agent in (toy.ALPHA, toy.BETA, toy.GAMMA)] == [1, 1, 0]
    assert (there.position, len(successors)) == (2, 1)
    assert step(key, "gamma-step").started_at is None
    assert kit.seqs_are_gapless()


def test_a_step_that_failed_for_now_waits_and_is_counted():
    kit.others_succeed("alpha")
    toy.ALPHA.on_perform = kit.raising(TransientFailure("busy"))
    key = kit.ran()

    row = step(key, "alpha-step")
    assert (row.process_state, row.failure_count, row.effect, row.last_error) == ("Pending", 1, "none", "busy")
    assert row.not_before > row.started_at


def test_an_error_of_the_agents_own_making_leaves_the_effect_unknown():
    toy.ALPHA.on_perform = kit.raising(ZeroDivisionError("oops"))
    key = kit.ran()

    row = step(key, "alpha-step")
    assert (row.process_state, row.failure_count, row.effect) == ("Pending", 1, "unknown")
    assert row.last_error == "ZeroDivisionError: oops"


def test_an_unanswered_call_leaves_the_effect_unknown_and_the_key_as_it_was():
    toy.ALPHA.on_perform = kit.raising(OutcomeUnknown("reset"))
    key = kit.ran()
    make_due(key)
    toy.ALPHA.on_perform = None

    assert kit.idle_state(key) == "Processed"
    assert len({request.idempotency_key for request in toy.ALPHA.performed}) == 1
    assert [request.attempt for request in toy.ALPHA.performed] == [1, 2]


def test_a_refusal_stops_the_order_with_one_alert_and_no_effect():
    toy.BETA.on_perform = kit.raising(PermanentFailure("declined"))
    key = submit("toy", {"n": 1})

    assert (kit.idle_state(key), kit.states(key)) == ("Error", ["Processed", "Error", "Pending"])
    assert step(key, "beta-step").effect == "none"
    assert (kit.open_alerts(key), len(kit.incidents())) == (["error"], 1)
    assert toy.TOLD["error"] == [key]


def test_a_refusal_without_words_is_told_in_one_sentence_for_operators():
    toy.BETA.on_perform = kit.raising(PermanentFailure())
    key = submit("toy", {"n": 1})

    assert kit.idle_state(key) == "Error"
    told = "The service refused for good and did nothing; another attempt would be refused too."
    assert step(key, "beta-step").last_error == told


class CardDeclined(PermanentFailure):
    """
    The bank of the customer declined the card,
    and nothing was paid.

    code: the bank's.
    """


def test_an_error_of_the_project_is_told_in_the_first_words_that_describe_it_however_they_are_broken():
    assert str(CardDeclined()) == "The bank of the customer declined the card, and nothing was paid."


def test_a_postponed_step_is_not_counted():
    toy.ALPHA.on_perform = kit.raising(Postpone("closed", timedelta(minutes=3)))
    key = kit.ran()

    row = step(key, "alpha-step")
    assert (row.process_state, row.failure_count, row.dispatch_count) == ("Pending", 0, 0)
    assert timedelta(minutes=2) < row.not_before - row.started_at < timedelta(minutes=4)


@pytest.mark.parametrize("wish", [float("inf"), float("nan"), -5.0, 1e300])
def test_a_services_absurd_wish_for_a_pause_stops_nobody(wish):
    toy.ALPHA.on_perform = kit.raising(TransientFailure("busy", retry_after=wish))
    key = kit.ran()

    row = step(key, "alpha-step")
    assert row.process_state == "Pending"
    assert row.not_before - row.started_at < timedelta(days=2)


def test_calls_are_counted_once_twice_once_after_the_middle_step_was_resubmitted():
    toy.BETA.on_perform = kit.raising(PermanentFailure("declined"))
    key = kit.ran()
    toy.BETA.on_perform = None

    operator_verbs.resubmit(key, by="operator", reason="card replaced")
    assert kit.idle_state(key) == "Processed"
    assert [len(agent.performed) for agent in (toy.ALPHA, toy.BETA, toy.GAMMA)] == [1, 2, 1]
    assert kit.healthy()
