"""django-celery-beat's schedules, registered anew in the console's theme, because beat's own admin classes are unstyled.

The interval of the supervisor's sweep (S29) is edited here.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.translation import gettext_lazy as _
from django_celery_beat import admin as beat
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget


class TaskSelectWidget(UnfoldAdminSelectWidget, beat.TaskSelectWidget):
    """The registered tasks to choose from, in this theme."""


class TaskChoiceField(beat.TaskChoiceField):
    """Accepts any task name, as beat's own field does: a task may be registered in a worker only."""

    widget = TaskSelectWidget


class PeriodicTaskForm(beat.PeriodicTaskForm):
    """Beat's form with this theme's widgets for its two own fields."""

    regtask = TaskChoiceField(label=beat.PeriodicTaskForm.base_fields["regtask"].label, required=False)

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.fields["task"].widget = UnfoldAdminTextInputWidget()


class PeriodicTaskInline(TabularInline, beat.PeriodicTaskInline):
    """The tasks that follow a schedule."""


class ScheduleAdmin(ModelAdmin):
    """A schedule with the tasks that follow it."""

    inlines = [PeriodicTaskInline]


for model in (PeriodicTask, IntervalSchedule, CrontabSchedule, ClockedSchedule, SolarSchedule):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(beat.PeriodicTaskAdmin, ModelAdmin):
    """Periodic tasks and when they run."""

    form = PeriodicTaskForm
    date_hierarchy = None
    list_display = ["name", "enabled", "scheduler", "last_run_at", "one_off"]
    list_filter = ["enabled", "one_off", "task"]

    @display(description=_("Schedule"))
    def scheduler(self, obj: PeriodicTask) -> Any:
        """When it runs; here for its translated title."""
        return obj.scheduler


@admin.register(IntervalSchedule)
class IntervalScheduleAdmin(ScheduleAdmin):
    """Intervals in seconds, minutes, hours or days."""


@admin.register(CrontabSchedule)
class CrontabScheduleAdmin(ScheduleAdmin, beat.CrontabScheduleAdmin):
    """Schedules for certain times of the day, week, month or year."""

    inlines = [PeriodicTaskInline]


@admin.register(ClockedSchedule)
class ClockedScheduleAdmin(ScheduleAdmin, beat.ClockedScheduleAdmin):
    """Schedules for a single run at a given moment."""

    inlines = [PeriodicTaskInline]


@admin.register(SolarSchedule)
class SolarScheduleAdmin(ScheduleAdmin):
    """Schedules by the sun, such as sunrise."""
