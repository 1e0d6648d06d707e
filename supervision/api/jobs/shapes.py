"""The shapes of jobs at the API."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework import serializers

from supervision.api.incident_views import MoneyAnswer
from supervision.api.shapes import DIRECTIONS, RUN_STATES, Choice, Flag, Reason, Shape, Strict, page_answer
from supervision.jobs import selection
from supervision.models import Job, JobResult
from supervision.postgres import json_safe

STATES, OUTCOMES = list(Job.State.values), list(JobResult.Outcome.values)


class JobSerializer(Strict):
    """A verb for many orders. `filter`: names and values as in the query of the list of orders; at least one."""

    verb = Choice(selection.VERBS)
    filter = serializers.DictField(help_text="names and values as in the query of the list of orders")
    reason = Reason()
    dry_run = Flag(required=False, default=False)
    changes = serializers.DictField(required=False, default=dict, help_text="corrections to every order; with `resubmit` alone")

    def validate_changes(self, value: dict[str, Any]) -> dict[str, Any]:
        """Refuse what PostgreSQL cannot keep."""
        if json_safe.storable(value) != value:
            raise serializers.ValidationError(_("Control characters are not allowed."))
        return value


class JobAnswer(Shape):
    """A job. `done`: orders to which the verb was done. `failed`: orders to which it was not; `results` say why."""

    id = serializers.IntegerField()
    verb = serializers.ChoiceField(selection.VERBS)
    filter = serializers.DictField(child=serializers.CharField(allow_blank=True))
    changes = serializers.DictField()
    reason = serializers.CharField()
    started_by = serializers.CharField()
    state = serializers.ChoiceField(STATES)
    total = serializers.IntegerField()
    done = serializers.IntegerField()
    failed = serializers.IntegerField()
    waiting = serializers.IntegerField()
    held = MoneyAnswer(many=True)
    started_at = serializers.DateTimeField()
    worked_at = serializers.DateTimeField()
    stopped_at = serializers.DateTimeField(allow_null=True)
    stopped_by = serializers.CharField(allow_null=True)
    stop_reason = serializers.CharField(allow_null=True)
    approval = serializers.IntegerField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class JobResultAnswer(Shape):
    """The result of one order of a job. `process_state`: of the order now; null once it is archived."""

    number = serializers.IntegerField()
    order = serializers.CharField()
    step = serializers.CharField(allow_null=True)
    attempt = serializers.IntegerField(allow_null=True)
    outcome = serializers.ChoiceField(OUTCOMES)
    code = serializers.CharField(allow_null=True)
    message = serializers.CharField(allow_null=True)
    acted_at = serializers.DateTimeField(allow_null=True)
    process_state = serializers.ChoiceField(RUN_STATES, allow_null=True)


class JobDetailAnswer(JobAnswer):
    """A job with one page of its results, by number. `in_error_again`: orders that it set going and that stand in Error now."""

    in_error_again = serializers.IntegerField()
    results = JobResultAnswer(many=True)
    next = serializers.CharField(allow_null=True)
    previous = serializers.CharField(allow_null=True)


class JobGroupAnswer(Shape):
    """Orders that the verb treats alike. `steps`: those that it runs again, skips or undoes."""

    orders = serializers.IntegerField()
    workflow = serializers.CharField()
    version = serializers.IntegerField()
    process_state = serializers.ChoiceField(RUN_STATES)
    direction = serializers.ChoiceField(DIRECTIONS)
    steps = serializers.ListField(child=serializers.CharField())
    key_reused = serializers.BooleanField()
    error_code = serializers.CharField(allow_null=True)
    held = MoneyAnswer(many=True)


class JobPreviewAnswer(Shape):
    """What a job would do. `left_out`: orders that fit the filter, and to which the verb cannot be done. `differ`: at most 50 groups."""

    orders = serializers.IntegerField()
    left_out = serializers.IntegerField()
    held = MoneyAnswer(many=True)
    differ = JobGroupAnswer(many=True)


class StartedJobAnswer(JobAnswer):
    """The job that was started."""


JobPage = page_answer(JobAnswer)
