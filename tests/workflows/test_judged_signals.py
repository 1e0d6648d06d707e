"""What the sender of a signal is told where the run goes back to an earlier step, or has not begun."""

from __future__ import annotations

import json

import pytest

from supervision import PermanentFailure, WaitForSignal, parallel, plan
from supervision.errors import Refused
from supervision.models import DeadLetter, Run, Signal
from supervision.operations import operator_verbs
from supervision.signals import sending
from supervision.signals.sending import Sent
from supervision.workflow import Intake, NewRun, _newest, _workflows
from tests.workflows.test_moving import PAID, A, B, C, D, version
from tests.workflows.test_resuming_earlier import back

__all__ = ["version"]

SAID = WaitForSignal("said")


class Chosen(Intake):
    """The payload names the version."""

    def read(self, body):
        payload = json.loads(body)
        return NewRun(payload=payload, version=payload["version"])


# ------------------------------------------------------------------------------------------------- a run that goes back


def test_while_a_graph_goes_back_a_wait_beside_it_takes_nothing_more_and_the_sender_is_told(sas, version):
    version(1, *plan(A, parallel([B, SAID], [C, PAID]), D))
    sas.fake("d", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    run.signal("said", {"n": 1})
    run.signal("paid", {"n": 1})
    sas.run()
    run.assert_state("Error")

    back(run, "b")
    assert Run.objects.get().process_state == "Compensating"
    assert [run.signal("paid", {"n": 2}), run.signal("said", {"n": 2})] == [Sent.LATE, Sent.ACCEPTED]
    sas.run()

    run.assert_state("Processed")
    assert [run.results[name]["payload"] for name in ("said", "paid")] == [{"n": 2}, {"n": 1}]
    assert Signal.objects.get(taken_by=None).payload == {"n": 2}, "what came late is kept"
    sas.assert_healthy()


def test_while_a_graph_goes_back_a_wait_beside_it_that_is_not_over_takes_its_signal(sas, version):
    version(1, *plan(A, parallel(B, [C, PAID]), D))
    run = sas.start("moved")
    back(run, "b")
    assert run.signal("paid") == Sent.ACCEPTED
    sas.run()
    run.assert_state("Processed")


def test_a_list_that_goes_back_takes_the_signals_of_the_waits_from_there_on(sas, version):
    version(1, SAID, A, PAID, B)
    sas.fake("b", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    run.signal("said")
    run.signal("paid")
    sas.run()
    back(run, "a")
    assert [run.signal("said"), run.signal("paid")] == [Sent.LATE, Sent.ACCEPTED]
    sas.run()
    run.assert_state("Processed")


# ------------------------------------------------------------------------------------------------ an order without a run


@pytest.mark.parametrize("number", [1, 2])
def test_a_signal_is_kept_for_the_version_that_the_submission_names(sas, version, number):
    version(1, A, PAID, intake=Chosen())
    version(2, A, SAID, intake=Chosen())
    run = sas.submit("moved", {"version": number})
    assert run.signal("paid" if number == 1 else "said", {"n": 1}) == Sent.ACCEPTED
    sas.run()
    run.assert_state("Processed")


def test_a_signal_is_kept_for_a_newer_version_that_this_process_does_not_know(sas, version, monkeypatch):
    older = version(1, A, B)
    newer = version(2, A, PAID)
    monkeypatch.setitem(_newest, "moved", older)
    monkeypatch.delitem(_workflows, ("moved", 2))
    run = sas.submit("moved", {})
    assert run.signal("paid", {"n": 1}) == Sent.ACCEPTED

    monkeypatch.setitem(_workflows, ("moved", 2), newer)
    monkeypatch.setitem(_newest, "moved", newer)
    sas.run()
    run.assert_state("Processed")
    assert run.results["paid"]["payload"] == {"n": 1}


def test_a_signal_for_which_no_version_waits_is_refused_with_the_names_of_all(sas, version):
    version(1, A, PAID)
    version(2, A, SAID)
    run = sas.submit("moved", {})
    with pytest.raises(Refused, match=r"Its signals: paid, said\.") as problem:
        run.signal("payed")
    assert problem.value.code == "signal_not_awaited"
    assert not Signal.objects.exists()


def test_a_signal_to_an_order_whose_dead_letter_was_discarded_is_refused(sas, version):
    version(1, A, PAID, intake=Chosen())
    run = sas.submit("moved", {})
    sas.run()
    letter = DeadLetter.objects.get(public_id=run.key)
    assert run.signal("paid", key="k") == Sent.ACCEPTED, "an operator may requeue it"

    operator_verbs.discard_dead_letter(letter.pk, by="olga", reason="spam")
    with pytest.raises(Refused, match="has ended") as problem:
        run.signal("paid", key="other")
    assert problem.value.code == "signal_ended"
    assert run.signal("paid", key="k") == Sent.REPEATED


def test_the_signals_of_one_call_count_together(sas, version, monkeypatch):
    version(1, *plan(A, PAID))
    run = sas.start("moved")
    monkeypatch.setattr(sending, "MOST_SIGNALS", 4)

    def send(*keys):
        return sending.send_all([sending.NewSignal(run=run.key, name="paid", key=key) for key in keys])

    assert send("a", "b") == [Sent.ACCEPTED] * 2
    assert send("a", "b", "c", "c") == [Sent.REPEATED, Sent.REPEATED, Sent.ACCEPTED, Sent.REPEATED], "what came before counts once"
    assert send("d", "e", "f", "a") == [Sent.ACCEPTED, Sent.TOO_MANY, Sent.TOO_MANY, Sent.REPEATED]
