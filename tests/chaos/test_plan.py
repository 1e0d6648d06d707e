"""A run's faults and orders depend on its seed only."""

from __future__ import annotations

from itertools import pairwise

from chaos.plan import PROCESSES, Pace, plan
from chaos.traffic import wish

HARMS = ("purge", "cut_connections")


def test_the_same_seed_gives_the_same_faults():
    pace = Pace(length=600, complete_by=5)

    assert plan(7, pace, HARMS) == plan(7, pace, HARMS)
    assert plan(7, pace, HARMS) != plan(8, pace, HARMS)


def test_another_broker_changes_the_brokers_faults_only():
    pace = Pace(length=600, complete_by=5)

    one, other = ([fault for fault in plan(7, pace, harms) if not fault.kind.startswith("broker")] for harms in (HARMS, ("purge",)))

    assert one == other


def test_a_long_run_has_every_kind_of_fault_and_restarts_the_database_every_five_to_forty_seconds():
    faults = plan(1, Pace(length=1800, complete_by=5), HARMS)

    assert {fault.kind for fault in faults} >= {
        *("kill", "kill-workers", "kill-everything", "kill-role", "freeze", "postgres-restart", "kill-backends", "service", "replay"),
        *("poison", "forget"),
        *("broker-purge", "broker-cut_connections", "backlog"),
    }
    restarts = [fault.at for fault in faults if fault.kind == "postgres-restart"]
    assert all(5 <= later - earlier <= 40 for earlier, later in pairwise(restarts))
    assert {target for fault in faults if fault.kind == "kill" for target in fault.targets} == {*PROCESSES, "simulators"}


def test_the_same_seed_gives_the_same_orders():
    wishes = [wish(3, number, 2.0) for number in range(500)]

    assert wishes == [wish(3, number, 2.0) for number in range(500)]
    traits = {trait for one in wishes for trait in one.traits}
    assert traits == {"malformed", "scarce", "declined", "nowhere", "twice", "other-body", "cancel", "poison"}
