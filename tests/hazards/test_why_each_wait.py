"""Hazard 12: pause, breaker, limit and session in each kind of wait: "why it waits" names what holds the order up now.

While a step is asleep, the wait holds it up, and nothing else: a pause or a breaker that ends sooner lets nothing happen sooner. Once
the wait is over, what stands in the way of the next call is named.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from supervision import ChildRun, Timer, testing
from supervision.governance import circuit_breaker
from supervision.insight.waiting import why_waiting
from supervision.models import Resource, Run, Slot
from supervision.operations import pauses
from supervision.signals.sending import send_signal
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, flow, paid
from tests.workflows.test_children import child_of, family
from tests.workflows.test_handed_over import hears

__all__ = ["family", "flow"]

HOUR = timedelta(hours=1)
SERVICE = "the-service"
SESSION = {"n": 1, "session_key": "s"}


@pytest.fixture
def wait(sas, flow, family, monkeypatch):
    """Begins a run that waits in this way, and ends its wait: (run, what is said of the wait, how the wait ends)."""
    monkeypatch.setattr(toy.ToyAgent, "signals", ("captured",), raising=False)
    kit.only_agent_with_a_service(monkeypatch, "alpha")

    def begin(kind, **fields):
        steps = {
            "event": (paid(), ALPHA),
            "timer": (Timer("rest", lasts=HOUR), ALPHA),
            "handed over": (ALPHA,),
            "child": (ChildRun("pack", workflow="packing", retry=toy.RETRY), ALPHA),
        }[kind]
        toy.ALPHA.on_perform = hears if kind == "handed over" else None
        family(*steps, child=(paid(), BETA))
        flow(*steps, **({"intake": toy.INTAKE} if fields else {}))
        run = sas.start("waiting", SESSION if fields else None, **fields)
        said = {
            "event": "paid waits for the signal paid until",
            "timer": "rest waits until",
            "handed over": "alpha-step waits for the signal captured until",
            "child": "pack waits for child",
        }[kind]
        return run, said, lambda: ends(kind, run)

    def ends(kind, run):
        if kind == "event":
            run.signal("paid")
        elif kind == "handed over":
            send_signal(run.key, "captured")
        elif kind == "timer":
            sas.advance("61m")
        else:
            child_of(run).signal("paid")

    return begin


def why(run):
    pk = Run.objects.get(key=run.key).pk
    return why_waiting([pk])[pk]


KINDS = pytest.mark.parametrize("kind", ["event", "timer", "handed over", "child"])


@KINDS
@pytest.mark.parametrize("scope", ["order", "all", "workflow", "agent"])
def test_a_pause_is_named_once_the_wait_is_over_and_the_wait_before(sas, wait, kind, scope):
    run, said, ends = wait(kind)
    name = {"order": run.key, "all": "", "workflow": "waiting", "agent": "alpha"}[scope]
    assert why(run).startswith(said)

    pauses.pause(scope, name, by="olga", reason="stocktaking")
    assert why(run).startswith(said)  # the pause keeps nothing from happening yet
    if kind == "child" and scope == "all":
        return  # the child does not go on: the wait stays
    ends()
    sas.run()

    assert "is paused by olga" in why(run)
    pauses.lift(scope, name, by="olga")
    sas.run()
    run.assert_state("Processed")
    sas.assert_healthy()


def closed(**facts):
    Resource.objects.filter(name=SERVICE).update(**facts)
    circuit_breaker.forget()  # what this process has read of it


@KINDS
def test_an_open_breaker_is_named_once_the_wait_is_over_and_the_wait_before(sas, wait, kind):
    run, said, ends = wait(kind)
    soon = "2126-01-01T00:00Z"
    closed(breaker_state="open", opened_at="2026-11-01T00:00Z", retry_at=soon)
    assert why(run).startswith(said)
    ends()
    sas.run()

    assert why(run).startswith(f"{SERVICE} does not answer: its breaker is open")
    run.assert_state("Processing")


@KINDS
def test_a_limit_is_named_once_the_wait_is_over_and_the_wait_before(sas, wait, kind):
    run, said, ends = wait(kind)
    closed(capacity=1)
    Slot.objects.create(
        resource=SERVICE, run_id=999_999, direction="do", position=0, attempt=1, holder="another", until="2126-01-01T00:00Z"
    )
    assert why(run).startswith(said)
    ends()
    sas.run()

    assert why(run) == f"No slot is free at {SERVICE} (1 of 1 calls are under way)."
    Slot.objects.all().delete()
    testing.make_due()
    sas.run()
    run.assert_state("Processed")


@KINDS
def test_an_order_behind_a_waiting_one_of_its_session_says_so_and_the_first_names_its_wait(sas, wait, kind):
    first, said, ends = wait(kind, session_key="s")
    second = sas.start("waiting", SESSION, session_key="s")

    assert why(first).startswith(said)
    assert why(second) == "It waits behind 1 order of its session: they run one after another."
    ends()
    sas.run()
    first.assert_state("Processed")
    assert why(second).startswith(said)  # its own wait has begun
