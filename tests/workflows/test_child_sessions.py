"""Child runs and sessions: a child does not wait for a run above it that waits for it. Else it keeps to its session as every run."""

from __future__ import annotations

import json

import pytest

from supervision import ChildRun, Intake, NewRun
from supervision.insight.waiting import why_waiting
from supervision.models import Run
from supervision.workflow import started_by_steps
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, paid
from tests.workflows.test_children import GAMMA, PACK, child_of, family

__all__ = ["family"]


class InSession(Intake):
    """Runs of the session that the payload names, if it names one."""

    def read(self, body):
        payload = json.loads(body)
        return NewRun(payload=payload, session_key=payload.get("session_key"))


@pytest.fixture
def register(family, flow):
    """Registers `waiting` of these steps, and `packing`, both with sessions."""

    def both(*steps, child=(BETA,)):
        family(*steps, child=child, intake=InSession())
        flow(*steps, intake=InSession())

    return both


def test_a_child_of_its_parents_session_does_not_wait_for_its_parent(sas, register):
    register(ALPHA, PACK, GAMMA)
    first, later = (sas.submit("waiting", {"session_key": "ada"}) for _ in range(2))

    sas.run()

    first.assert_state("Processed")
    later.assert_state("Processed")
    assert [name for name in sas.performed if name != "pack"] == ["alpha-step", "beta-step", "gamma-step"] * 2
    sas.assert_healthy()


def test_neither_does_a_child_of_a_child(sas, register, flow):
    register(ALPHA, PACK, child=(ChildRun("wrap", workflow="wrapping", retry=toy.RETRY),))
    flow(BETA, name="wrapping", intake=InSession())
    started_by_steps.add("wrapping")

    run = sas.start("waiting", {"session_key": "ada"}, client="user:7")

    started_by_steps.discard("wrapping")
    run.assert_state("Processed")
    assert Run.objects.get(key=child_of(run).key).session_key == "ada"  # that of a client is another session
    sas.assert_healthy()


def test_a_child_that_is_not_awaited_waits_for_its_parent_in_their_session(sas, register):
    register(ALPHA, ChildRun("pack", workflow="packing", waits=False), paid())
    run = sas.start("waiting", {"session_key": "ada"})
    assert (run.state, child_of(run).steps) == ("Processing", {"beta-step": "Pending"})

    run.signal("paid")
    sas.run()

    run.assert_state("Processed")
    child_of(run).assert_state("Processed")
    sas.assert_healthy()


def test_children_of_one_session_run_one_after_another(sas, register):
    register(ChildRun("pack", workflow="packing", payload=lambda _facts: {"session_key": "ada"}, retry=toy.RETRY), child=(paid(), BETA))
    first, second = (sas.submit("waiting") for _ in range(2))
    sas.run()
    assert {child_of(first).state, child_of(second).state} == {"Processing", "Pending"}  # the two may be started in either order

    child_of(first).signal("paid")
    child_of(second).signal("paid")
    sas.run()

    first.assert_state("Processed")
    second.assert_state("Processed")
    sas.assert_healthy()


def test_children_of_one_clients_orders_wait_for_no_order_of_another_client(sas, register):
    register(ChildRun("pack", workflow="packing", payload=lambda _facts: {"session_key": "ada"}, retry=toy.RETRY), child=(paid(), BETA))
    nameless = sas.submit("waiting", {"session_key": "ada"})
    ofs = [sas.submit("waiting", client=client) for client in ("user:1", "user:2", "user:1")]
    sas.run()

    assert (child_of(nameless).state, child_of(ofs[1]).state) == ("Processing", "Processing")
    assert {child_of(ofs[0]).state, child_of(ofs[2]).state} == {"Processing", "Pending"}  # the two may be started in either order
    second = Run.objects.get(session_client="child runs of user:1", process_state="Pending")
    assert why_waiting([second.pk])[second.pk].startswith("It waits behind 1 order of its session")

    for run in (nameless, *ofs):
        child_of(run).signal("paid")
    sas.run()
    for run in (nameless, *ofs):
        run.assert_state("Processed")
    sas.assert_healthy()
