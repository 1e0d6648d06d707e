"""The processes that work on bulk jobs share them by leases, and people are told of the ends of jobs; old jobs are deleted."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace

import pytest
from django.core import mail
from django.db import connection
from django.utils import timezone

from supervision import testing
from supervision.jobs import acting, job_sql, steering, telling, working
from supervision.models import Job, JobResult, Notification
from supervision.outbox import notifications
from supervision.postgres import db
from supervision.runtime import failpoints
from tests.engine import kit
from tests.engine.test_jobs import finish, outcomes, own_list, refused, start
from tests.engine.test_jobs import olga as olga

__all__ = ["olga", "own_list"]
pytestmark = pytest.mark.usefixtures("engine", "own_list")


def test_two_jobs_share_the_time(monkeypatch):
    monkeypatch.setattr(working, "BATCH", 1)
    refused(3)
    long, short = start(), start("skip", step="alpha-step")

    first = working._take()
    working._batch(first)  # type: ignore[arg-type]
    kit.fetch("UPDATE supervision_job SET leased_by = '', leased_until = NULL")

    assert first == long.pk
    assert working._take() == short.pk


def test_a_job_rests_long_between_its_batches_while_the_engine_is_at_work_and_else_shortly(monkeypatch):
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 1:
            kit.started()
            testing.submit_many("toy-plain", [{}] * 5)
        if len(naps) == 2:
            testing.submit_many("toy-plain", [{}] * 5)

    clock = itertools.count()
    monkeypatch.setattr(working, "BATCH", 1)
    monkeypatch.setattr(working, "BUSY", 10)
    monkeypatch.setattr(working, "time", SimpleNamespace(sleep=nap, monotonic=lambda: float(next(clock))))
    refused(5)
    start()

    working.turn(seconds=1000.0)

    assert naps == [0.5, 0.5, 5.0, 5.0]  # nothing is left after the fifth order


def test_two_hints_in_one_process_are_one_piece_of_work(monkeypatch):
    """Otherwise a job takes one thread more with each hint too many, and none is left for sweeps."""
    refused(2)
    start()
    begun, go_on = [], threading.Event()
    monkeypatch.setattr(working, "_batch", lambda pk: begun.append(pk) or (go_on.wait(30) and False))
    first = threading.Thread(target=lambda: (working.turn(0.1), connection.close()))
    first.start()
    kit.until(lambda: begun)

    found = working.turn(0.1), len(begun)
    go_on.set()
    first.join()

    assert found == (False, 1)


def test_a_job_under_another_process_s_lease_is_left_to_it_until_the_lease_is_over():
    refused(1)
    start()
    kit.fetch("UPDATE supervision_job SET leased_by = 'other', leased_until = now() + interval '5 s'")
    assert working.turn() is False
    assert working.relay() is False

    kit.fetch("UPDATE supervision_job SET leased_until = now() - interval '1 s'")

    assert working.relay() is True
    assert working.turn(rest=0.0) is False
    assert Job.objects.get().state == "done"


def test_a_process_that_lost_its_lease_writes_nothing(caplog):
    (key,) = refused(1)
    start()
    pk = working._take()
    kit.fetch("UPDATE supervision_job SET leased_by = 'other'")

    assert working._batch(pk) is False  # type: ignore[arg-type]
    assert kit.state(key) == "Error"
    assert "cannot be treated" not in caplog.text  # it acted on no order, which a later guard would have taken back


def test_a_batch_that_fails_takes_everything_back_and_stops_its_job_but_no_other():
    keys = refused(2)
    job = start()
    failpoints.load({"FAILPOINTS": "job.before_commit=raise", "ALLOW_FAILPOINTS": "1"})

    assert working.turn(rest=0.0) is False

    job.refresh_from_db()
    assert (job.state, job.stopped_by, job.leased_by) == ("stopped", "", "")
    assert "Injected" in job.stop_reason
    assert [cause.orders for cause in telling.standing_still()] == [2]
    assert {kit.state(key) for key in keys} == {"Error"}
    assert set(outcomes(job).values()) == {"waiting"}
    failpoints.load({})
    other = start("skip", step="alpha-step")
    steering.resume(job.pk, by="olga", reason="mended")
    assert finish(other).done + finish(job).done == 2
    assert kit.healthy()


def test_a_process_whose_batch_failed_does_not_stop_a_job_that_another_one_has_taken_meanwhile(monkeypatch):
    refused(1)
    job = start()
    pk = working._take()

    def broken(_):
        raise KeyError("a bug")

    def lost(work):
        kit.fetch("UPDATE supervision_job SET leased_by = 'other', leased_until = now() + interval '5 s'")
        return work()

    monkeypatch.setattr(working, "_work", broken)
    monkeypatch.setattr(working.db, "transact", lost)

    assert working._batch(pk) is False  # type: ignore[arg-type]
    job.refresh_from_db()
    assert (job.state, job.leased_by) == ("running", "other")


def test_a_job_that_lacks_rows_is_stopped_before_it_leaves_an_order_out(monkeypatch):
    monkeypatch.setattr(working, "BATCH", 2)
    refused(3)
    job = start()
    kit.fetch("DELETE FROM supervision_jobresult WHERE number = 1")

    assert working.turn(rest=0.0) is False

    job.refresh_from_db()
    assert (job.state, job.position) == ("stopped", 0)
    assert "rows are missing after number 0 of 3" in job.stop_reason


class Killed(BaseException):
    pass


def test_a_process_killed_while_it_deletes_an_old_job_leaves_it_whole(monkeypatch):
    monkeypatch.setattr(working, "PAGE", 2)
    refused(5)
    job = start()
    steering.stop(job.pk, by="olga", reason="wait")
    kit.fetch("UPDATE supervision_job SET stopped_at = now() - interval '400 days'")
    real, pages = db.fetch, []

    def fetch(sql, params=None, **how):
        rows = real(sql, params, **how)
        if sql == job_sql.DELETE_RESULTS:
            pages.append(len(rows))
            if len(pages) == 2:
                raise Killed
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(working.db, "fetch", fetch)
        with pytest.raises(Killed):
            working.delete_old()
    steering.resume(job.pk, by="olga", reason="go on")

    assert pages == [2, 2]
    assert finish(job).done == 5


def test_a_job_that_is_resumed_before_it_is_deleted_stays(monkeypatch):
    refused(1)
    job = start()
    steering.stop(job.pk, by="olga", reason="wait")
    kit.fetch("UPDATE supervision_job SET stopped_at = now() - interval '400 days'")
    real = db.run

    def run(sql, params=None, **how):
        rows = real(sql, params, **how)
        if sql == job_sql.OLD:
            assert rows
            steering.resume(job.pk, by="olga", reason="go on")
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(working.db, "run", run)
        working.delete_old()

    assert finish(job).done == 1


# ------------------------------------------------------------------------------------------------------ told, and deleted


@pytest.mark.parametrize(("minutes", "mails"), [(0, 0), (2, 1)])
def test_the_end_of_a_long_job_is_mailed_to_its_starter(olga, minutes, mails):
    refused(2)
    job = start(by=olga)
    kit.fetch("UPDATE supervision_job SET started_at = now() - %s * interval '1 minute'", [minutes])
    finish(job)

    notifications.deliver_due()

    assert len(mail.outbox) == mails
    assert Notification.objects.filter(kind="job", delivered_at__isnull=True).count() == 0
    if mails:
        assert mail.outbox[0].to == ["olga@example.com"]
        assert mail.outbox[0].subject == f"Job {job.pk} is done: 2 of 2 orders"
        assert f"/admin/supervision/job/{job.pk}/change/" in mail.outbox[0].body


def test_jobs_that_rested_for_long_enough_are_deleted_with_their_rows_and_running_ones_never(monkeypatch, tuned):
    monkeypatch.setattr(working, "PAGE", 2)
    tuned(JOB_KEEP_DAYS=7)
    refused(5)
    old = finish(start())
    kit.idle_states([row.key for row in old.results.all()])
    kit.fetch("UPDATE supervision_job SET finished_at = now() - interval '8 days', worked_at = now() - interval '8 days'")
    refused(2)
    young = finish(start())
    refused(1)
    running = start()
    kit.fetch("UPDATE supervision_job SET started_at = now() - interval '1 year' WHERE id = %s", [running.pk])

    assert working.delete_old() is False

    assert set(Job.objects.values_list("pk", flat=True)) == {young.pk, running.pk}
    assert set(JobResult.objects.values_list("job_id", flat=True)) == {young.pk, running.pk}
    assert kit.healthy()


def test_many_old_jobs_are_deleted_one_batch_after_the_other(tuned):
    tuned(JOB_KEEP_DAYS=7)
    many = job_sql.AT_ONCE + 5
    done = {"verb": "skip", "reason": "r", "started_by": "olga", "total": 0, "state": "done", "finished_at": timezone.now()}
    Job.objects.bulk_create(Job(**done) for _ in range(many))
    kit.fetch("UPDATE supervision_job SET finished_at = now() - interval '8 days', worked_at = now() - interval '8 days'")

    assert [working.delete_old(), working.delete_old()] == [True, False]
    assert not Job.objects.exists()


def test_a_jobs_reason_names_it_so_that_histories_can_be_compared():
    assert acting.why(Job(pk=3, reason="because", filter={"step": "alpha-step"})) == "because (job 3: step=alpha-step)"
    assert acting.why(Job(pk=3, reason="because", filter={})) == "because (job 3: chosen one by one)"
