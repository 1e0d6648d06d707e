"""Operators' verbs: each acts once or says why not, is logged in the same transaction, and shows its plan first."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.db import transaction

from supervision.errors import ChangedMeanwhile, PermanentFailure, Refused, UnknownRun, UnreadableSubmission
from supervision.models import Alert
from supervision.operations import operator_verbs, previews, resuming
from supervision.testing import run_of, run_until_idle, step
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def attempt(key: str, name: str = "alpha-step") -> int:
    return int(step(key, name).attempt)


# -------------------------------------------------------------------------------------------------- resubmit


def test_a_resubmitted_step_runs_again_and_only_it():
    key = kit.in_error(1, "toy")
    bystander = kit.in_error(1, "toy")

    state = operator_verbs.resubmit(key, by="olga", reason="fixed", attempt=attempt(key, "beta-step"))
    run_until_idle()

    assert state == "Processing"
    assert kit.state(key) == "Processed"
    assert [len(agent.performed) for agent in (toy.ALPHA, toy.BETA, toy.GAMMA)] == [0, 1, 1]
    assert kit.state(bystander) == "Error"
    assert kit.healthy()


def test_a_resubmitted_step_starts_counting_anew():
    key = kit.in_error(0)

    operator_verbs.resubmit(key, by="olga", reason="fixed")

    row = step(key, "alpha-step")
    assert (row.process_state, row.failure_count, row.dispatch_count, row.attempt) == ("Pending", 0, 0, 1)


def test_a_caller_who_saw_an_earlier_attempt_is_told_so_and_nothing_changes():
    key = kit.in_error(0)
    seen = attempt(key)
    operator_verbs.resubmit(key, by="first", reason="fixed", attempt=seen)
    toy.ALPHA.on_perform = _refuse
    assert kit.idle_state(key) == "Error"

    with pytest.raises(ChangedMeanwhile):
        operator_verbs.resubmit(key, by="second", reason="fixed", attempt=seen)

    assert kit.states(key)[0] == "Error"


_refuse = kit.raising(PermanentFailure("still no"))


def test_of_two_callers_at_once_one_wins():
    for _ in range(10):
        key = kit.in_error(0)
        seen = attempt(key)

        answers = kit.at_once(*[lambda key=key, seen=seen: operator_verbs.resubmit(key, by="x", reason="r", attempt=seen)] * 2)

        assert sorted(type(answer).__name__ for answer in answers) == ["ChangedMeanwhile", "str"]
        assert [event.to_state for event in kit.events(key)].count("Error") == 2  # one event of the step and one of the run
        run_until_idle()


def test_resubmitting_an_order_that_is_not_in_error_is_refused():
    key, *_ = kit.started()

    with pytest.raises(Refused, check=lambda error: error.code == "not_in_error"):
        operator_verbs.resubmit(key, by="olga", reason="impatient")


@pytest.mark.parametrize(("unknown", "forced", "generation"), [(False, False, 2), (True, False, 1), (True, True, 2)])
def test_a_step_gets_a_new_key_after_a_refusal_without_effect_or_by_order_and_else_keeps_it(unknown, forced, generation):
    key = kit.in_error(0, unknown=unknown)

    planned = previews.plan(key).steps[0].idempotency_key
    operator_verbs.resubmit(key, by="olga", reason="looked at it", new_generation=forced)

    row = step(key, "alpha-step")
    assert (row.generation, row.idempotency_key) == (generation, f"{key}:alpha-step:do:{generation}")
    assert forced or planned == row.idempotency_key


def test_each_generation_has_an_alert_of_its_own_and_resubmitting_acknowledges_it():
    key = kit.in_error(0)
    toy.ALPHA.on_perform = _refuse

    operator_verbs.resubmit(key, by="olga", reason="fixed")
    run_until_idle()

    rows = Alert.objects.order_by("generation").values_list("generation", "kind", "acknowledged_by", "closed_at")
    assert [(*row[:3], row[3] is None) for row in rows] == [(1, "error", "olga", False), (2, "error", "", True)]


# ----------------------------------------------------------------------------------------------------- amend


def test_an_amendment_reaches_the_agent_and_is_audited_with_old_and_new(olga):
    key = kit.in_error(0, colour="red")

    operator_verbs.resubmit(key, by=olga, reason="wrong colour", amend={"colour": "blue"})
    run_until_idle()

    assert toy.ALPHA.performed[0].payload["colour"] == "blue"
    assert "'red' -> 'blue'" in LogEntry.objects.get().change_message
    assert any("'red' -> 'blue'" in (event.why or "") for event in kit.events(key))


@pytest.mark.parametrize("amend", [{"n": 2}, {"price": 0}, {"colour": "blue", "n": 2}])
def test_a_field_outside_the_whitelist_is_refused_and_nothing_changes(amend):
    key = kit.in_error(0, colour="red")

    with pytest.raises(Refused, check=lambda error: error.code == "not_amendable"):
        operator_verbs.resubmit(key, by="olga", reason="cheat", amend=amend)
    assert (kit.state(key), run_of(key).payload) == ("Error", {"n": 1, "colour": "red"})


def test_an_amendment_the_application_refuses_changes_nothing(monkeypatch):
    def check(changed):
        raise UnreadableSubmission("colour: no such colour")

    monkeypatch.setattr(toy.ToyIntake, "check_amendment", staticmethod(check), raising=False)
    key = kit.in_error(0, colour="red")

    with pytest.raises(Refused, match="no such colour"):
        operator_verbs.resubmit(key, by="olga", reason="typo", amend={"colour": "octarine"})

    assert kit.state(key) == "Error"


def test_the_application_refuses_that_failed_steps_are_done_again_and_nothing_changes(monkeypatch):
    asked = []

    def check(key, payload, steps):
        asked.append((key, payload["colour"], list(steps)))
        raise Refused("it is paid already", "paid")

    key = kit.in_error(0, colour="red")
    monkeypatch.setattr(toy.ToyIntake, "check_resubmission", staticmethod(check), raising=False)
    for again in (
        lambda: operator_verbs.resubmit(key, by="olga", reason="typo", amend={"colour": "blue"}),
        lambda: resuming.resume_from(key, "alpha-step", by="olga", reason="again"),
    ):
        with pytest.raises(Refused, match="paid already"):
            again()
        assert (kit.state(key), run_of(key).payload["colour"]) == ("Error", "red")
    assert asked == [(key, "blue", ["alpha-step"]), (key, "red", ["alpha-step"])]

    operator_verbs.skip(key, by="olga", reason="it is done")
    assert len(asked) == 2


# ------------------------------------------------------------------------------------------------------ skip


@pytest.mark.parametrize(("position", "state"), [(0, "Processing"), (1, "Processing"), (2, "Processed")])
def test_a_skipped_step_lets_the_order_go_on_or_end(position, state):
    key = kit.in_error(position, "toy")

    assert operator_verbs.skip(key, by="olga", reason="done by hand") == state
    assert kit.idle_state(key) == "Processed"
    assert kit.states(key)[position] == "Skipped"
    assert toy.TOLD["processed"] == [key]
    assert Alert.objects.get().acknowledged_by == "olga"
    assert kit.healthy()


def test_a_skipped_undo_lets_the_undoing_go_on():
    toy.BETA.on_compensate = _refuse
    key = kit.undoing(2, "toy")
    run_until_idle()

    operator_verbs.skip(key, by="olga", reason="refunded by hand")
    assert (kit.idle_state(key), kit.states(key, "undo")) == ("Cancelled", ["Processed", "Skipped"])
    assert kit.healthy()


def test_skipping_an_attempt_one_did_not_see_is_refused():
    key = kit.in_error(0)

    with pytest.raises(ChangedMeanwhile):
        operator_verbs.skip(key, by="olga", reason="r", attempt=attempt(key) + 1)


# ------------------------------------------------------------------------------------------------------ plan


def test_a_plan_says_what_runs_what_stays_and_which_keys_the_service_has_seen():
    key = kit.in_error(1, unknown=True)

    plan = previews.plan(key)

    assert [(row.name, row.action, row.key_reused) for row in plan.steps] == [
        ("alpha-step", "keep", True),
        ("beta-step", "run", True),
        ("gamma-step", "run", False),
    ]


def test_a_plan_to_undo_lists_the_undo_steps_last_one_first():
    key = kit.in_error(2)

    rows = [row for row in previews.plan(key, "compensate").steps if row.direction == "undo"]

    assert [(row.name, row.idempotency_key) for row in rows] == [
        ("beta-step", f"{key}:beta-step:undo:1"),
        ("alpha-step", f"{key}:alpha-step:undo:1"),
    ]


@pytest.mark.parametrize("verb", ["resubmit", "skip", "compensate"])
def test_a_plan_made_before_a_change_is_refused_after_it(verb):
    key = kit.in_error(0)
    version = previews.plan(key, verb).version
    operator_verbs.resubmit(key, by="other", reason="faster")
    toy.ALPHA.on_perform = _refuse
    run_until_idle()

    with pytest.raises(ChangedMeanwhile):
        getattr(operator_verbs, verb)(key, by="olga", reason="slower", plan_version=version)

    assert kit.state(key) == "Error"


def test_a_plan_that_still_holds_is_carried_out():
    key = kit.in_error(0)

    assert operator_verbs.resubmit(key, by="olga", reason="r", plan_version=previews.plan(key).version) == "Processing"


def test_an_action_nobody_knows_is_refused():
    key = kit.in_error(0)

    with pytest.raises(Refused):
        previews.plan(key, "explode")


# ----------------------------------------------------------------------------------------------------- audit


VERBS = [operator_verbs.cancel, operator_verbs.compensate, operator_verbs.resubmit, operator_verbs.skip]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("reason", ["", "  \n"])
def test_every_verb_demands_a_reason(verb, reason):
    key = kit.in_error(0)

    with pytest.raises(Refused, check=lambda error: error.code == "reason_required"):
        verb(key, by="olga", reason=reason)
    assert kit.state(key) == "Error"


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_says_so_when_nobody_knows_the_order(verb):
    with pytest.raises(UnknownRun):
        verb("no-such-order", by="olga", reason="r")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_audited_in_the_log_and_in_the_history(verb, olga):
    key = kit.in_error(1)
    before = len(kit.events(key))

    verb(key, by=olga, reason="because I say so")

    entry = LogEntry.objects.get()
    assert (entry.user_id, entry.object_id) == (olga.pk, str(run_of(key).pk))
    assert entry.change_message.endswith(": because I say so")
    news = kit.events(key)[before:]
    assert news
    assert {(event.actor, event.why) for event in news} == {("olga", "because I say so")}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_is_rolled_back_leaves_neither_change_nor_trace(verb, olga):
    key = kit.in_error(1)
    before = len(kit.events(key))

    with transaction.atomic():
        verb(key, by=olga, reason="perhaps")
        transaction.set_rollback(True)

    assert (kit.state(key), len(kit.events(key)), LogEntry.objects.count()) == ("Error", before, 0)


@pytest.mark.parametrize("verb", [operator_verbs.compensate, operator_verbs.cancel])
def test_a_finished_order_can_no_longer_be_undone(verb):
    key = kit.ran("toy")

    with pytest.raises(Refused):
        verb(key, by="olga", reason="too late")

    assert kit.state(key) == "Processed"


def test_an_order_that_is_being_undone_is_not_undone_again():
    key = kit.undoing(1)

    with pytest.raises(Refused):
        operator_verbs.compensate(key, by="olga", reason="again")


def test_an_alert_is_acknowledged_once_and_keeps_the_first_name():
    kit.in_error(0)
    ids = list(Alert.objects.values_list("pk", flat=True))

    assert operator_verbs.acknowledge(ids, by="first") == 1
    assert operator_verbs.acknowledge(ids, by="second") == 0
    assert Alert.objects.get().acknowledged_by == "first"
