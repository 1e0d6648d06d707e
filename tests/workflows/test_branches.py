"""Branches that run side by side: they fork and join, fail, wait, are undone and cancelled."""

from __future__ import annotations

import pytest

from supervision import OnPermanent, PermanentFailure, RetryPolicy, Step, Timer, TransientFailure, WaitForSignal, parallel, plan
from supervision.errors import Refused
from supervision.insight.waiting import why_waiting
from supervision.models import Alert, StepState
from supervision.operations import operator_verbs
from supervision.recovery import decisions, failures
from supervision.signals.sending import send_signal
from supervision.store import epochs, step_verbs
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import HOUR


def step(name, agent="alpha", **fields):
    return Step(name, agent=agent, retry=fields.pop("retry", toy.RETRY), **fields)


A, B, B2, C, C2, D = (
    step("a", "alpha"), step("b", "beta"), step("b2", "beta"), step("c", "gamma"), step("c2", "gamma"), step("d", "alpha"),
)  # fmt: skip


@pytest.fixture
def diamond(flow):
    """a, then b and b2 beside c and c2, then d."""
    return flow(*plan(A, parallel([B, B2], [C, C2]), D))


def begin(workflow="waiting"):
    """A run whose two branches are being worked on: its key, and the started steps of b and c."""
    key, place, items = kit.started(workflow)
    handed = kit.finish(place, items)
    [(other, claims)] = kit.schedule()
    return key, (place.following, step_verbs.start(place.following, handed.claims)), (other, step_verbs.start(other, claims))


def fail(place, items, message="refused"):
    failures.fail(place, [(item.claim, kit.refusal(message)) for item in items])


def of(key):
    """The states of the steps by name, and the run's."""
    return {**dict(StepState.objects.filter(run__key=key, direction="do").values_list("name", "process_state")), "run": kit.state(key)}


@pytest.mark.parametrize("last", ["b2", "c2"])
def test_branches_run_side_by_side_and_join(sas, diamond, last):
    key, (b, b_items), (c, c_items) = begin()
    assert of(key) == {
        "a": "Processed", "b": "Processing", "b2": "Pending", "c": "Processing", "c2": "Pending", "d": "Pending", "run": "Processing"
    }  # fmt: skip
    assert (b.label, c.label) == ("b", "c")

    b2_claims = kit.finish(b, b_items).claims
    assert b.following.label == "b2"
    c2_claims = kit.finish(c, c_items).claims
    ends = [(place.following, step_verbs.start(place.following, claims)) for place, claims in ((c, c2_claims), (b, b2_claims))]
    first, second = ends if last == "b2" else reversed(ends)
    handed = kit.finish(*first)
    assert (handed.claims, handed.wake_scheduler, of(key)["d"]) == ([], False, "Pending")
    assert kit.schedule() == []
    kit.healthy()
    d_claims = kit.finish(*second).claims
    if last == "c2":  # d is in the claim of the branch that goes on with it
        [(_, d_claims)] = kit.schedule()
    assert of(key)["d"] == "Processing"
    d = b.following.following
    kit.finish(d, step_verbs.start(d, d_claims))
    assert set(of(key).values()) == {"Processed"}
    assert kit.seqs_are_gapless()
    kit.healthy()


def test_a_run_goes_through_its_branches_and_ends_with_the_last_of_them(sas, flow):
    flow(*plan(parallel(A, [B, parallel(B2, C)]), parallel(C2, D)))
    run = sas.start("waiting")
    run.assert_state("Processed")
    assert sorted(sas.performed) == ["a", "b", "b2", "c", "c2", "d"]
    assert sas.performed.index("b") < min(sas.performed.index("b2"), sas.performed.index("c"))
    sas.assert_healthy()


def test_a_cohort_goes_through_branches_together(sas, diamond):
    runs = [sas.submit("waiting", {"n": n}) for n in range(7)]
    sas.run()
    assert {run.state for run in runs} == {"Processed"}
    assert len(sas.performed) == 42
    sas.assert_healthy()


