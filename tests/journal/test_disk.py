"""A disk that refuses writes: no event is lost, an incident opens, and the writer tries again."""

from __future__ import annotations

import os
import signal

import pytest
from django.core import mail

from supervision.incidents import lifecycle
from supervision.journal import entries, verify
from supervision.journal.entries import State
from supervision.journal.writer import Writer
from supervision.models import Notification, WriterLease
from supervision.outbox import notifications
from tests.journal.kit import KEY, append, files, ids, waiting

pytestmark = pytest.mark.usefixtures("journal_dir")


def told() -> list[str]:
    return [row["event"] for row in Notification.objects.filter(kind="incident").order_by("pk").values_list("payload", flat=True)]


def test_a_directory_that_cannot_be_written_leaves_every_event_waiting(journal_dir, tuned):
    tuned(JOURNAL_FLUSH_SECONDS=0.001, OPERATOR_EMAILS=["ops@shop.example"])
    journal_dir.write_text("a file where the directory should be")
    append("e-1")
    writer = Writer()

    assert "NotADirectoryError" in writer.flush(KEY).trouble
    assert entries.outcome("e-1").state is State.WAITING
    [lease] = WriterLease.objects.all()
    assert lease.failing_since is not None
    assert "NotADirectoryError" in lease.last_error

    # The operators get one notification when it begins, none for further tries, and one when it is over.
    lifecycle.look()
    Writer().flush(KEY)
    lifecycle.look()
    assert told() == ["opened"]
    notifications.deliver_due()
    assert "NotADirectoryError" in mail.outbox[0].body

    journal_dir.unlink()
    writer = Writer()
    assert writer.flush(KEY).written == 1
    [lease] = WriterLease.objects.all()
    assert (lease.failing_since, lease.last_error) == (None, "")
    assert ids(journal_dir) == ["e-1"]
    lifecycle.look()
    assert told() == ["opened", "closed"]


def test_a_writer_that_cannot_write_lets_another_one_try_and_pauses(journal_dir, tuned):
    tuned(JOURNAL_FLUSH_SECONDS=3600, JOURNAL_FLUSH_ENTRIES=1)
    journal_dir.write_text("a file where the directory should be")
    append("e-1")
    writer = Writer()
    writer.look()
    journal_dir.unlink()

    assert writer.look() == 0  # it waits after the failure
    assert Writer().look() == 1


def test_a_full_disk_tears_no_line_and_is_outlived(journal_dir, processes, eventually, tuned):
    """RLIMIT_FSIZE simulates a disk that is full in the middle of a line."""
    tuned(JOURNAL_FLUSH_SECONDS=0.01)
    append("e-1")
    pid = processes.start(file_size=600, JOURNAL_FLUSH_SECONDS=0.01)
    eventually(lambda: waiting() == [])

    append(*(f"f-{number}" for number in range(50)))
    eventually(lambda: lifecycle.look().opened)
    assert len(waiting()) == 50
    assert ids(journal_dir) == ["e-1"]
    assert (journal_dir / files()[0].path).stat().st_size < 600

    os.kill(pid, signal.SIGUSR1)  # lifts the limit
    eventually(lambda: waiting() == [])

    assert len(set(ids(journal_dir))) == 51
    assert [found.problems for found in verify.verify()] == [[]] * len(files())
    lifecycle.look()
    assert told() == ["opened", "closed"]
