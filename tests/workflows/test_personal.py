"""Personal data in what steps return: people see a mask, the archive keeps a mask, and the agents get the data."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from django.urls import reverse

import supervision
from supervision import Workflow, testing
from supervision.errors import DefinitionError
from supervision.models import ArchivedRun, Run, Signal, StepState
from supervision.operations import archive
from supervision.plans import personal, registry
from supervision.workflow import Step
from tests.support import toy
from tests.support.people import operator
from tests.workflows.conftest import BETA, paid

__all__ = ["operator"]

IBAN, NAME = "DE02120300000000202051", "Ada Lovelace"
ACCOUNT = {"account": {"iban": IBAN, "bank": "Bank One"}, "people": [{"name": NAME, "age": 36}]}
SEEN = {"account": {"iban": "[personal]", "bank": "Bank One"}, "people": [{"name": "[personal]", "age": 36}]}
ALPHA = Step("alpha-step", agent="alpha", retry=toy.RETRY, personal=("iban", "name"))


@pytest.fixture
def run(transactional_db, sas, flow):
    """A run that is done: its first step returned personal data, and a signal with personal data was taken."""

    def work(request):
        request.checkpoint(iban=IBAN, draft=1)
        return ACCOUNT

    flow(ALPHA, paid(personal=("iban",)), Step("beta-step", agent="beta", reads=("alpha-step", "paid")))
    toy.ALPHA.on_perform = work
    run = sas.start("waiting")
    run.signal("paid", {"iban": IBAN, "amount": "3"}, key="k")
    sas.run()
    assert run.state == "Processed"
    return run


def archived():
    assert sum(moved.runs for moved in archive.batches(timedelta(0))) == 1
    return ArchivedRun.objects.get()


def test_the_agents_and_the_application_get_the_data_as_it_is(sas, run):
    [request] = toy.BETA.performed
    assert request.results == {"alpha-step": ACCOUNT, "paid": {"came": True, "payload": {"iban": IBAN, "amount": "3"}}}
    assert supervision.result(run.key).results["alpha-step"] == ACCOUNT


def test_a_runs_page_shows_a_mask_in_place_of_personal_data(sas, run, operator):
    page = operator.get(reverse("admin:supervision_run_change", args=[Run.objects.get().pk])).content.decode()
    assert "Bank One" in page
    assert "draft" in page
    assert page.count("[personal]") == 5  # the result has two, the checkpoint, the signal, and the result of the wait one each
    assert IBAN not in page
    assert NAME not in page
    assert StepState.objects.get(name="alpha-step").result == ACCOUNT


def test_the_archive_keeps_a_mask_and_shows_it(sas, run, operator):
    body = archived().body
    assert IBAN not in str(body)
    assert NAME not in str(body)
    steps = {step["name"]: step for step in body["steps"]}
    assert (steps["alpha-step"]["result"], steps["alpha-step"]["checkpoint"]) == (SEEN, {"iban": "[personal]", "draft": 1})
    assert steps["beta-step"]["result"] == {"by": "beta"}
    assert [signal["payload"] for signal in body["signals"]] == [{"iban": "[personal]", "amount": "3"}]
    page = operator.get(reverse("admin:supervision_archivedrun_change", args=[run.key])).content.decode()
    assert "Bank One" in page
    assert IBAN not in page
    assert supervision.result(run.key).results["alpha-step"] == SEEN
    sas.assert_healthy()


def test_a_signal_that_is_sent_again_is_known_although_it_is_masked(sas, run):
    archived()
    assert run.signal("paid", {"iban": IBAN, "amount": "3"}, key="k") == "repeated"
    with pytest.raises(supervision.errors.Refused, match="Another signal was sent under this key"):
        run.signal("paid", {"iban": IBAN, "amount": "4"}, key="k")
    assert not Signal.objects.exists()


def test_runs_of_a_workflow_without_personal_data_are_archived_as_they_are(sas, flow):
    flow(ALPHA, name="other")
    flow(Step("alpha-step", agent="alpha", retry=toy.RETRY), BETA)
    toy.ALPHA.on_perform = lambda request: ACCOUNT
    sas.start("waiting")
    assert {step["name"]: step["result"] for step in archived().body["steps"]}["alpha-step"] == ACCOUNT


def test_no_log_and_no_error_quotes_a_result_or_a_checkpoint_that_cannot_be_stored(sas, flow, caplog):
    flow(ALPHA)
    caplog.set_level(logging.DEBUG)
    odd, large = {"iban": IBAN, "odd": "\x00"}, {"iban": IBAN * 10_000}
    answers = {"unfit": lambda request: odd, "large": lambda request: large, "saved": lambda request: request.checkpoint(**odd)}
    for name, answer in answers.items():
        toy.ALPHA.on_perform = answer
        answers[name] = sas.start("waiting").key

    told = {name: testing.step(key, "alpha-step").last_error for name, key in answers.items()}
    assert "returned a dict with a NUL character" in told["unfit"]
    assert "could not be recorded" in told["large"]
    assert told["saved"]
    assert IBAN not in "".join(told.values()) + caplog.text
    assert IBAN not in str(sas.performed)


def test_a_request_leaves_the_runs_data_out_of_its_repr(sas, flow):
    flow(ALPHA)
    sas.start("waiting", {"iban": IBAN})
    [request] = toy.ALPHA.performed
    assert request.payload == {"iban": IBAN}
    assert IBAN not in repr(request)


@pytest.mark.parametrize("names", ["iban", ["iban"], (1,), ("",)])
def test_names_that_are_no_tuple_of_fields_are_refused(names):
    with pytest.raises(DefinitionError, match="step 'alpha-step': personal must be a tuple of names of fields, got "):
        Workflow("odd", (Step("alpha-step", agent="alpha", personal=names),))


def test_marking_a_field_needs_no_new_version():
    marked, plain = (Workflow("w", (Step("alpha-step", agent="alpha", personal=names),)) for names in (("iban",), ()))
    assert registry.definition_of(marked) == registry.definition_of(plain)


@pytest.mark.parametrize(
    ("kept", "new", "answer"),
    [
        ({"a": "[personal]", "b": [1]}, {"a": {"deep": 1}, "b": [1]}, True),
        ({"a": "[personal]"}, {"a": 1, "b": 2}, False),
        ({"a": [1, "[personal]"]}, {"a": [1, 2]}, True),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": 1}, {"a": 2}, False),
    ],
)
def test_a_masked_value_may_be_any_value_there_and_the_rest_has_to_be_the_same(kept, new, answer):
    assert personal.same(kept, new) is answer
