"""Workflow definitions are checked at import time, and the error names what is wrong."""

from __future__ import annotations

from datetime import timedelta

import pytest

from supervision import Agent, Step, Workflow, register, register_agent, workflow
from supervision.agent import agents, get_agent
from supervision.errors import DefinitionError, UnreadableSubmission
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
        (("w", (a_step(""),)), "a step has no name"),
        (("w", (a_step(), a_step())), "two steps are named 'alpha-step'"),
        (("w", (a_step(complete_within=timedelta(0)),)), "must be positive"),
        (("w", (a_step(complete_within=timedelta(days=2)),)), "longer than its whole workflow"),
    ],
)
def test_a_wrong_workflow_is_refused_with_its_fault_named(arguments, words):
    name, steps, *rest = arguments

    with pytest.raises(DefinitionError, match=words):
        Workflow(name, steps, *(rest or [toy.INTAKE]))


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
