"""Beat goes on sending after it lost its connection to the broker, and sends the sweep at the configured interval."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from celery import Celery, current_app
from celery.beat import SchedulingError
from celery.schedules import schedule
from django.db import connection
from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask, SolarSchedule

from supervision.worker.beat import Scheduler
from supervision.worker.lifecycle import SWEEP_TASK, set_sweep_interval
from tests import services
from tests.engine.kit import ROOT, another_connection
from tests.support.shop import until


class ToldToEnd(Exception):
    """Stands for the SystemExit that beat's signal handler raises, which would end the tests."""


class Entry:
    """One entry of beat's schedule."""

    name, task, args, kwargs, options = "look", "supervision.sweep", (), {}, {}
    schedule = schedule(1.0)


@pytest.fixture
def beat():
    scheduler = Scheduler(app=current_app, lazy=True)
    yield scheduler
    scheduler.connection.release()


@pytest.mark.django_db
def test_beat_sends_over_a_new_connection_after_it_has_lost_one(beat):
    lost = beat.connection
    beat.producer.publish({}, routing_key="supervisor")
    beat.producer.channel = None  # as it is after the broker has closed the connection

    with pytest.raises(SchedulingError):
        beat.apply_async(Entry(), producer=beat.producer, advance=False)
    beat.apply_async(Entry(), producer=beat.producer, advance=False)

    assert beat.connection is not lost


@pytest.mark.django_db(transaction=True)
def test_beat_reads_its_timetable_again_when_the_database_has_cut_its_connection(beat):
    names = set(beat.all_as_schedule())
    with another_connection() as other, connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        other.execute("SELECT pg_terminate_backend(%s, 5000)", cursor.fetchone())

    assert set(beat.all_as_schedule()) == names


@pytest.mark.django_db
@pytest.mark.parametrize(("seconds", "interval"), [(2, (2, "seconds")), (0.5, (500_000, "microseconds"))])
def test_the_sweep_runs_as_often_as_it_is_told(beat, seconds, interval):
    for _ in range(2):
        set_sweep_interval(seconds)

    task = PeriodicTask.objects.get(name=SWEEP_TASK)  # as the migrations make it
    assert (task.interval.every, task.interval.period) == interval
    assert (task.task, task.queue, task.enabled) == ("supervision.sweep", "supervisor", True)
    assert beat.all_as_schedule()[SWEEP_TASK].schedule.run_every.total_seconds() == seconds


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("every", "period", "seconds"),
    [
        (2_000_000_000, "days", 366 * 86400),
        (900_000_000, "days", 366 * 86400),
        (2_000_000_000, "hours", 366 * 86400),
        (1, "microseconds", 0.1),
        (0, "seconds", 0.1),
        (-5, "seconds", 0.1),
        (1, "days", 86400),
    ],
)
def test_an_interval_of_any_length_neither_ends_beat_nor_makes_it_send_without_a_rest(beat, monkeypatch, every, period, seconds):
    sent = []
    monkeypatch.setattr(beat, "apply_async", lambda entry, **_: sent.append(entry.name))
    kept = IntervalSchedule.objects.create(every=every, period=period)
    PeriodicTask.objects.filter(name=SWEEP_TASK).update(interval=kept, last_run_at=timezone.now())
    began = time.monotonic()

    for _ in range(50):
        beat.tick()
    took = time.monotonic() - began
    beat.sync()

    assert beat.schedule[SWEEP_TASK].schedule.run_every.total_seconds() == seconds
    assert "look for due work" in beat.schedule
    assert sent.count(SWEEP_TASK) <= took / seconds + 1
    kept.refresh_from_db()
    assert (kept.every, kept.period) == (every, period)


@pytest.mark.django_db(transaction=True)
def test_a_task_whose_schedule_cannot_be_read_is_left_out_and_the_others_are_sent(beat, monkeypatch):
    monkeypatch.setitem(sys.modules, "ephem", None)  # the package that schedules by the sun need, and that is not installed here
    sunrise = SolarSchedule.objects.create(event="sunrise", latitude=52, longitude=13)
    PeriodicTask.objects.create(name="each morning", task="supervision.jobs", solar=sunrise)

    assert {SWEEP_TASK} <= set(beat.all_as_schedule()) < set(PeriodicTask.objects.values_list("name", flat=True))


@pytest.mark.django_db(transaction=True)
def test_beat_told_to_end_in_the_middle_of_a_statement_ends(beat):
    """Its signal handler saves the schedule on the connection that still waits for the statement's answer."""
    sent = PeriodicTask.objects.get(name=SWEEP_TASK)
    beat.all_as_schedule()
    entry = beat.schedule[SWEEP_TASK]
    entry.model.total_run_count = sent.total_run_count + 7
    beat._dirty.add(SWEEP_TASK)

    def end(number, frame):
        beat.sync()
        raise ToldToEnd

    before = signal.signal(signal.SIGTERM, end)
    began = time.monotonic()
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
        with pytest.raises(ToldToEnd), connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(20)")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert time.monotonic() - began < 15
    beat.sync()  # as beat's loop does at its end

    assert PeriodicTask.objects.get(name=SWEEP_TASK).total_run_count == sent.total_run_count + 7


def test_beat_that_waits_for_its_database_is_alive_and_ends_when_it_is_told_to(tmp_path):
    """Celery's handler of SIGTERM asks for the schedule, and would wait for it for ever."""
    alive, log = tmp_path / "alive", tmp_path / "log"
    away = {"DATABASE_URL": "postgres://sas@127.0.0.1:9/sas", "SAS_ALIVE_FILE": str(alive), "DEBUG": "1", "CELERY_BROKER_URL": "memory://"}
    with log.open("wb") as out:
        beat = subprocess.Popen([sys.executable, "manage.py", "work", "beat"], cwd=ROOT, env={**os.environ, **away}, stdout=out, stderr=out)
    try:
        until(lambda: "trying again" in log.read_text(), within=60, what="the wait for the database")
        assert alive.exists()
        beat.terminate()
        assert beat.wait(60) == 0
    finally:
        beat.kill()
    assert "Traceback" not in log.read_text()


class WhenRefused(logging.Handler):
    """Calls a function as soon as beat says that the broker refuses it."""

    def __init__(self, then):
        super().__init__()
        self.then = then

    def emit(self, record):
        if "refuses beat" in record.getMessage():
            self.then()


@pytest.mark.amqp
@pytest.mark.django_db
def test_beat_outlives_the_deletion_of_its_virtual_host(monkeypatch, request):
    """A broker that answers and refuses, as after a change of the password too, ends Celery's own beat."""
    services.require_rabbitmqctl()
    monkeypatch.setattr("supervision.worker.beat.REFUSED_SECONDS", 0.05)
    with services.own_vhost() as url:
        monkeypatch.setenv("CELERY_BROKER_URL", url)  # Celery reads it before its own settings
        app = Celery("beat of a deleted host", broker=url, set_as_current=False, broker_connection_max_retries=None)
        beat = Scheduler(app=app, lazy=True)
        beat.producer.publish({}, routing_key="supervisor")
        services.delete_vhost(url)
        handler = WhenRefused(lambda: services.add_vhost(url))
        logging.getLogger("supervision.worker.beat").addHandler(handler)
        request.addfinalizer(lambda: logging.getLogger("supervision.worker.beat").removeHandler(handler))

        beat._connect_anew()  # as after the failure to send that tells beat of it
        beat.apply_async(Entry(), producer=beat.producer, advance=False)  # not before the virtual host is there again

        beat.connection.release()
