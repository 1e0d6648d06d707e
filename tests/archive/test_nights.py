"""The archive's nights: turns of some seconds, of which each goes on where the last one was."""

from __future__ import annotations

from importlib import import_module

import pytest
from celery import current_app
from celery.signals import before_task_publish
from django.apps import apps
from django.db import DatabaseError
from django_celery_beat.models import PeriodicTask

from supervision import tasks
from supervision.models import Alert, ArchivedRun, Run
from supervision.operations import archive
from supervision.operations.ending import nightly
from supervision.wakeup import hints
from tests.engine import kit

from .conftest import let_pass
from .test_moving import done, open_alert

pytestmark = pytest.mark.usefixtures("engine")


def test_the_night_does_it_by_itself_until_it_is_told_not_to(tuned, caplog):
    old, young = done(days=91), done(days=89)

    tuned(ARCHIVE_DAYS=None)
    assert nightly.turn() is False
    assert not ArchivedRun.objects.exists()

    tuned(ARCHIVE_DAYS=90)
    with caplog.at_level("INFO", nightly.log.name):
        assert nightly.turn() is False
    assert "runs=1" in caplog.text
    assert list(ArchivedRun.objects.values_list("key", flat=True)) == [old]
    assert list(Run.objects.values_list("key", flat=True)) == [young]


def test_a_long_night_is_taken_in_turns(monkeypatch, tuned):
    monkeypatch.setattr(nightly, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(nightly, "TURN_SIZE", 2)
    tuned(ARCHIVE_DAYS=90)
    for _ in range(5):
        done(days=91)

    asked = []
    noted = lambda sender, **_: asked.append(sender)  # noqa: E731
    before_task_publish.connect(noted)
    monkeypatch.setattr(hints, "enabled", True)
    try:
        tasks.archive_finished()
    finally:
        before_task_publish.disconnect(noted)

    assert 0 < Run.objects.count() < 5
    assert asked == ["supervision.archive"]  # the task for the next batch
    while nightly.turn():
        pass
    assert Run.objects.count() == 0


@pytest.mark.parametrize("stays", ["held", "in Error"])
def test_what_stays_does_not_keep_a_night_of_short_turns_from_the_rest(monkeypatch, tuned, stays):
    monkeypatch.setattr(archive, "PAGE", 2)
    monkeypatch.setattr(nightly, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(nightly, "TURN_SIZE", 2)
    tuned(ARCHIVE_DAYS=90)
    left = [done() if stays == "held" else kit.in_error(1, "toy") for _ in range(4)]
    let_pass(100, *left)
    for key in left if stays == "held" else ():
        open_alert(key)
    going = [done() for _ in range(3)]

    assert nightly.turn() is True
    assert not ArchivedRun.objects.exists(), "a turn may end after a page of rows that all stay"
    turns = 1
    while nightly.turn():
        turns += 1
        assert turns < 100, "each turn begins with the rows that stay"

    assert set(ArchivedRun.objects.values_list("key", flat=True)) == set(going)
    assert set(Run.objects.values_list("key", flat=True)) == set(left)


def test_a_pass_that_failed_or_is_of_the_night_before_begins_with_the_first_row_again(monkeypatch, tuned):
    monkeypatch.setattr(archive, "PAGE", 1)
    monkeypatch.setattr(nightly, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(nightly, "TURN_SIZE", 1)
    tuned(ARCHIVE_DAYS=90)
    keys = [done(days=91) for _ in range(3)]
    open_alert(keys[0])
    assert nightly.turn() is True
    assert nightly.turn() is True
    assert not Run.objects.filter(key=keys[1]).exists(), "the second turn went on"
    Alert.objects.all().delete()

    monkeypatch.setattr(nightly, "PASS_SECONDS", -1.0)
    assert nightly.turn() is True
    assert not Run.objects.filter(key=keys[0]).exists()

    monkeypatch.setattr(nightly, "PASS_SECONDS", 3600.0)
    with monkeypatch.context() as broken:
        broken.setattr(archive, "_CANDIDATES", "SELECT FROM a_table_that_is_gone")
        with pytest.raises(DatabaseError):
            nightly.turn()
    while nightly.turn():
        pass
    assert not Run.objects.exists()


def test_every_night_is_in_the_timetable():
    import_module("supervision.migrations.0001_squashed_0021_plain_label").create_periodic_tasks(
        apps, None
    )  # an earlier test may have emptied it

    (entry,) = PeriodicTask.objects.filter(task="supervision.archive")

    assert (entry.enabled, entry.queue) == (True, "supervisor")
    assert entry.task in current_app.tasks
