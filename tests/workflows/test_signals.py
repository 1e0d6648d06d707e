"""Signals: what a waiting step gets, and who may send what."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models.functions import Now

from supervision import OnTimeout, Step, WaitForSignal
from supervision.errors import Refused, UnknownRun
from supervision.models import Run, Signal, Submission
from supervision.operations import archive
from supervision.signals import sending
from supervision.signals.sending import MOST_PAYLOAD_BYTES, NewSignal, Sent, send_all, send_signal
from supervision.wakeup import hints
from tests.support import toy
from tests.support.trips import counted_trips
from tests.workflows.conftest import ALPHA, asleep, paid


def test_a_run_waits_for_its_signal_and_goes_on_with_its_payload(sas, flow):
    flow(ALPHA, paid(), Step("beta-step", agent="beta", reads=("paid",)))
    run = sas.start("waiting")
    assert (run.state, run.steps) == ("Processing", {"alpha-step": "Processed", "paid": "Pending", "beta-step": "Pending"})
    assert asleep() == 1
    sas.assert_healthy()

    assert run.signal("paid", {"amount": "25.80"}) == Sent.ACCEPTED
    sas.run()

    run.assert_state("Processed")
    assert run.results["paid"] == {"came": True, "payload": {"amount": "25.80"}}
    assert [dict(request.results) for request in toy.BETA.performed] == [{"paid": run.results["paid"]}]
    [signal] = Signal.objects.all()
    assert (signal.taken_by, signal.taken_at is not None, signal.sent_by) == ("paid", True, "test")
    sas.assert_healthy()


def test_a_wait_that_is_the_first_step_or_the_last_one_is_one_like_every_other(sas, flow):
    flow(WaitForSignal("go"), ALPHA, WaitForSignal("delivered"))
    run = sas.start("waiting")
    run.signal("go")
    sas.run()
    assert run.steps == {"go": "Processed", "alpha-step": "Processed", "delivered": "Pending"}
    run.signal("delivered")
    sas.run()
    run.assert_state("Processed")


def test_a_signal_that_comes_before_the_run_or_before_the_wait_is_taken_at_once(sas, flow):
    flow(ALPHA, WaitForSignal("first"), WaitForSignal("second"))
    run = sas.submit("waiting")
    run.signal("second", {"n": 2})
    assert not Run.objects.exists()
    run.signal("first", {"n": 1})
    sas.run()

    run.assert_state("Processed")
    assert [run.results[name]["payload"]["n"] for name in ("first", "second")] == [1, 2]
    assert sas.performed == ["alpha-step", "first", "second"], "no wait was begun"


def test_waits_of_one_name_take_one_signal_each_in_the_order_in_which_they_came(sas, flow):
    flow(WaitForSignal("one", signal="paid"), WaitForSignal("two", signal="paid"), WaitForSignal("three", signal="paid"))
    run = sas.start("waiting")
    for number in (1, 2):
        run.signal("paid", {"n": number})
    sas.run()

    assert run.steps == {"one": "Processed", "two": "Processed", "three": "Pending"}
    assert [run.results[name]["payload"]["n"] for name in ("one", "two")] == [1, 2]
    run.signal("paid", {"n": 3})
    run.signal("paid", {"n": 4})
    sas.run()
    run.assert_state("Processed")
    assert run.results["three"]["payload"] == {"n": 3}
    assert Signal.objects.filter(taken_by__isnull=True).count() == 1, "the fourth is kept as evidence"


def test_a_signal_of_another_name_wakes_nothing(sas, flow):
    flow(paid(), WaitForSignal("confirmed"))
    run = sas.start("waiting")
    run.signal("confirmed")
    sas.run()
    assert (sas.performed, asleep()) == (["paid"], 1)


def test_a_repeated_signal_has_one_effect_and_its_key_serves_one_payload(sas, flow):
    flow(WaitForSignal("one", signal="paid"), WaitForSignal("two", signal="paid"))
    run = sas.start("waiting")
    assert [run.signal("paid", {"n": 1}, key="k"), run.signal("paid", {"n": 1}, key="k")] == [Sent.ACCEPTED, Sent.REPEATED]
    sas.run()
    assert run.signal("paid", {"n": 1}, key="k") == Sent.REPEATED
    sas.run()

    assert run.steps == {"one": "Processed", "two": "Pending"}
    with pytest.raises(Refused, match="Another signal was sent under this key") as told:
        run.signal("paid", {"n": 2}, key="k")
    assert told.value.code == "signal_key_reused"


def test_a_signal_that_was_taken_and_is_sent_again_wakes_no_later_wait(sas, flow):
    flow(WaitForSignal("one", signal="paid"), WaitForSignal("two", signal="paid"))
    run = sas.start("waiting")
    run.signal("paid", key="k")
    sas.run()
    assert asleep() == 1

    assert run.signal("paid", key="k") == Sent.REPEATED

    assert asleep() == 1
    assert run.signal("paid", key="another") == Sent.ACCEPTED
    assert asleep() == 0


def test_only_a_signal_that_wakes_a_step_sends_a_message_to_the_scheduler(sas, flow, monkeypatch):
    flow(ALPHA, paid())
    after, before, sent = sas.start("waiting"), sas.submit("waiting"), []
    monkeypatch.setattr(hints, "send", sent.append)

    before.signal("paid")
    assert sent == [], "no step waits for it"

    after.signal("paid")
    assert sent == [hints.SCHEDULE]


def test_a_signal_takes_three_round_trips(sas, flow):
    flow(ALPHA, paid())
    asleep_runs, submitted = [sas.start("waiting") for _ in range(2)], [sas.submit("waiting") for _ in range(2)]
    with counted_trips() as trips:
        for run in (*asleep_runs, *submitted):
            trips()
            run.signal("paid")
            taken = trips()
            if run is not asleep_runs[0]:  # whose statements were prepared
                assert taken == 3, "locked and judged; written, and the step woken; committed"


def test_signals_that_no_run_can_take_are_refused_by_name(sas, flow):
    flow(ALPHA, paid())
    run = sas.start("waiting")
    with pytest.raises(UnknownRun):
        send_signal("unknown", "paid")
    with pytest.raises(Refused, match="No step of this order waits for a signal named payed"):
        run.signal("payed")
    run.cancel()
    sas.run()
    run.assert_state("Cancelled")
    with pytest.raises(Refused, match="has ended") as told:
        run.signal("paid")
    assert told.value.code == "signal_ended"
    assert not Signal.objects.exists()


@pytest.mark.parametrize(
    ("payload", "key", "why"),
    [
        ({"x": "y" * MOST_PAYLOAD_BYTES}, "k", "at most 65536 are kept"),
        ({"x": "a\0"}, "k", "cannot be kept"),
        ({"x": "\ud800"}, "k", "cannot be kept"),
        ({"x": float("nan")}, "k", "is no JSON"),
        ({"x": object()}, "k", "is no JSON"),
        ([1], "k", "must be a JSON object"),
        ({}, "k" * 256, "key has 1 to 255"),
        ({}, "a\0", "key has 1 to 255"),
    ],
)
def test_a_signal_that_cannot_be_kept_is_refused_and_the_run_waits_on(sas, flow, payload, key, why):
    flow(paid())
    run = sas.start("waiting")
    with pytest.raises(Refused, match=why):
        run.signal("paid", payload, key=key)
    sas.run()
    assert asleep() == 1


def test_many_signals_are_sent_in_one_transaction_and_each_is_answered_for_itself(sas, flow):
    flow(paid())
    flow(ALPHA, name="without")
    first, second, other = sas.start("waiting"), sas.start("waiting"), sas.start("without")
    sent = [NewSignal(run=key, name="paid", key="k") for key in (second.key, first.key, "unknown", other.key, first.key)]

    with pytest.raises(Refused, match="At most 1000 signals are sent at once"):
        send_all(sent * 201)
    assert send_all(sent) == [Sent.ACCEPTED, Sent.ACCEPTED, Sent.UNKNOWN_RUN, Sent.NOT_AWAITED, Sent.REPEATED]
    sas.run()
    assert (first.state, second.state) == ("Processed", "Processed")


def test_a_signal_commits_or_is_undone_with_the_callers_transaction(sas, flow):
    flow(paid())
    run = sas.start("waiting")
    with transaction.atomic():
        run.signal("paid")
        transaction.set_rollback(True)
    sas.run()
    assert (asleep(), Signal.objects.count()) == (1, 0)

    with transaction.atomic():
        run.signal("paid")
    sas.run()
    run.assert_state("Processed")


def test_a_signal_sent_again_is_repeated_also_when_the_run_has_ended_or_is_archived(sas, flow):
    flow(paid())
    run = sas.start("waiting")
    run.signal("paid", {"n": 1}, key="k")
    sas.run()
    run.assert_state("Processed")
    for _ in range(2):
        assert run.signal("paid", {"n": 1}, key="k") == Sent.REPEATED
        with pytest.raises(Refused, match="Another signal was sent under this key"):
            run.signal("paid", {"n": 2}, key="k")
        with pytest.raises(Refused, match="has ended"):
            run.signal("paid", {"n": 1}, key="other")
        list(archive.batches(timedelta(0)))


def test_a_signal_that_no_step_can_take_any_more_is_kept_and_the_sender_is_told(sas, flow):
    flow(paid(on_timeout=OnTimeout.GO_ON), WaitForSignal("confirmed"))
    run = sas.start("waiting")
    sas.advance("61m")
    assert run.signal("paid", {"amount": "3"}) == Sent.LATE
    assert Signal.objects.get().payload == {"amount": "3"}
    assert run.signal("confirmed") == Sent.ACCEPTED


def test_a_signal_to_an_order_in_the_dead_letters_waits_for_it(sas, flow):
    flow(paid())
    run = sas.submit("waiting")
    Submission.objects.update(consumed_at=Now())
    assert run.signal("paid") == Sent.ACCEPTED
    Submission.objects.update(consumed_at=None)
    sas.run()
    run.assert_state("Processed")


def test_a_run_keeps_so_many_signals_and_no_more(sas, flow, monkeypatch):
    monkeypatch.setattr(sending, "MOST_SIGNALS", 3)
    flow(WaitForSignal("paid"), WaitForSignal("confirmed"))
    run, early = sas.start("waiting"), sas.submit("waiting")
    for one in (run, early):
        for _ in range(3):
            one.signal("paid")
        with pytest.raises(Refused, match="has 3 signals and takes no more"):
            one.signal("paid")
    assert Signal.objects.count() == 6


def test_a_payload_that_is_nested_too_deep_is_refused(sas, flow):
    flow(paid())
    run = sas.start("waiting")
    deep: dict = {}
    for _ in range(63):
        deep = {"x": [deep]} if _ % 2 else {"x": deep}
    with pytest.raises(Refused, match="nested more than 64 deep"):
        run.signal("paid", deep)
    for _ in range(5000):
        deep = {"x": deep}
    with pytest.raises(Refused, match=r"is no JSON|nested more than 64 deep"):
        run.signal("paid", deep)
