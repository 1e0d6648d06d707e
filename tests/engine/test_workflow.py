"""Workflow definitions are checked at import time, with the error named; the state tables are complete."""

from __future__ import annotations

from datetime import timedelta

import pytest

from supervision import (
    Agent,
    OnPermanent,
    RetryPolicy,
    Step,
    Timer,
    WaitForSignal,
    Workflow,
    register,
    register_agent,
    workflow,
)
from supervision.agent import agents, get_agent
from supervision.errors import DefinitionError, UnreadableSubmission
from supervision.models import labels
from supervision.states import (
    FINAL_RUN_STATES,
    FINAL_STEP_STATES,
    RUN_MOVES,
    STEP_MOVES,
    Direction,
    Effect,
    ProcessState,
    RunState,
)
from supervision.workflow import newest, version_of, workflows
from tests.support import toy


def a_step(name: str = "alpha-step", **fields: object) -> Step:
    return Step(name, agent="alpha", **fields)  # type: ignore[arg-type]


@pytest.fixture
def forgetful():
    """Remove the definitions that the test registers."""
    before = dict(workflow._workflows), dict(workflow._newest)
    yield
    for registry, kept in zip((workflow._workflows, workflow._newest), before, strict=True):
        registry.clear()
        registry.update(kept)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("", (a_step(),)), "needs a name"),
        (("w", ()), "has no steps"),
        (("w", (a_step(),), toy.INTAKE, 0), "version must be at least 1"),
        (("w", (a_step(),), toy.INTAKE, 20_260_401), "version must be at least 1 and at most 32,767, got 20260401"),
        (("w", (a_step(),), toy.INTAKE, "2"), "version must be at least 1 and at most 32,767, got '2'"),
        (("w", (a_step(""),)), "a step has no name"),
        (("w", (a_step(), a_step())), "two steps are named 'alpha-step'"),
        (("w", (a_step(complete_within=timedelta(0)),)), "must be positive"),
        (("w", (a_step(complete_within=timedelta(days=2)),)), "longer than its whole workflow"),
        (("w", (a_step(complete_within=10),)), r"step 'alpha-step': complete_within must be a timedelta, .*, got 10"),
        (("w", (a_step(longest=10),)), r"step 'alpha-step': longest must be a timedelta, .*, got 10"),
        (("w", (a_step(retry=3),)), "step 'alpha-step': retry must be a RetryPolicy, got 3"),
        (("w", (a_step(when=True),)), "step 'alpha-step': when must be a function of payload and results, got True"),
        (("w", (a_step(amendable="name"),)), "step 'alpha-step': amendable must be a tuple of names of fields, got 'name'"),
        (("w", (a_step(),), toy.INTAKE, 1, 60), "workflow 'w': complete_within must be a timedelta, .*, got 60"),
    ],
)
def test_a_wrong_workflow_is_refused_with_its_fault_named(arguments, words):
    name, steps, *rest = arguments

    with pytest.raises(DefinitionError, match=words):
        Workflow(name, steps, *(rest or [toy.INTAKE]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: WaitForSignal("paid", within=5), r"step 'paid': within must be a timedelta, for example timedelta\(seconds=30\), got 5"),
        (lambda: WaitForSignal("paid", on_timeout="compensat"), "step 'paid': on_timeout must be one of .*, did you mean 'compensate'"),
        (lambda: WaitForSignal("paid", remind_after=(5,), remind=print), "step 'paid': remind_after must be a timedelta, .*, got 5"),
        (lambda: Timer("rest", lasts=5), "step 'rest': lasts must be a timedelta"),
        (lambda: RetryPolicy(on_permanent="undo"), "on_permanent must be one of 'error', 'compensate', 'skip', got 'undo'"),
        (lambda: RetryPolicy(on_exhausted="skipp"), "on_exhausted must be one of .*, got 'skipp', did you mean 'skip'"),
        (lambda: RetryPolicy(first_delay=1), "first_delay must be a timedelta"),
    ],
)
def test_a_wrong_wait_or_policy_is_refused_with_its_fault_named(make, words):
    with pytest.raises(DefinitionError, match=words):
        make()


@pytest.mark.parametrize("names", [("name",), ["name"], {"name"}])
def test_the_fields_that_may_be_corrected_may_be_given_as_a_list_or_a_set(names):
    assert "name" in Workflow("w", (a_step(amendable=names),), toy.INTAKE).step(0).amendable


def test_a_policy_may_be_named_by_its_word():
    assert RetryPolicy(on_permanent="compensate").on_permanent is OnPermanent.COMPENSATE  # type: ignore[arg-type]


def test_a_workflow_whose_agent_is_unknown_is_refused_naming_workflow_and_step(forgetful):
    lonely = Workflow("lonely", (Step("first", agent="no-such-agent"),), intake=toy.INTAKE)

    with pytest.raises(DefinitionError, match="'lonely', step 'first': no agent named 'no-such-agent'"):
        register(lonely)


