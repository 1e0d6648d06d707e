"""django-celery-beat's schedules, registered anew in the console's theme, because beat's own admin classes are unstyled.

The interval of the supervisor's sweep (S29) is edited here. Who may change tasks, as operators may, says when they run and whether.
What a task is, its arguments and its queue are for those who may add one. Beat's own actions are open to all who may look; here they
take the right to change, and each leaves an entry in the operators' log.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django_celery_beat import admin as beat
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask, SolarSchedule
from unfold.admin import ModelAdmin, TabularInline
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from supervision.runtime.intervals import bounded

WHAT_RUNS = ("name", "task", "args", "kwargs", "queue", "exchange", "routing_key", "headers", "priority")
Action = Callable[[Any, HttpRequest, Any], Any]


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
        if "task" in self.fields:
            self.fields["task"].widget = UnfoldAdminTextInputWidget()

    def clean(self) -> Any:
        """Beat's own checks, also where the task is only shown."""
        self.cleaned_data.setdefault("task", self.instance.task)
        return super().clean()


class PeriodicTaskInline(TabularInline, beat.PeriodicTaskInline):
    """The tasks that follow a schedule."""


class ScheduleAdmin(ModelAdmin):
    """A schedule with the tasks that follow it."""

    inlines = [PeriodicTaskInline]


for model in (PeriodicTask, IntervalSchedule, CrontabSchedule, ClockedSchedule, SolarSchedule):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


def _noted(action: Action) -> Action:
    """This action of beat's, for those who may change the tasks, with an entry in the log for each."""
    label = action.short_description  # type: ignore[attr-defined]  # `admin.action` sets it

    @admin.action(description=label, permissions=["change"])
    @wraps(action)
    def act(self: Any, request: HttpRequest, queryset: Any) -> Any:
        for task in queryset:
            self.log_change(request, task, str(label))
        return action(self, request, queryset)

    return act


@admin.register(PeriodicTask)
class PeriodicTaskAdmin(beat.PeriodicTaskAdmin, ModelAdmin):
    """Periodic tasks and when they run."""

    form = PeriodicTaskForm
    date_hierarchy = None
    list_display = ["name", "enabled", "scheduler", "last_run_at", "one_off"]
    list_filter = ["enabled", "one_off", "task"]
    enable_tasks, disable_tasks = _noted(beat.PeriodicTaskAdmin.enable_tasks), _noted(beat.PeriodicTaskAdmin.disable_tasks)
    toggle_tasks, run_tasks = _noted(beat.PeriodicTaskAdmin.toggle_tasks), _noted(beat.PeriodicTaskAdmin.run_tasks)

    def get_readonly_fields(self, request: HttpRequest, obj: PeriodicTask | None = None) -> tuple[str, ...]:
        """What a task is, for those who may not add one."""
        shown = tuple(super().get_readonly_fields(request, obj))
        return shown if self.has_add_permission(request) else (*shown, *WHAT_RUNS)

    def get_fieldsets(self, request: HttpRequest, obj: PeriodicTask | None = None) -> Any:
        """Without the choice of registered tasks where the task is only shown."""
        given = super().get_fieldsets(request, obj)
        if self.has_add_permission(request):
            return given
        return [(title, {**facts, "fields": [name for name in facts["fields"] if name != "regtask"]}) for title, facts in given]

    @display(description=_("Schedule"))
    def scheduler(self, obj: PeriodicTask) -> Any:
        """When it runs; here for its translated title."""
        return obj.scheduler


class IntervalForm(forms.ModelForm):
    """An interval at which beat can send a task."""

    def clean(self) -> Any:
        """Refuse what beat would not do as it is said."""
        said = super().clean() or self.cleaned_data
        asked: Any = said.get("every"), said.get("period")
        if None not in asked and bounded(*asked) != asked:
            raise forms.ValidationError(_("Expected an interval from a tenth of a second to 366 days."), "out_of_bounds")
        return said


@admin.register(IntervalSchedule)
class IntervalScheduleAdmin(ScheduleAdmin):
    """Intervals in microseconds, seconds, minutes, hours or days."""

    form = IntervalForm


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
