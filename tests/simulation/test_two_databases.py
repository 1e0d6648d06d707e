"""Two databases hold the state together: each order is in one of them, once, in its customer's order, under one limit for both."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from supervision.agent import registered
from supervision.audit import registry as invariants
from supervision.models import Resource, Run
from supervision.workflow import _newest, _workflows
from tests.engine.conftest import engine, store_database
from tests.simulation import two_databases
from tests.simulation.two_databases import Directory, Order, at
from tests.support import forked
from tests.support.shop import scratch_database, until

__all__ = ["engine", "store_database"]
ROOT = Path(__file__).resolve().parents[2]
CUSTOMERS, ROUNDS = 8, 5
CAPACITY = 1  # calls at once from each database, so two for the service


@pytest.fixture
def directory(tmp_path, engine, monkeypatch):
    for registry in (registered, _workflows, _newest):
        for name in list(registry):
            monkeypatch.setitem(registry, name, registry[name])
    two_databases.declare()
    with scratch_database(tmp_path) as one, scratch_database(tmp_path) as other:
        names = [urlsplit(url).path.removeprefix("/") for url in (one, other)]
        for name in names:
            with at(name):
                Resource.objects.update_or_create(name=two_databases.Clerk.name, defaults={"capacity": CAPACITY})
        yield Directory(names)


def start(database: str, calls: Path) -> subprocess.Popen[bytes]:
    code = "import django; django.setup(); import sys; from tests.simulation import two_databases; two_databases.main(*sys.argv[1:])"
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "sasproject.settings", "LOG_LEVEL": "CRITICAL", "SUPERVISION_COMPLETE_WITHIN": "2"}
    return forked.Popen([sys.executable, "-c", code, database, str(calls)], cwd=ROOT, env=env)


@pytest.mark.nightly
def test_each_order_is_in_one_database_once_while_slices_move_and_processes_die(directory, tmp_path):
    calls = tmp_path / "calls"
    calls.touch()
    customers = [f"customer-{number}" for number in range(CUSTOMERS)]
    workers = {(name, number): start(name, calls) for name in directory.databases for number in range(2)}
    placed: dict[Order, str] = {}
    for turn in range(ROUNDS):
        for customer in customers:
            order = Order(customer, str(turn))
            for _twice in range(2):  # the client sends each order again
                if (database := directory.place(order)) is not None:
                    assert placed.setdefault(order, database) == database
        if turn == 2:
            for number in {directory.slice_of(customer) for customer in customers[: CUSTOMERS // 2]}:
                directory.move(number, next(name for name in directory.databases if name != directory.home[number]))
        victim = directory.databases[turn % 2], 0
        seen = calls.stat().st_size
        until(lambda seen=seen: calls.stat().st_size > seen or settled(directory), what="another call")
        workers[victim].kill()
        workers[victim].wait()
        workers[victim] = start(victim[0], calls)
    until(lambda: directory.place_held() or (not directory.held and settled(directory)), within=120, what="the end of all orders")
    assert {order: directory.place(order) for order in placed} == placed, "an order was sent again, and accepted in another database"
    for worker in workers.values():
        worker.kill()
        worker.wait()

    found = [(key, name) for name in directory.databases for key in keys_in(name)]
    assert sorted(key for key, _ in found) == sorted(f"{customer}-{turn}" for customer in customers for turn in range(ROUNDS))
    assert len({name for _, name in found}) == 2
    moved = [customer for customer in customers if len({name for key, name in found if key.startswith(f"{customer}-")}) == 2]
    assert moved, "no customer has orders in both databases"
    check_calls([tuple(line.split()) for line in calls.read_text().splitlines()], customers)
    for name in directory.databases:
        with at(name):
            assert [str(one) for one in invariants.violations()] == []


def settled(directory: Directory) -> bool:
    """Whether every order that was placed has ended."""
    return not any(directory.busy(name, number) for name in directory.databases for number in set(directory.home))


def keys_in(database: str) -> list[str]:
    with at(database):
        runs = Run.objects.filter(workflow=two_databases.NAME)
        assert set(runs.values_list("process_state", flat=True)) <= {"Processed"}
        return list(runs.values_list("key", flat=True))


def check_calls(lines: list[tuple[str, ...]], customers: list[str]) -> None:
    """One customer's orders ran one after another; no database made more calls at once than its part of the limit."""
    whole = {tuple(call) for sign, *call in lines if sign == "-"}
    running: set[tuple[str, ...]] = set()
    for sign, *call in lines:
        if tuple(call) in whole:  # a killed process has not ended its call
            running = running | {tuple(call)} if sign == "+" else running - {tuple(call)}
            assert max(Counter(database for database, *_ in running).values(), default=0) <= CAPACITY, running
    for customer in customers:
        turns = [int(key.split(":")[0].rpartition("-")[2]) for sign, _, key, _ in lines if sign == "+" and key.startswith(f"{customer}-")]
        assert turns == sorted(turns), (customer, turns)
    done = {key for _, key, _ in whole}
    assert done == {f"{customer}-{turn}:{step}:do:1" for customer in customers for turn in range(ROUNDS) for step in ("begin", "end")}
