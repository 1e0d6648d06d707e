"""The history of runs and the operators' log are append-only: triggers refuse every change, also to the owner of the tables."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.test import RequestFactory

from sasproject.admin import UserAdmin
from supervision.models import ArchivedRun, StepEvent
from supervision.operations import archive
from supervision.worker import records
from tests.engine import kit
from tests.support.history import rewrite

REFUSED = "is append-only"
FORGED = """
INSERT INTO supervision_archivedrun (key, run_id, workflow, process_state, created_at, finished_at, body)
SELECT r.key, r.id, r.workflow, 'Processed', now(), now(), jsonb_build_object('events', {events}) FROM supervision_run r
"""


@pytest.fixture
def acted(engine) -> User:
    """An account that the log may name."""
    return User.objects.create_user("olga")


def refused(statement: str) -> bool:
    try:
        with transaction.atomic():
            kit.fetch(statement)
    except DatabaseError as error:
        return REFUSED in str(error)
    return False


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE supervision_stepevent SET why = 'another reason' WHERE seq = 1",
        "DELETE FROM supervision_stepevent WHERE seq = 2",
        "DELETE FROM supervision_stepevent",
        "WITH gone AS (DELETE FROM supervision_run RETURNING id) DELETE FROM supervision_stepevent WHERE run_id IN (SELECT id FROM gone)",
        "UPDATE django_admin_log SET change_message = 'nothing'",
        "UPDATE django_admin_log SET change_message = '[erased]', action_flag = 3",
        "UPDATE django_admin_log SET change_message = '[erased] today'",
        "DELETE FROM django_admin_log WHERE change_message = 'today'",
    ],
)
def test_no_statement_changes_or_removes_what_was_written(engine, acted, statement):
    kit.ran()
    entry(acted, "today")

    assert refused(statement)


def test_a_message_of_the_log_may_be_blanked_as_a_whole(engine, acted):
    entry(acted, "wrote to ada@example.com")

    LogEntry.objects.update(change_message="[erased]", object_repr="[erased]")

    assert list(LogEntry.objects.values_list("change_message", "user_id")) == [("[erased]", acted.pk)]


def entry(by: Any, message: str, age: timedelta = timedelta(0)) -> None:
    row = LogEntry(user_id=by.pk, object_repr="x", action_flag=CHANGE, change_message=message)
    row.save()
    if age:
        rewrite("UPDATE django_admin_log SET action_time = now() - %s WHERE id = %s", [age, row.pk])


def test_truncate_is_refused_outside_of_databases_of_tests(engine):
    kit.ran()
    source = kit.fetch("SELECT pg_get_functiondef('supervision_refuse_change'::regproc)")[0][0]

    with transaction.atomic():
        kit.fetch("TRUNCATE supervision_stepevent")
        transaction.set_rollback(True)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(source.replace("'test_'", "'another_'"))
        assert refused("TRUNCATE supervision_stepevent")
        assert refused("TRUNCATE django_admin_log")
        transaction.set_rollback(True)
    assert StepEvent.objects.exists()


@pytest.mark.parametrize("events", ["'[]'::jsonb", "NULL::jsonb", "(SELECT jsonb_agg(to_jsonb(e)) FROM supervision_stepevent e)"])
def test_events_leave_only_into_an_archive_that_holds_them_unchanged(engine, events):
    key = kit.ran()

    with transaction.atomic():
        kit.fetch(FORGED.format(events=events))
        assert refused("DELETE FROM supervision_stepevent")
        kit.fetch("CREATE TEMP TABLE supervision_archivedrun ON COMMIT DROP AS TABLE public.supervision_archivedrun")
        kit.fetch(
            "UPDATE pg_temp.supervision_archivedrun SET body = jsonb_build_object('events',"
            " (SELECT jsonb_agg(jsonb_strip_nulls(to_jsonb(e) - 'run_id') ORDER BY e.seq) FROM public.supervision_stepevent e))"
        )
        assert refused("DELETE FROM supervision_stepevent")
        transaction.set_rollback(True)

    kit.fetch("UPDATE supervision_run SET finished_at = now() - interval '1 year'")
    assert sum(moved.events for moved in archive.batches(timedelta(days=1))) > 1
    assert len(ArchivedRun.objects.get(key=key).body["events"]) > 1
    assert not StepEvent.objects.exists()


def test_old_entries_of_the_operators_log_come_to_their_end_and_young_ones_stay(engine, acted, monkeypatch):
    entry(acted, "old", timedelta(days=91))
    entry(acted, "young", timedelta(days=89))
    monkeypatch.setattr(records, "_kept", lambda: timedelta(days=1))

    while records._forget("django_admin_log"):
        pass

    assert [row.change_message for row in LogEntry.objects.all()] == ["young"]


def test_the_console_offers_no_deletion_of_an_account_that_has_acted(engine, acted):
    request = RequestFactory().get("/")
    request.user = User.objects.create_superuser("root")
    page = UserAdmin(User, admin.site)
    assert page.has_delete_permission(request, acted)

    entry(acted, "today")

    assert not page.has_delete_permission(request, acted)
    with pytest.raises(DatabaseError, match=REFUSED), transaction.atomic():
        acted.delete()
