"""Child runs whose submission becomes a dead letter: discarded, or before and while they are undone with their parent."""

from __future__ import annotations

from supervision import Intake, UnreadableSubmission, testing
from supervision.intake import consuming
from supervision.models import Child, DeadLetter, StepState
from supervision.operations import operator_verbs
from tests.workflows.conftest import ALPHA
from tests.workflows.test_children import PACK, child_of, family

__all__ = ["family"]


class Changeable(Intake):
    """An intake that reads nothing any more once `shut` is set."""

    shut = False

    def read(self, body):
        if self.shut:
            raise UnreadableSubmission("shut")
        return super().read(body)


def begun(sas, family):
    """A parent that has just started its child, whose submission waits."""
    family(ALPHA, PACK, intake=Changeable())
    run = sas.submit("waiting")
    while not Child.objects.exists():
        for place, claims in testing.schedule():
            testing.perform(place, claims)
    return run


def test_a_child_that_has_become_a_dead_letter_is_dropped_with_its_parent(sas, family, monkeypatch):
    run = begun(sas, family)
    monkeypatch.setattr(Changeable, "shut", True)
    sas.run()
    assert (DeadLetter.objects.get().public_id, run.state) == (child_of(run).key, "Processing")
    run.cancel()
    sas.run()
    run.assert_state("Cancelled")
    assert Child.objects.get().state == "Cancelled"
    sas.assert_healthy()


def test_a_child_that_becomes_a_dead_letter_while_it_is_undone_lets_its_parent_go_on(sas, family, monkeypatch):
    run = begun(sas, family)
    run.cancel()
    with monkeypatch.context() as patch:
        patch.setattr(consuming, "consume_batch", lambda *_, **__: consuming.ConsumeReport())
        while not Child.objects.filter(state="Undoing").exists():
            for place, claims in testing.schedule():
                testing.perform(place, claims)
    monkeypatch.setattr(Changeable, "shut", True)

    sas.run()

    assert DeadLetter.objects.get().public_id == child_of(run).key
    assert (run.state, Child.objects.get().state) == ("Cancelled", "Cancelled")
    sas.assert_healthy()


def test_a_child_whose_dead_letter_is_discarded_stops_its_parent_instead_of_letting_it_wait(sas, family, monkeypatch):
    run = begun(sas, family)
    with monkeypatch.context() as patch:
        patch.setattr(Changeable, "shut", True)
        sas.run()
    operator_verbs.discard_dead_letter(DeadLetter.objects.get().pk, by="olga", reason="nonsense")
    sas.run()
    run.assert_state("Error")
    assert StepState.objects.get(run__key=run.key, name="pack").last_error == f"its child {child_of(run).key} was cancelled"

    run.resubmit(new_generation=True)
    sas.run()

    run.assert_state("Processed")
    assert sorted(Child.objects.values_list("state", flat=True)) == ["Processed", "Replaced"]
    sas.assert_healthy()
