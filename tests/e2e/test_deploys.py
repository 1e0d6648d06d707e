"""Deployments that change the workflow: the new release refuses to start, or both run together and all orders end right."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.releases import EDITS, release
from sasproject.roles import procfile
from tests.support import forked
from tests.support.shop import Shop, open_shop, until

ROLES = ("agents", "scheduler", "supervisor", "web")
CHANGES = [edit for edit in EDITS if edit != "budget"]
FIRST_DIFFERENCE = {
    "added": "step 5 (thank-customer) is not in the registered plan",
    "removed": "step 4 (notify-customer) of the registered plan is missing in this code",
    "swapped": "step 2 is book-shipment in this code and charge-payment in the registered plan",
    "renamed": "agent of step 4 (notify-customer) is post in this code and email in the registered plan",
}


def refusals(shop: Shop, tree: Path, *roles: str) -> dict[str, tuple[int, list[str]]]:
    """Start these roles of a release that refuses to start; returns the exit code and the line with the reason."""
    environ = {**shop.env, "PORT": shop.url_of("web.new").rpartition(":")[2]}
    ended = {}
    for role in roles:
        done = forked.run(["/bin/sh", "-c", procfile(tree)[role]], env={**environ, "SAS_ROLE": role}, cwd=tree)
        ended[role] = (done.returncode, [line for line in done.stderr.splitlines() if line.startswith("refused: ")])
    return ended


def manage(shop: Shop, tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run([sys.executable, "manage.py", *arguments], env=shop.env, cwd=tree)


def refused(tmp_path: Path, edits: list[str]) -> None:
    with open_shop("pgmq://", tmp_path, "scheduler", "agents", "supervisor") as shop:
        for edit in edits:
            tree = release(tmp_path, edit, under_its_version=True)
            line = f"workflow fulfil-order version 1: {FIRST_DIFFERENCE[edit]}; give the new definition a new version"

            assert refusals(shop, tree, *ROLES) == {role: (1, [f"refused: {line}"]) for role in ROLES}

            checked = manage(shop, tree, "check")
            assert (checked.returncode, line[1:] in checked.stderr) == (1, True)
            assert manage(shop, tree, "schedule", "--once").stderr == f"CommandError: refused: {line}\n"
            assert all(process.poll() is None for process in shop.processes.values())  # the old release keeps running


def place(shop: Shop, count: int) -> None:
    """Accept orders through the database only; this test runs no web process."""
    shop.manage("place_orders", "--count", str(count), "--seed", "7")


def end(shop: Shop, name: str) -> None:
    process = shop.processes[name]
    process.send_signal(signal.SIGTERM)
    process.wait(40)


def ended(shop: Shop) -> bool:
    waiting = shop.rows("SELECT count(*) FROM supervision_submission WHERE consumed_at IS NULL")
    unfinished = shop.rows("SELECT count(*) FROM supervision_run WHERE finished_at IS NULL")
    return waiting == unfinished == [(0,)]


def rolled_out(tmp_path: Path, edit: str, *, first: str, under_its_version: bool = False) -> None:
    """Roll out: old processes, both releases, then only the new one. Orders come all the time and some are half done."""
    names = ("scheduler", "agents", "supervisor")
    with open_shop("pgmq://", tmp_path, *names, "beat", SUPERVISION_SWEEP_SECONDS="1") as shop:
        tree = release(tmp_path, edit, under_its_version=under_its_version)
        shop.manage("pause", "--agent", "payment", "--reason", "orders stand in the middle")
        place(shop, 5)
        until(lambda: shop.rows("SELECT count(*) FROM supervision_stepstate WHERE process_state = 'Processed'")[0][0] >= 5, within=60)

        for role in (first, *(name for name in names if name != first)):
            shop.trees[f"{role}.new"] = tree
            shop.start(f"{role}.new")
            place(shop, 5)
            if role == "scheduler":  # now runs of both versions meet agents and supervisors of both releases
                shop.manage("resume", "--agent", "payment", "--reason", "go on")
            if role == first:
                end(shop, role)
        for role in names:
            if role != first:
                end(shop, role)
        place(shop, 5)

        until(lambda: ended(shop), within=400, what="every order to end")
        assert shop.rows("SELECT process_state, count(*) FROM supervision_run GROUP BY 1") == [("Processed", 25)]
        keys = sorted(key for (key,) in shop.rows("SELECT key FROM supervision_run"))
        for service, operation in (("payment", "confirm"), ("carrier", "create")):
            assert sorted(entry["order"] for entry in shop.ledger(service) if entry["operation"] == operation) == keys
        assert shop.rows("SELECT count(*) FROM supervision_stepstate WHERE failure_count > 0") == [(0,)]
        assert shop.rows("SELECT count(*) FROM supervision_deadletter") == [(0,)]
        newest = 1 if under_its_version else 3
        found = dict(shop.rows("SELECT version, count(*) FROM supervision_run GROUP BY 1"))
        assert found.get(newest, 0) >= 5
        plans = shop.rows(
            "SELECT r.id FROM supervision_run r JOIN supervision_workflowversion w ON w.name = r.workflow AND w.version = r.version"
            " WHERE (SELECT array_agg(s.name || s.agent ORDER BY s.position) FROM supervision_stepstate s"
            "         WHERE s.run_id = r.id AND s.direction = 'do' AND s.process_state = 'Processed')"
            "    <> (SELECT array_agg((d->>'name') || (d->>'agent') ORDER BY n)"
            "          FROM jsonb_array_elements(w.definition->'steps') WITH ORDINALITY d(d, n))"
        )
        assert plans == []
        assert "all hold" in shop.manage("audit")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_two_steps_swapped_under_one_version_start_no_role(tmp_path: Path) -> None:
    refused(tmp_path, ["swapped"])


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_two_steps_swapped_under_a_new_version_run_beside_the_old_ones(tmp_path: Path) -> None:
    rolled_out(tmp_path, "swapped", first="agents")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_no_change_under_one_version_starts(tmp_path: Path) -> None:
    refused(tmp_path, CHANGES)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", ["agents", "scheduler", "supervisor"])
@pytest.mark.parametrize("edit", CHANGES)
def test_every_change_under_a_new_version_can_be_rolled_out_in_any_order(tmp_path: Path, edit: str, first: str) -> None:
    rolled_out(tmp_path, edit, first=first)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", ["agents", "supervisor"])
def test_longer_budgets_can_be_rolled_out_in_any_order_under_the_same_version(tmp_path: Path, first: str) -> None:
    rolled_out(tmp_path, "budget", first=first, under_its_version=True)
