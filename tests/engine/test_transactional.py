"""Transactional agents, whose only resource is this database: effect and outcome are one commit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from supervision.agent import Agent, StepRequest, register_agent
from supervision.errors import PermanentFailure, TransientFailure
from supervision.execution import runner
from supervision.models import Alert
from supervision.operations import operator_verbs
from supervision.recovery import failures
from supervision.store import step_verbs
from supervision.testing import expire, make_due, run_until_idle, step, submit_many
from supervision.workflow import Step, Workflow, register
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


_refuse = kit.raising(PermanentFailure("no"))


class Ledger(Agent):
    """An agent that writes one row per effect, in the transaction that records its outcome."""

    name = "ledger"
    transactional = True

    def __init__(self) -> None:
        self.refuse: Any = None
        self.burst: Any = None
        self.meanwhile: Any = None
        self.answer: Any = {"ok": True}

    def perform_many(self, requests: Sequence[StepRequest]) -> list[Any]:
        for request in requests:
            kit.fetch("INSERT INTO engine_ledger VALUES (%s)", [request.idempotency_key])
        if self.meanwhile:
            self.meanwhile()
        if any(request.payload["n"] == self.burst for request in requests):
            raise RuntimeError("an error of its own")
        return [PermanentFailure("no") if request.payload["n"] == self.refuse else self.answer for request in requests]

    def compensate_many(self, requests: Sequence[StepRequest]) -> list[Any]:
        for request in requests:
            kit.fetch("DELETE FROM engine_ledger WHERE key = %s", [request.perform_key])
        return [{} for _ in requests]


LEDGER = register_agent(Ledger())
register(Workflow("booked", (Step("book", agent="ledger"), Step("ship", agent="alpha")), intake=toy.INTAKE))


@pytest.fixture
def ledger(engine):
    kit.fetch("DROP TABLE IF EXISTS engine_ledger; CREATE TABLE engine_ledger (key text)")
    LEDGER.__init__()
    yield lambda: sorted(row[0] for row in kit.fetch("SELECT key FROM engine_ledger"))
    kit.fetch("DROP TABLE engine_ledger")


def test_a_transactional_agents_effect_commits_with_its_outcome(ledger):
    key = kit.ran("booked")

    assert ledger() == [f"{key}:book:do:1"]
    assert kit.state(key) == "Processed"


def test_what_a_transactional_agent_saves_commits_with_its_outcome(ledger, monkeypatch):
    seen = []

    def perform_many(requests):
        [request] = requests
        seen.append(dict(request.checkpoint_data))
        request.checkpoint(attempt=request.attempt)
        if request.attempt == 1:
            return [TransientFailure("busy")]
        if request.attempt == 2:
            raise RuntimeError("an error of its own")
        return [{}]

    monkeypatch.setattr(LEDGER, "perform_many", perform_many)
    key = kit.ran("booked")
    kit.again(2)

    assert kit.state(key) == "Processed"
    assert seen == [{}, {"attempt": 1}, {"attempt": 1}]
    assert step(key, "book").checkpoint == {"attempt": 3}


def test_a_transactional_agents_effect_is_rolled_back_when_its_claim_is_lost(ledger):
    key, place, claims = kit.claimed("booked")
    items = step_verbs.start(place, claims)
    expire(key)

    runner._perform_in_transaction(place, items, go_on=False)

    assert ledger() == []
    assert kit.states(key) == ["Processing", "Pending"]


def test_a_transactional_agents_effect_goes_with_an_outcome_that_cannot_be_recorded(ledger):
    LEDGER.answer = {"too long": "x" * 70_000}
    key = kit.ran("booked")
    before = ledger(), kit.states(key), step(key, "book").effect
    LEDGER.answer = {"ok": True}
    make_due(key)
    run_until_idle()

    assert before == ([], ["Pending", "Pending"], "none")
    assert (ledger(), kit.state(key)) == ([f"{key}:book:do:1"], "Processed")


def test_nobody_can_take_a_claim_while_a_transactional_agent_works_on_it(ledger):
    swept: list[int] = []
    LEDGER.meanwhile = lambda: swept.extend(kit.at_once(lambda: expire_elsewhere()))
    key = kit.ran("booked")

    assert swept == [0]
    assert (kit.state(key), len(ledger())) == ("Processed", 1)


def expire_elsewhere() -> int:
    kit.fetch("SET lock_timeout = '200ms'")
    try:
        return failures.sweep(100).total
    finally:
        kit.fetch("RESET lock_timeout")


def test_a_refused_member_of_a_transactional_cohort_fails_alone(ledger):
    LEDGER.refuse = 1
    keys = submit_many("booked", [{"n": n} for n in range(3)])

    run_until_idle()

    assert [kit.state(key) for key in keys] == ["Processed", "Error", "Processed"]


def test_one_culprit_in_a_transactional_cohort_does_not_fail_the_others(ledger):
    LEDGER.burst = 1
    keys = submit_many("booked", [{"n": n} for n in range(3)])

    run_until_idle()

    assert [kit.state(key) for key in keys] == ["Processed", "Processing", "Processed"]
    row = step(keys[1], "book")
    assert (row.process_state, row.failure_count, row.effect) == ("Pending", 1, "none")
    assert sorted(ledger()) == sorted(f"{keys[n]}:book:do:1" for n in (0, 2))
    assert Alert.objects.count() == 0


def test_a_transactional_effect_is_undone_once(ledger):
    toy.ALPHA.on_perform = _refuse
    key = kit.ran("booked")

    operator_verbs.compensate(key, by="operator", reason="hopeless")
    assert (kit.idle_state(key), ledger()) == ("Cancelled", [])
    assert kit.healthy()
