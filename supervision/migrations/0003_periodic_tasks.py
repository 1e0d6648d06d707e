"""The supervisor's schedule, as rows of django-celery-beat: operators change the interval in the admin."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import migrations

# The second only bounds the delay of retries and lost hints: work is handed over at once.
TASKS = {
    "look for overdue steps": ("supervision.sweep", "supervisor", None),
    "look for due work": ("supervision.schedule", "scheduler", 1.0),
}


def create(apps: Any, schema_editor: Any) -> None:
    """Create both tasks, keeping what is there."""
    interval = apps.get_model("django_celery_beat", "IntervalSchedule")
    task = apps.get_model("django_celery_beat", "PeriodicTask")
    for name, (path, queue, seconds) in TASKS.items():
        every = float(seconds or getattr(settings, "SUPERVISION", {}).get("SWEEP_SECONDS") or 5.0)
        whole = every == int(every)
        schedule, _ = interval.objects.get_or_create(
            every=int(every) if whole else int(every * 1_000_000), period="seconds" if whole else "microseconds"
        )
        task.objects.get_or_create(name=name, defaults={"task": path, "queue": queue, "interval": schedule})


def remove(apps: Any, schema_editor: Any) -> None:
    """Remove both tasks."""
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name__in=TASKS).delete()


class Migration(migrations.Migration):
    """Rows, not code, say how often the supervisor looks."""

    dependencies = [
        ("supervision", "0002_store"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [migrations.RunPython(create, remove)]