def test_a_failed_branch_lets_the_other_come_to_rest_and_holds_it_there(sas, diamond):
    key, b, c = begin()
    fail(*b)
    assert of(key) == {
        "a": "Processed", "b": "Error", "b2": "Pending", "c": "Processing", "c2": "Pending", "d": "Pending", "run": "Error"
    }  # fmt: skip
    handed = kit.finish(*c)
    assert (handed.claims, of(key)["c"], of(key)["c2"], of(key)["run"]) == ([], "Processed", "Pending", "Error")
    assert kit.schedule() == []
    kit.healthy()

    operator_verbs.resubmit(key, by="operator", reason="again")
    assert sorted(place.label for place, _ in kit.schedule()) == ["b", "c2"]
    kit.expire_and_sweep()
    kit.again()
    assert set(of(key).values()) == {"Processed"}
    assert sas.performed.count("c") == 0  # it was done once, by hand, and not again
    kit.healthy()


def test_a_branch_that_would_try_again_waits_while_the_run_is_in_error(sas, diamond):
    key, b, (c, c_items) = begin()
    fail(*b)
    failures.fail(c, [(item.claim, decisions.as_failure(TransientFailure("busy"))) for item in c_items])
    assert (of(key)["c"], of(key)["run"]) == ("Pending", "Error")
    kit.testing.make_due()
    assert kit.schedule() == []
    kit.healthy()
    operator_verbs.skip(key, by="operator", reason="without b")
    kit.testing.make_due()
    sas.run()
    assert (of(key)["run"], of(key)["b"]) == ("Processed", "Skipped")
    assert sorted(sas.performed) == ["b2", "c", "c2", "d"]


def test_two_failed_branches_are_one_error_and_are_settled_one_by_one(sas, flow):
    told = []
    flow(*plan(A, parallel([B, B2], [C, C2]), D), on_error=told.extend)
    key, b, c = begin()
    fail(*b)
    fail(*c)
    assert (of(key)["b"], of(key)["c"], of(key)["run"]) == ("Error", "Error", "Error")
    assert [run.key for run in told] == [key]
    assert [event.to_state for event in kit.events(key) if event.position is None].count("Error") == 1
    assert kit.open_alerts(key) == ["error", "error"]
    kit.healthy()

    with pytest.raises(Refused, match="Several steps are in Error: b, c"):
        operator_verbs.skip(key, by="operator", reason="which?")
    with pytest.raises(Refused, match="Step d is not in Error; in Error: b, c"):
        operator_verbs.resubmit(key, by="operator", reason="d?", step="d")
    operator_verbs.resubmit(key, by="operator", reason="b first", step="b")
    assert (of(key)["run"], of(key)["b"], kit.schedule()) == ("Error", "Pending", [])
    assert kit.open_alerts(key) == ["error"]
    kit.healthy()
    operator_verbs.skip(key, by="operator", reason="without c")
    sas.run()
    assert (of(key)["run"], of(key)["c"]) == ("Processed", "Skipped")
    kit.healthy()


def test_resubmit_runs_all_failed_branches_again(sas, diamond):
    key, b, c = begin()
    fail(*b)
    fail(*c)
    operator_verbs.resubmit(key, by="operator", reason="again")
    sas.run()
    assert set(of(key).values()) == {"Processed"}
    assert sorted(sas.performed) == ["b", "b2", "c", "c2", "d"]


def test_branches_are_undone_side_by_side_after_what_came_later(sas, diamond):
    sas.fake("d", raises=PermanentFailure("no"))
    run = sas.start("waiting")
    run.compensate()
    [(first, claims), (second, more)] = sorted(kit.schedule(), key=lambda sent: sent[0].position)
    assert (first.label, second.label) == ("undo:b2", "undo:c2")
    assert kit.schedule() == []
    kit.finish(first, step_verbs.start(first, claims))
    [(third, _)] = kit.schedule()
    assert third.label == "undo:b"
    kit.healthy()
    kit.finish(second, step_verbs.start(second, more))
    kit.expire_and_sweep()
    kit.again()
    run.assert_state("Cancelled")
    assert sas.undone == ["c", "b", "a"] or sas.undone == ["b", "c", "a"]
    kit.healthy()


