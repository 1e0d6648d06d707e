"""Which versions the code may drop: none that a run may need which has ended, or moved to another one."""

from __future__ import annotations

from django.core.management import call_command

from supervision import ChildRun, parallel, plan, testing
from supervision.plans import versions
from tests.engine import kit
from tests.workflows.test_moving import PAID, A, B, C, move, version

__all__ = ["version"]


def kept(name, number=1):
    """How many runs keep this version, unfinished and otherwise, and whether it may go."""
    [row] = [row for row in versions.versions() if (row.name, row.version) == (name, number)]
    return row.in_flight, row.needed, row.removable


def test_the_version_of_a_run_that_has_ended_stays_while_a_run_above_it_may_undo_it(sas, version, capsys):
    version(1, A, name="kid")
    version(1, ChildRun("deeper", workflow="kid"), B, name="middle")
    version(1, ChildRun("wrap", workflow="middle"), PAID)
    run = sas.start("moved")
    for name in ("kid", "middle"):
        version(2, C, name=name)

    assert [kept("kid"), kept("middle")] == [(0, 1, False)] * 2
    call_command("workflows")
    assert capsys.readouterr().out.count("no: 1 other orders may need it") == 2
    run.signal("paid")
    sas.run()
    run.assert_state("Processed")
    assert [kept("kid"), kept("middle")] == [(0, 0, True)] * 2


def test_the_version_of_a_run_stays_while_a_call_of_its_hook_is_put_off_also_if_the_run_has_moved(sas, version):
    def fails(_runs):
        raise LookupError("the application's own mistake")

    version(1, A, PAID, on_error=fails, on_processed=fails)
    ended, moved = sas.start("moved"), sas.start("moved")
    ended.signal("paid")
    sas.advance("2h")
    ended.assert_state("Processed")
    moved.assert_state("Error")
    version(2, A, PAID, B)
    assert move(moved) == "Error"

    assert kept("moved") == (0, 2, False)


def test_a_run_two_of_whose_branches_are_at_work_is_one_run(sas, version):
    version(1, *plan(parallel(A, B), C))
    kit.waiting(1, "moved")
    testing.schedule()
    kit.waiting(1, "moved")

    [row] = [row for row in versions.versions() if row.name == "moved"]

    assert (row.in_flight, row.waiting) == (2, 1)
