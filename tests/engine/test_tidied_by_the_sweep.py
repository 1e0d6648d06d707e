"""The leader's sweep deletes what is over; what cannot be deleted, or another part that fails, keeps it from nothing else."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import DatabaseError
from django.utils import timezone

from supervision import tasks
from supervision.ledger import exchanges
from supervision.models import Closure, Exchange, Heartbeat, Job, Run
from supervision.recovery import upkeep
from supervision.recovery.supervisor import SweepReport
from tests.engine import kit

LONG_AGO = timezone.now() - timedelta(days=400)


@pytest.fixture
def rounds(engine: None, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """This process leads, and the hour is over. The rounds of canaries that were sent."""
    sent: list[int] = []
    monkeypatch.setattr(tasks.leader_lease, "lead", lambda role: object())
    monkeypatch.setattr(tasks.delivery_worker, "wake", lambda: None)  # it would start a thread
    monkeypatch.setattr(tasks.consumption_check, "send_round", lambda: sent.append(1))
    monkeypatch.setattr(upkeep, "_tidied", float("-inf"))
    return sent


def written() -> dict[str, Any]:
    """One row of each kind that is over, and one that is not."""
    [run] = kit.waiting(1, "toy-plain")
    step: dict[str, Any] = {"direction": "do", "position": 0, "attempt": 1, "service": "x", "call": "GET /", "asked": "", "answered": ""}
    for name, at in (("old", LONG_AGO), ("new", timezone.now())):
        Heartbeat.objects.create(incarnation=name, role="agents", seen_at=at)
        Closure.objects.create(resource=name, began_at=LONG_AGO, ended_at=at)
        job = Job.objects.create(verb="skip", reason=name, started_by="olga", total=0, state="done", finished_at=at)
        Job.objects.filter(pk=job.pk).update(worked_at=at)
        call = Exchange.objects.create(run_id=Run.objects.get(key=run).pk, seconds=1, **{**step, "service": name})
        Exchange.objects.filter(pk=call.pk).update(at=at)
    return left()


def left() -> dict[str, Any]:
    return {
        "heartbeats": set(Heartbeat.objects.filter(incarnation__in=("old", "new")).values_list("incarnation", flat=True)),
        "closures": set(Closure.objects.filter(resource__in=("old", "new")).values_list("resource", flat=True)),
        "jobs": set(Job.objects.values_list("reason", flat=True)),
        "exchanges": set(Exchange.objects.values_list("service", flat=True)),
    }


def test_the_leaders_sweep_deletes_heartbeats_closures_jobs_and_exchanges_that_are_over(rounds: list[int]):
    assert set(map(len, written().values())) == {2}

    tasks.sweep()

    assert left() == {key: {"new"} for key in ("heartbeats", "closures", "jobs", "exchanges")}


def test_what_cannot_be_deleted_keeps_the_sweep_from_nothing(rounds: list[int], monkeypatch: pytest.MonkeyPatch):
    written()
    monkeypatch.setattr(exchanges, "_DELETE_OLD", "DELETE FROM a_table_that_this_role_may_not_touch")

    tasks.sweep()

    assert rounds == [1], "the canaries went out"
    assert left() == {key: {"new"} for key in ("heartbeats", "closures", "jobs")} | {"exchanges": {"old", "new"}}


PARTS = {
    "the recovery": (tasks.supervisor, "sweep_once"),
    "the upkeep": (upkeep, "turn"),
    "the relay of jobs": (tasks.working, "relay"),
    "the canaries": (tasks.consumption_check, "send_round"),
    "the deliveries": (tasks.delivery_worker, "wake"),
}


@pytest.mark.parametrize("broken", PARTS)
def test_a_part_of_the_sweep_that_fails_keeps_no_other_from_its_work(broken: str, rounds: list[int], monkeypatch: pytest.MonkeyPatch):
    ran: list[str] = []

    def work(name: str) -> Any:
        ran.append(name)
        if name == broken:
            raise ZeroDivisionError(name)
        return SweepReport()

    for name, (module, function) in PARTS.items():
        monkeypatch.setattr(module, function, partial(work, name))

    with pytest.raises(ZeroDivisionError, match=broken):  # Celery logs it
        tasks.sweep()

    assert ran == list(PARTS)


def test_of_two_parts_that_fail_each_is_told(rounds: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    monkeypatch.setattr(upkeep, "turn", lambda: kit.fetch("SELECT FROM a_table_that_is_gone"))
    monkeypatch.setattr(tasks.consumption_check, "send_round", lambda: kit.fetch("SELECT FROM another_table_that_is_gone"))

    with pytest.raises(DatabaseError, match="a_table_that_is_gone"):
        tasks.sweep()

    [told] = [record for record in caplog.records if record.exc_info]
    assert "another_table_that_is_gone" in str(told.exc_info[1])
