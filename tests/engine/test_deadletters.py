"""Dead letters: an operator requeues one byte for byte or discards it, once, with a reason."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry

from supervision.errors import ChangedMeanwhile, Refused
from supervision.intake import consuming, submission
from supervision.intake.submission import NewSubmission
from supervision.models import DeadLetter, Run, Submission
from supervision.operations import operator_verbs
from supervision.recovery import supervisor
from supervision.testing import run_of, run_until_idle
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def a_dead_letter(payload: str = '{"m": 1}') -> DeadLetter:
    submission.accept([NewSubmission(public_id=submission.new_public_id(), payload=payload, workflow="toy")])
    consuming.consume_batch()
    return DeadLetter.objects.get()


def test_a_requeued_dead_letter_is_consumed_again_byte_for_byte(monkeypatch, olga):
    letter = a_dead_letter()
    monkeypatch.setattr(toy.ToyIntake, "read", lambda self, body: toy.NewRun(payload={"n": 1, "body": body}))

    key = operator_verbs.requeue_dead_letter(letter.pk, by=olga, reason="the intake was fixed")
    assert kit.idle_state(key) == "Processed"
    assert run_of(key).payload["body"] == '{"m": 1}'
    letter.refresh_from_db()
    assert letter.resolution == "olga: requeued: the intake was fixed"
    assert LogEntry.objects.count() == 1


def test_a_dead_letter_that_is_still_unreadable_becomes_a_new_one():
    letter = a_dead_letter()

    operator_verbs.requeue_dead_letter(letter.pk, by="olga", reason="hope")
    consuming.consume_batch()

    assert DeadLetter.objects.filter(resolved_at=None).count() == 1
    assert DeadLetter.objects.count() == 2


def test_a_dead_letter_is_resolved_once():
    letter = a_dead_letter()
    operator_verbs.discard_dead_letter(letter.pk, by="olga", reason="spam")

    with pytest.raises(ChangedMeanwhile):
        operator_verbs.requeue_dead_letter(letter.pk, by="paul", reason="no, wait")

    letter.refresh_from_db()
    assert bytes(letter.body) == b'{"m": 1}'
    assert (Submission.objects.filter(consumed_at=None).count(), Run.objects.count()) == (0, 0)


def test_two_operators_at_once_requeue_a_dead_letter_once():
    letter = a_dead_letter()

    answers = kit.at_once(*[lambda: operator_verbs.requeue_dead_letter(letter.pk, by="x", reason="r")] * 2)

    assert sorted(type(answer).__name__ for answer in answers) == ["ChangedMeanwhile", "str"]


def test_only_submissions_can_be_requeued():
    letter = DeadLetter.objects.create(source="task supervision.perform", body=b"x", reason="r")

    with pytest.raises(Refused):
        operator_verbs.requeue_dead_letter(letter.pk, by="olga", reason="r")
    with pytest.raises(Refused):
        operator_verbs.discard_dead_letter(-1, by="olga", reason="r")


def test_an_order_cancelled_while_it_is_a_dead_letter_ends_cancelled_when_it_is_requeued(monkeypatch):
    letter = a_dead_letter()
    assert operator_verbs.cancel(letter.public_id, by="customer", reason="tired of waiting") == "Pending"
    monkeypatch.setattr(toy.ToyIntake, "read", lambda self, body: toy.NewRun(payload={"n": 1}))

    operator_verbs.requeue_dead_letter(letter.pk, by="olga", reason="fixed")
    run_until_idle()
    supervisor.sweep_once()

    assert kit.state(letter.public_id) == "Cancelled"
    assert toy.ALPHA.performed == []