def test_an_undo_that_fails_lets_the_other_branch_rest_and_go_on_with_it(sas, diamond):
    sas.fake("d", raises=PermanentFailure("no"))
    run = sas.start("waiting")
    run.compensate()
    [(first, claims), (second, more)] = sorted(kit.schedule(), key=lambda sent: sent[0].position)
    fail(first, step_verbs.start(first, claims))
    kit.finish(second, step_verbs.start(second, more))
    run.assert_state("Error")
    assert kit.schedule() == []
    kit.healthy()
    run.skip()
    sas.run()
    run.assert_state("Cancelled")
    assert sorted(sas.undone) == ["a", "b", "c"]
    kit.healthy()


def test_a_policy_that_undoes_reaches_the_other_branch_and_its_late_success(sas, flow):
    undo = RetryPolicy(threshold=3, on_permanent=OnPermanent.COMPENSATE)
    flow(*plan(A, parallel([step("b", "beta", retry=undo), B2], [C, C2]), D))
    key, b, (c, c_items) = begin()
    fail(*b)
    assert (of(key)["run"], of(key)["c"], of(key)["d"]) == ("Compensating", "Processing", "Cancelled")
    assert kit.schedule() == []  # nothing is undone while c runs
    kit.finish(c, c_items)
    sas.run()
    assert of(key)["run"] == "Cancelled"
    assert sas.undone == ["c", "a"]
    kit.healthy()


def test_a_policy_that_undoes_closes_the_alert_of_a_branch_that_failed_before(sas, flow):
    undo = RetryPolicy(threshold=3, on_permanent=OnPermanent.COMPENSATE)
    flow(*plan(A, parallel([B, B2], [step("c", "gamma", retry=undo), C2]), D))
    key, b, c = begin()
    fail(*b)
    assert kit.open_alerts(key) == ["error"]
    fail(*c)
    assert (of(key)["run"], kit.open_alerts(key)) == ("Compensating", [])
    sas.run()
    assert of(key)["run"] == "Cancelled"
    kit.healthy()


def test_what_a_run_waits_for_is_first_of_all_its_step_in_error(sas, diamond):
    key, _b, c = begin()
    fail(*c)
    pk = kit.run_of(key).pk
    assert why_waiting([pk])[pk] == "c is in error and waits for an operator."


def test_the_last_answer_of_a_cancelled_run_wakes_the_scheduler_that_undoes_it(sas, diamond):
    key, b, c = begin()
    operator_verbs.cancel(key, by="customer", reason="no longer wanted")
    kit.finish(*b)
    assert kit.finish(*c).wake_scheduler
    assert sorted(place.label for place, _ in kit.schedule()) == ["undo:b", "undo:c"]


def test_a_policy_that_skips_lets_the_join_go_on(sas, flow):
    flow(*plan(A, parallel([step("b", "beta", retry=RetryPolicy(on_permanent=OnPermanent.SKIP)), B2], C), D))
    sas.fake("b", raises=PermanentFailure("not here"))
    run = sas.start("waiting")
    run.assert_state("Processed")
    assert (run.steps["b"], run.steps["b2"]) == ("Skipped", "Processed")
    sas.assert_healthy()


def test_a_cancel_reaches_every_branch(sas, diamond):
    key, (b, b_items), _c = begin()
    operator_verbs.cancel(key, by="customer", reason="no longer wanted")
    assert of(key)["run"] == "Compensating"
    kit.finish(b, b_items)
    kit.expire_and_sweep()
    sas.run()
    assert of(key)["run"] == "Cancelled"
    assert sorted(sas.undone) == ["a", "b", "c"]  # whether c had an effect is not known
    kit.healthy()