def test_another_definition_under_a_taken_name_and_version_is_refused():
    other = Workflow("toy", (a_step("only"),), intake=toy.INTAKE)

    with pytest.raises(DefinitionError, match="registered twice"):
        register(other)

    assert version_of("toy", 1) is toy.TOY


def test_the_same_definition_may_be_registered_again():
    assert register(toy.TOY) is toy.TOY


def test_new_submissions_run_the_newest_version_whatever_the_order_of_registration(forgetful):
    second = register(Workflow("grown", (a_step("new"),), intake=toy.INTAKE, version=2))
    first = register(Workflow("grown", (a_step("old"),), intake=toy.INTAKE, version=1))

    assert newest("grown") is second
    assert version_of("grown", 1) is first


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
def test_a_version_by_choice_is_never_the_one_that_new_submissions_run(forgetful, order):
    for version in order:
        register(Workflow("grown", (a_step("only"),), intake=toy.INTAKE, version=version, by_choice=version == 3))

    assert newest("grown").version == 2
    assert version_of("grown", 3).by_choice


def test_an_unknown_workflow_is_answered_with_what_was_probably_meant():
    with pytest.raises(UnreadableSubmission, match="did you mean 'toy-plain'"):
        newest("toy-plane")


def test_a_version_the_code_has_dropped_is_named():
    with pytest.raises(DefinitionError, match="'toy' version 9 is not registered in the running code"):
        version_of("toy", 9)


def test_workflows_and_agents_are_listed_in_order():
    assert [w.name for w in workflows()] == sorted(w.name for w in workflows())
    assert [agent.name for agent in agents()] == sorted(agent.name for agent in agents())
    assert get_agent("alpha") is toy.ALPHA


class Nameless(Agent):
    """An agent without a name."""


class Idle(Agent):
    """An agent without perform."""

    name = "idle"


class Careless(Agent):
    """An undoable agent without compensate."""

    name = "careless"

    def perform(self, request):
        return {}


class HalfTransactional(Careless):
    """A transactional agent without the cohort verbs."""

    name = "half"
    transactional = True


class NeverUndoes(HalfTransactional):
    """A transactional and undoable agent without compensate_many."""

    name = "never-undoes"

    def perform_many(self, requests):
        return []


class Impostor(Careless):
    """An agent with another agent's name."""

    name = "alpha"
    undoable = False


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (Nameless, "needs a name"),
        (Idle, "'idle' needs perform"),
        (Careless, "'careless' is undoable and needs compensate"),
        (HalfTransactional, "needs perform_many"),
        (NeverUndoes, "needs compensate_many"),
        (Impostor, "two agents are named 'alpha'"),
    ],
)
def test_a_wrong_agent_is_refused_with_its_fault_named(agent, words):
    with pytest.raises(DefinitionError, match=words):
        register_agent(agent())

    assert type(get_agent("alpha")) is toy.ToyAgent


def test_an_agents_queue_carries_its_name():
    assert toy.ALPHA.queue == "agent.alpha"


@pytest.mark.parametrize(("moves", "states"), [(RUN_MOVES, RunState), (STEP_MOVES, ProcessState)], ids=["run", "step"])
def test_every_state_is_reached_from_the_beginning(moves, states):
    reached = {None}

    while new := {move.target for move in moves if move.source in reached} - reached:
        reached |= new

    assert reached - {None} == set(states)


def test_only_a_child_run_leaves_a_final_run_state_when_its_parent_is_undone():
    moves = [move for move in RUN_MOVES if move.source in FINAL_RUN_STATES]

    assert {(move.source, move.target) for move in moves} == {("Processed", "Compensating"), ("Processed", "Cancelled")}
    assert "whose parent is undone" in moves[0].why


def test_nothing_leaves_a_final_step_state():
    moves = [move for move in STEP_MOVES if move.source in FINAL_STEP_STATES]

    assert {(move.source, move.target) for move in moves} == {("Processed", "Pending"), ("Skipped", "Pending")}


def test_every_unfinished_run_state_leads_to_both_ends():
    for start in set(RunState) - FINAL_RUN_STATES - {RunState.COMPENSATING}:
        reached = {start}
        while new := {move.target for move in RUN_MOVES if move.source in reached} - reached:
            reached |= new

        assert reached >= FINAL_RUN_STATES, start


@pytest.mark.parametrize("moves", [RUN_MOVES, STEP_MOVES], ids=["run", "step"])
def test_a_transition_is_listed_once_and_says_who_and_why(moves):
    assert len({(move.source, move.target) for move in moves}) == len(moves)
    assert all(move.mover and move.why for move in moves)


@pytest.mark.parametrize(
    ("labels", "enum"),
    [
        (labels.RUN_LABELS, RunState),
        (labels.STEP_LABELS, ProcessState),
        (labels.DIRECTION_LABELS, Direction),
        (labels.EFFECT_LABELS, Effect),
    ],
)
def test_every_state_has_a_label(labels, enum):
    assert set(labels) == set(enum)
    assert all(str(label) for label in labels.values())
