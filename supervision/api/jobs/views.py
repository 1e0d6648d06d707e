"""Bulk jobs at the API: one verb for all orders that the filters of the list find."""

from __future__ import annotations

from django.shortcuts import get_object_or_404
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from supervision.api.base import Door, account_of, replay_mark
from supervision.api.jobs.shapes import (
    OUTCOMES,
    STATES,
    JobAnswer,
    JobDetailAnswer,
    JobPage,
    JobPreviewAnswer,
    JobSerializer,
    StartedJobAnswer,
)
from supervision.api.permissions import AnyOperators
from supervision.api.reference.schema import IDEMPOTENCY_KEY
from supervision.api.requests import PAGING, answer_of, page_of, refuse_unknown, yes_or_no
from supervision.api.shapes import ReasonSerializer
from supervision.insight.filters import BadFilter
from supervision.jobs import reading, selection, steering
from supervision.models import Job
from supervision.signals.sending import MOST_KEY


class JobsView(Door):
    """Jobs, and starting one."""

    permission_classes = [AnyOperators]

    @extend_schema(
        operation_id="list_jobs", parameters=[OpenApiParameter("state", OpenApiTypes.STR, enum=STATES), *PAGING], responses=JobPage
    )
    def get(self, request: Request) -> Response:
        """Jobs, the newest first."""
        found = Job.objects.all()
        if state := request.query_params.get("state"):
            if state not in STATES:
                raise ValidationError({"state": [_("Expected one of: %(words)s.") % {"words": ", ".join(STATES)}]})
            found = found.filter(state=state)
        return answer_of(found, request, reading.facts, field="started_at", filters=["state"])

    @extend_schema(
        operation_id="start_job",
        request=JobSerializer,
        parameters=[IDEMPOTENCY_KEY],
        responses={200: JobPreviewAnswer, 202: StartedJobAnswer},
    )
    def post(self, request: Request) -> Response:
        """Do a verb to all orders that fit the filter, in the background. With `dry_run`: only say what it would do."""
        said, by, key = self.read(request, JobSerializer), account_of(request), request.headers.get("Idempotency-Key", "")
        if len(key) > MOST_KEY:
            raise ValidationError({"Idempotency-Key": [_("Expected at most %(most)d characters.") % {"most": MOST_KEY}]})
        try:
            if said["dry_run"]:
                shown = selection.preview(said["verb"], selection.by_filter(said["filter"]), said["changes"])
                return Response(reading.preview_facts(shown))
            made = steering.start_once(said["verb"], said["filter"], by=by, reason=said["reason"], changes=said["changes"], token=key)
        except BadFilter as bad:
            raise ValidationError({"filter": {bad.name: [str(bad)]}}) from None
        return Response(reading.facts(made.job), status=202, headers=replay_mark(made.replayed))


class JobView(Door):
    """One job."""

    permission_classes = [AnyOperators]

    @extend_schema(
        operation_id="get_job",
        parameters=[
            OpenApiParameter("outcome", OpenApiTypes.STR, enum=OUTCOMES, description="only the results with this outcome"),
            OpenApiParameter(
                "in_error_again", OpenApiTypes.STR, enum=["true", "false"], description="true: only orders set going that are in Error now"
            ),
            *PAGING,
        ],
        responses=JobDetailAnswer,
    )
    def get(self, request: Request, pk: int) -> Response:
        """The job, its progress, and a page of the results."""
        refuse_unknown(request, ["outcome", "in_error_again", "cursor", "page_size"])
        job = get_object_or_404(Job, pk=pk)
        outcome = request.query_params.get("outcome", "")
        if outcome and outcome not in OUTCOMES:
            raise ValidationError({"outcome": [_("Expected one of: %(words)s.") % {"words": ", ".join(OUTCOMES)}]})
        chosen = reading.results(job, outcome=outcome, again=yes_or_no(request, "in_error_again") or False)
        rows, links = page_of(chosen, request, field="number", descending=False)
        answer = {**reading.facts(job), "in_error_again": reading.in_error_again(job)}
        return Response({**answer, "results": [reading.result_facts(row) for row in rows], **links})


class StopJobView(Door):
    """Stopping a job."""

    permission_classes = [AnyOperators]

    @extend_schema(operation_id="stop_job", request=ReasonSerializer, responses={202: JobAnswer})
    def post(self, request: Request, pk: int) -> Response:
        """Stop the job after the batch under way. It can be resumed; what it has done stays done."""
        job = get_object_or_404(Job, pk=pk)
        steering.stop(job.pk, by=account_of(request), **self.read(request, ReasonSerializer))
        return Response(reading.facts(Job.objects.get(pk=pk)), status=202)


class EndJobView(Door):
    """Ending a stopped job."""

    permission_classes = [AnyOperators]

    @extend_schema(operation_id="end_job", request=ReasonSerializer, responses={200: JobAnswer})
    def post(self, request: Request, pk: int) -> Response:
        """End a stopped job: the orders that have no result yet are left as they are. It cannot be resumed."""
        job = get_object_or_404(Job, pk=pk)
        steering.end(job.pk, by=account_of(request), **self.read(request, ReasonSerializer))
        return Response(reading.facts(Job.objects.get(pk=pk)))


class ResumeJobView(Door):
    """Resuming a stopped job."""

    permission_classes = [AnyOperators]

    @extend_schema(operation_id="resume_job", request=ReasonSerializer, responses={202: JobAnswer})
    def post(self, request: Request, pk: int) -> Response:
        """Let the job go on with the orders that have no result yet, on behalf of this account."""
        job = get_object_or_404(Job, pk=pk)
        steering.resume(job.pk, by=account_of(request), **self.read(request, ReasonSerializer))
        return Response(reading.facts(Job.objects.get(pk=pk)), status=202)
