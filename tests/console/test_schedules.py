"""Periodic tasks in the console: who says when they run, who says what they are, and what the log keeps."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from tests.support.console import person

pytestmark = pytest.mark.django_db
NO_TASKS = {"periodictask_set-TOTAL_FORMS": 0, "periodictask_set-INITIAL_FORMS": 0}  # in the form of an interval


def test_an_operator_says_when_a_task_runs_and_not_what_it_is(operator: Client):
    task = PeriodicTask.objects.get(task="supervision.sweep")
    address = reverse("admin:django_celery_beat_periodictask_change", args=[task.pk])
    shown = operator.get(address).content.decode()
    said = {
        "name": "mine",
        "regtask": "supervision.perform",
        "task": "supervision.perform",
        "args": "[[1]]",
        "kwargs": "{}",
        "queue": "agent.x",
    }

    answer = operator.post(address, {**said, "interval": task.interval_id, "enabled": "on", "description": "each five seconds"})

    assert answer.status_code == 302
    assert ('name="task"' in shown, 'name="regtask"' in shown, "supervision.sweep" in shown) == (False, False, True)
    task.refresh_from_db()
    assert (task.name, task.task, task.args, task.queue) == ("look for overdue steps", "supervision.sweep", "[]", "supervisor")
    assert task.description == "each five seconds"


def test_who_may_add_a_periodic_task_says_what_it_is(client: Client):
    User.objects.create_superuser("root", password="a password for tests")
    client.force_login(User.objects.get(username="root"))
    every = IntervalSchedule.objects.create(every=1, period="days")

    answer = client.post(
        reverse("admin:django_celery_beat_periodictask_add"),
        {"name": "mine", "task": "supervision.jobs", "args": "[]", "kwargs": "{}", "headers": "{}", "interval": every.pk, "enabled": "on"},
    )

    assert (answer.status_code, PeriodicTask.objects.get(name="mine").task) == (302, "supervision.jobs")


@pytest.mark.parametrize(("every", "period"), [(1, "microseconds"), (2_000_000_000, "days"), (0, "seconds"), (-1, "hours"), (0.5, "days")])
def test_an_interval_at_which_beat_cannot_send_is_refused(operator: Client, every, period):
    before = IntervalSchedule.objects.count()

    answer = operator.post(reverse("admin:django_celery_beat_intervalschedule_add"), {"every": every, "period": period, **NO_TASKS})

    assert "interval from a tenth" in answer.content.decode() or "every" in answer.context["adminform"].form.errors
    assert (answer.status_code, IntervalSchedule.objects.count()) == (200, before)


def test_half_a_second_and_a_year_are_intervals(operator: Client):
    for every, period in ((500_000, "microseconds"), (366, "days")):
        operator.post(reverse("admin:django_celery_beat_intervalschedule_add"), {"every": every, "period": period, **NO_TASKS})

        assert IntervalSchedule.objects.filter(every=every, period=period).exists()


def test_an_account_that_may_only_look_at_schedules_switches_no_task_off(operator: Client):
    task = PeriodicTask.objects.get(task="supervision.sweep")
    looker = person("lena")
    looker.user_permissions.add(Permission.objects.get(codename="view_periodictask"))
    looking = Client()
    looking.force_login(looker)
    address = reverse("admin:django_celery_beat_periodictask_changelist")

    def off(by: Client) -> bool:
        by.post(address, {"action": "disable_tasks", "_selected_action": [task.pk]})
        return not PeriodicTask.objects.get(pk=task.pk).enabled

    assert [off(looking), off(operator)] == [False, True]
    assert [(entry.user.username, entry.object_repr) for entry in LogEntry.objects.all()] == [("olga", str(task))]