def test_a_branch_waits_for_a_signal_while_the_other_works(sas, flow):
    flow(*plan(A, parallel(WaitForSignal("paid", within=HOUR), [C, C2]), step("d", reads=("paid", "c2"))))
    run = sas.start("waiting")
    assert (run.state, run.steps["c2"], run.steps["paid"], run.steps["d"]) == ("Processing", "Processed", "Pending", "Pending")
    send_signal(run.key, "paid", {"amount": 3})
    sas.run()
    run.assert_state("Processed")
    assert toy.ALPHA.performed[-1].results["paid"] == {"came": True, "payload": {"amount": 3}}
    sas.assert_healthy()


def test_a_wait_is_held_back_with_its_run_and_goes_on_with_it(sas, flow):
    flow(*plan(A, parallel(WaitForSignal("paid", within=HOUR), [C, C2]), D), complete_within=2 * HOUR)
    sas.fake("c", raises=PermanentFailure("no"), times=1)
    run = sas.start("waiting")
    run.assert_state("Error")
    send_signal(run.key, "paid", {})
    sas.run()
    assert (run.steps["paid"], run.steps["d"]) == ("Pending", "Pending")
    sas.assert_healthy()
    run.resubmit()
    sas.run()
    run.assert_state("Processed")

    sas.fake("c", raises=PermanentFailure("no"), times=1)
    late = sas.start("waiting")
    assert round((kit.run_of(late.key).complete_by - kit.run_of(late.key).created_at) / HOUR, 2) == 2  # the wait's hour was given back
    sas.advance("30m")
    late.resubmit()
    sas.run()
    assert (late.state, late.steps["paid"], late.steps["c2"]) == ("Processing", "Pending", "Processed")
    sas.advance("31m")
    late.assert_state("Error")
    assert Alert.objects.filter(run__key=late.key, closed_at__isnull=True).values_list("code", flat=True)[0] == "timed_out"


def test_a_timer_that_is_held_back_with_its_run_keeps_its_end(sas, flow):
    flow(*plan(A, parallel(Timer("cool", lasts=HOUR), [C, C2]), D))
    sas.fake("c", raises=PermanentFailure("no"), times=1)
    run = sas.start("waiting")
    sas.advance("30m")
    run.assert_state("Error")
    run.resubmit()
    sas.run()
    assert (run.steps["cool"], run.steps["c2"]) == ("Pending", "Processed")
    sas.advance("31m")
    run.assert_state("Processed")


def test_an_overdue_run_stops_as_a_whole(sas, diamond):
    key, place, items = kit.started("waiting")
    kit.finish(place, items)
    kit.expire_and_sweep()
    kit.hours_pass(25)
    kit.supervisor.sweep_once()
    assert (of(key)["run"], kit.schedule()) == ("Error", [])
    kit.healthy()
    operator_verbs.resubmit(key, by="operator", reason="go on")
    kit.again()
    assert of(key)["run"] == "Processed"


def test_a_session_releases_every_first_step_of_a_graph(sas, flow):
    flow(*plan(parallel(A, B), C), intake=toy.INTAKE)
    first, second = (sas.submit("waiting", {"n": n, "session_key": "s"}) for n in range(2))
    kit.schedule()
    assert (first.state, second.state) == ("Processing", "Pending")
    kit.expire_and_sweep()
    kit.again()
    assert (first.state, second.state) == ("Processed", "Processed")
    assert sorted(sas.performed) == ["a", "a", "b", "b", "c", "c"]
    sas.assert_healthy()


def test_a_new_epoch_releases_every_running_branch(sas, diamond):
    key, *_ = begin()
    epochs.begin("a test", declared=True)
    assert (of(key)["b"], of(key)["c"]) == ("Pending", "Pending")
    kit.healthy()
    sas.run()
    assert of(key)["run"] == "Processed"
    kit.healthy()
