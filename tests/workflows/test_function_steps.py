"""Steps that are functions (`@step`), and `submit`."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from django.db import transaction

import supervision
from supervision import PermanentFailure, RetryPolicy, Workflow, agent, parallel, plan, step, workflow
from supervision.errors import DefinitionError, Refused, UnreadableSubmission
from supervision.models import Submission
from supervision.plans import registry
from supervision.retry import OnPermanent


@pytest.fixture(autouse=True)
def registries(monkeypatch):
    monkeypatch.setattr(agent, "registered", dict(agent.registered))
    for name in ("_workflows", "_newest"):
        monkeypatch.setattr(workflow, name, dict(getattr(workflow, name)))
    monkeypatch.setattr("supervision.plans.functions.registered", agent.registered)


def a_booking(sas, *, refuse=False):
    told: list[str] = []

    @step(complete_within=timedelta(seconds=7))
    def book_seat(request):
        told.append(request.idempotency_key)
        return {"seat": f"12{request.payload['row']}"}

    @book_seat.undo
    def release_seat(request):
        told.append(f"released {request.performed['seat']} of {request.perform_key}")

    @step(reads=("book-seat",), retry=RetryPolicy(on_permanent=OnPermanent.COMPENSATE))
    def send_ticket(request):
        if refuse:
            raise PermanentFailure("no such address")
        told.append(request.results["book-seat"]["seat"])

    supervision.register(Workflow("ticket", (book_seat, send_ticket)))
    return told, book_seat, release_seat, send_ticket


def test_functions_are_performed_as_steps_and_give_their_results(sas):
    told, *_ = a_booking(sas)

    run = sas.start("ticket", {"row": "C"})

    run.assert_state("Processed")
    assert told == [f"{run.key}:book-seat:do:1", "12C"]
    assert run.results == {"book-seat": {"seat": "12C"}, "send-ticket": {}}


def test_the_undo_of_a_function_is_called_and_a_step_without_one_is_left_alone(sas):
    told, *_ = a_booking(sas, refuse=True)

    run = sas.start("ticket", {"row": "C"})

    run.assert_state("Cancelled")
    assert told[1:] == [f"released 12C of {run.key}:book-seat:do:1"]


def test_the_fingerprint_says_which_step_can_be_undone(sas):
    a_booking(sas)

    steps = registry.definition_of(workflow.newest("ticket"))["steps"]

    assert [(each["name"], each["agent"], each["undoable"]) for each in steps] == [
        ("book-seat", "book-seat", True),
        ("send-ticket", "send-ticket", False),
    ]


def test_a_step_keeps_its_options_and_is_called_like_its_function(sas):
    _told, book_seat, release_seat, send_ticket = a_booking(sas)

    class Request:
        payload, idempotency_key = {"row": "F"}, "k"

    assert (book_seat.complete_within, send_ticket.reads) == (timedelta(seconds=7), ("book-seat",))
    assert book_seat(Request()) == {"seat": "12F"}
    assert release_seat.__name__ == "release_seat"


def test_functions_run_side_by_side_in_a_plan(sas):
    @step
    def left(request):
        return {"side": "left"}

    @left.undo
    def right_again(request):
        """Undoes it."""

    @step
    def right(request):
        return {"side": "right"}

    @step(reads=("left", "right"))
    def both(request):
        return {"sides": sorted(each["side"] for each in request.results.values())}

    supervision.register(Workflow("sides", plan(parallel(left, right), both)))

    assert sas.start("sides").results["both"] == {"sides": ["left", "right"]}


def test_two_functions_of_one_name_and_two_undos_are_refused_with_their_places():
    @step(name="charge")
    def first(request):
        """One."""

    with pytest.raises(DefinitionError, match=r"two functions are the step 'charge': .*first \(line \d+\) and .*second \(line \d+\)"):

        @step(name="charge")
        def second(request):
            """Another one."""

    first.undo(lambda request: None)
    with pytest.raises(DefinitionError, match=r"step 'charge' has two undos: .*lambda.* and .*refund \(line \d+\)"):

        @first.undo
        def refund(request):
            """Another one."""

    with pytest.raises(DefinitionError, match=r"@step decorates a function, got 'charge'; @step\(name=...\)"):
        step("charge")
    with pytest.raises(DefinitionError, match="FunctionAgent needs a name of letters, digits"):
        step(lambda request: None)


def test_functions_that_cannot_be_a_step_are_refused_with_what_to_write():
    async def wait_for(request):
        """A coroutine."""

    def alone():
        """Takes no request."""

    for function, what in ((wait_for, "coroutine function.*write `def`"), (alone, "'alone' has to take one argument, the request")):
        with pytest.raises(DefinitionError, match=what):
            step(function)
        with pytest.raises(DefinitionError, match="the undo of kept"):
            step(name="kept")(lambda request: None).undo(function)
        agent.registered.clear()
    with pytest.raises(DefinitionError, match="@step takes no 'completes_within', did you mean 'complete_within'"):
        step(completes_within=3)(lambda request: None)


def test_a_workflow_of_something_else_than_steps_is_refused():
    @step
    def charge(request):
        """A step."""

    for steps in ((charge, alone_function), charge, (alone_function)):
        with pytest.raises(DefinitionError, match=r"steps must be a tuple of steps \(@step makes one\), got "):
            Workflow("wrong", steps)
    with pytest.raises(DefinitionError, match="reads 'charg', which is no earlier step, did you mean 'charge'"):
        Workflow("wrong", (charge, supervision.Step("next", agent="charge", reads=("charg",))))


def alone_function(request):
    """Not decorated."""


def test_a_module_that_is_loaded_again_registers_its_functions_again():
    def loaded():
        @step
        def charge(request):
            return {}

        return charge

    assert loaded() == loaded()


def test_a_submission_is_accepted_with_the_callers_transaction(sas):
    a_booking(sas)
    with transaction.atomic():
        lost = supervision.submit("ticket", {"row": "A"})
        transaction.set_rollback(True)
    with transaction.atomic():
        kept = supervision.submit("ticket", {"row": "B"})

    sas.run()

    assert not Submission.objects.filter(public_id=lost).exists()
    found = supervision.result(kept, timeout=0)
    assert (found.state, found.results["book-seat"]) == ("Processed", {"seat": "12B"})
    assert asyncio.run(supervision.astate(kept)) == "Processed"


def test_a_key_names_one_run(sas):
    a_booking(sas)
    first = supervision.submit("ticket", {"row": "A", "name": "Ada"}, key="t-1")

    assert supervision.submit("ticket", {"name": "Ada", "row": "A"}, key="t-1") == first
    assert supervision.submit("ticket", {"row": "A", "name": "Ada"}, key="t-1", client="other") != first
    with transaction.atomic():
        assert supervision.submit("ticket", {"name": "Ada", "row": "A"}, key="t-1") == first
    with pytest.raises(Refused, match="under the key t-1") as refused:
        supervision.submit("ticket", {"row": "B", "name": "Ada"}, key="t-1")
    assert refused.value.code == "key_reused"
    assert supervision.submit("ticket", {"row": "A"}) != supervision.submit("ticket", {"row": "A"})


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (["A"], "expected a dict, got list"),
        ({"row": object()}, "not JSON serializable"),
        ({"row": float("nan")}, "not JSON compliant"),
        ({"row": "a\0"}, "cannot be stored"),
        ({"row": "\ud800"}, "cannot be stored"),
    ],
)
def test_a_payload_that_cannot_be_kept_is_refused(sas, payload, what):
    a_booking(sas)
    with pytest.raises(Refused, match=what):
        supervision.submit("ticket", payload)
    assert not Submission.objects.exists()


def test_a_wrong_key_and_an_unknown_workflow_are_refused(sas):
    a_booking(sas)
    for key in ("", "k" * 256, "a\0"):
        with pytest.raises(Refused, match="1 to 255 characters"):
            supervision.submit("ticket", key=key)
    with pytest.raises(UnreadableSubmission, match="no workflow named 'tickets' is registered, did you mean 'ticket'"):
        supervision.submit("tickets")
    assert not Submission.objects.exists()
