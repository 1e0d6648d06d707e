"""The operators' views: plans and actions for one order, alerts, dead letters."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict
from typing import Any

from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from supervision.api.base import Door, account_of
from supervision.api.permissions import Operators, Senders, Watchers
from supervision.api.requests import PAGING, answer_of, demand_match, refuse_unknown, tagged, yes_or_no
from supervision.api.shapes import (
    ActSerializer,
    CompleteSerializer,
    DeadLetterAnswer,
    DeadLetterPage,
    FamilyAnswer,
    MoveSerializer,
    PlanAnswer,
    ReasonSerializer,
    ResubmitSerializer,
    ResumeFromSerializer,
    RunAnswer,
    Shape,
    SignalSerializer,
    StepSerializer,
    Strict,
)
from supervision.approvals import rights
from supervision.approvals.actors import Exempt
from supervision.errors import Refused, UnknownRun
from supervision.insight import directory, family
from supervision.insight.directory import Entry
from supervision.insight.queries import iso
from supervision.models import DeadLetter, Submission
from supervision.operations import completing, moving, operator_verbs, previews, resuming
from supervision.operations.ending import abandoning
from supervision.signals.sending import told

TEXT_SHOWN = 4096
PLANS = ("resubmit", "skip", "complete", "compensate", "abandon", "move", "resume")


class VerbDoor(Door):
    """A view through which an operator acts on one order. asks, answer: the shapes of its request and of the order."""

    permission_classes = [Operators]
    asks: type[Strict] = ActSerializer
    answer: type[Shape] = RunAnswer
    may_wait = True  # for another operator's approval
    matches = True
    seen: str | None = None  # the version of the plan that If-Match stands for

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """The checks of each view; and with If-Match, whether the order is as the client saw it."""
        super().initial(request, *args, **kwargs)
        if request.method == "POST" and "If-Match" in request.headers:
            entry = self.find(kwargs["public_id"])
            # First the plan, then the answer: if the tag fits, the verb, which compares the plan under its lock, sees no other state.
            if entry.run_id is not None and issubclass(self.asks, ActSerializer) and not issubclass(self.asks, MoveSerializer):
                self.seen = previews.seen(previews.as_it_is(entry.key))
            demand_match(self.find(entry.key).answer, request)

    def read(self, request: Request, serializer: type[BaseSerializer[Any]]) -> dict[str, Any]:
        """The validated body."""
        given = super().read(request, serializer)
        return given | {"plan_version": given.get("plan_version") or self.seen} if self.seen else given

    def find(self, public_id: str) -> Entry:
        """The order, as the application's directory finds it. Raises UnknownRun."""
        entry = directory.find(public_id)
        if entry is None:
            raise UnknownRun(public_id)
        return entry

    def order_with_run(self, public_id: str) -> None:
        """Check that the order has a run. Raises UnknownRun, or Refused: it is not taken up yet, or a dead letter."""
        if self.find(public_id).run_id is None:
            raise previews.without_run(public_id)

    def now(self, public_id: str) -> Response:
        """The order after the action: 202 with its address."""
        place = self.request.resolver_match
        address = reverse(f"{place.namespace}:order" if place and place.namespace else "order", args=[public_id])
        return Response(self.find(public_id).answer, status=202, headers={"Location": address})


class OrderView(VerbDoor):
    """One order, for an application that has no view of its own."""

    permission_classes = [Watchers]

    @extend_schema(operation_id="get_order", responses=RunAnswer)
    def get(self, request: Request, public_id: str) -> Response:
        """The order with its steps."""
        return tagged(self.find(public_id).answer, request)


class FamilyView(VerbDoor):
    """The relatives of one order."""

    permission_classes = [Watchers]

    @extend_schema(operation_id="get_order_family", responses=FamilyAnswer)
    def get(self, request: Request, public_id: str) -> Response:
        """The order's parent and its children. An ordinary order has neither."""
        refuse_unknown(request, [])
        self.find(public_id)
        return Response(family.of(public_id).answer)


class ResubmitView(VerbDoor):
    """Running the failed step again."""

    verb = "resubmit"

    asks = ResubmitSerializer

    @extend_schema(operation_id="resubmit_order")
    def post(self, request: Request, public_id: str) -> Response:
        """Run only the failed step again, or each failed step of a plan that branches, or the one that `step` names.

        With `attempt`, only the first caller that saw that attempt gets 202.
        """
        self.order_with_run(public_id)
        operator_verbs.resubmit(public_id, by=account_of(request), **self.read(request, self.asks))
        return self.now(public_id)


class CancelView(VerbDoor):
    """Cancelling one order, for an application that has no view of its own."""

    verb = "cancel"

    @extend_schema(operation_id="cancel_order")
    def post(self, request: Request, public_id: str) -> Response:
        """The order will end Cancelled (or Error while an undo is stuck), never Processed. Also before it is taken up."""
        self.find(public_id)
        operator_verbs.cancel(public_id, by=account_of(request), **self.read(request, self.asks))
        return self.now(public_id)


class CompensateView(VerbDoor):
    """Undoing one order."""

    verb = "compensate"

    @extend_schema(operation_id="compensate_order")
    def post(self, request: Request, public_id: str) -> Response:
        """Undo every step that was done or may have been done, in reverse order."""
        self.order_with_run(public_id)
        operator_verbs.compensate(public_id, by=account_of(request), **self.read(request, self.asks))
        return self.now(public_id)


class AbandonView(VerbDoor):
    """Cancelling one order without undo."""

    verb = "abandon"

    @extend_schema(operation_id="abandon_order")
    def post(self, request: Request, public_id: str) -> Response:
        """Cancel the order without undo: what remote services did for it stays, by your decision.

        What our own database holds for it is given back, unless its goods are booked. 409 while an undo step is running.
        """
        self.order_with_run(public_id)
        abandoning.abandon(public_id, by=account_of(request), **self.read(request, self.asks))
        return self.now(public_id)


class SkipView(VerbDoor):
    """Skipping the failed step."""

    verb = "skip"

    asks = StepSerializer

    @extend_schema(operation_id="skip_step")
    def post(self, request: Request, public_id: str) -> Response:
        """Skip the failed step and continue with the next one. Where several branches have failed, `step` names the one to skip."""
        self.order_with_run(public_id)
        operator_verbs.skip(public_id, by=account_of(request), **self.read(request, self.asks))
        return self.now(public_id)


class CompleteView(VerbDoor):
    """Recording that a step was done by hand."""

    verb = "complete"

    asks = CompleteSerializer

    @extend_schema(operation_id="complete_step")
    def post(self, request: Request, public_id: str) -> Response:
        """Record that the failed or waiting step was done by hand, with its result, and continue with the next one."""
        self.order_with_run(public_id)
        completing.complete(public_id, by=account_of(request), **self.read(request, self.asks))
        return self.now(public_id)


class MoveView(VerbDoor):
    """Going on with a newer version of the workflow."""

    verb = "move"

    asks = MoveSerializer

    @extend_schema(operation_id="move_order")
    def post(self, request: Request, public_id: str) -> Response:
        """Go on with this version of the workflow, or the newest. Steps that have begun are kept, the others are planned again.

        409 with all reasons where the version does not agree with what has begun.
        """
        self.order_with_run(public_id)
        moving.move(public_id, by=account_of(request), **self.read(request, self.asks))
        return self.now(public_id)


class ResumeFromView(VerbDoor):
    """Going on from an earlier step."""

    verb = "resume"

    asks = ResumeFromSerializer

    @extend_schema(operation_id="resume_order_from_step")
    def post(self, request: Request, public_id: str) -> Response:
        """Undo this step and all that came after it, and then do them anew under new keys.

        409 with all reasons where an effect cannot be undone or is not known.
        """
        self.order_with_run(public_id)
        given = self.read(request, self.asks)
        resuming.resume_from(public_id, given.pop("step"), by=account_of(request), **given)
        return self.now(public_id)


class SignalView(VerbDoor):
    """Sending one order a signal."""

    verb = "signal"
    permission_classes = [Senders]
    asks = SignalSerializer

    @extend_schema(
        operation_id="signal_order",
        parameters=[OpenApiParameter("Idempotency-Key", OpenApiTypes.STR, OpenApiParameter.HEADER, required=True)],
    )
    def post(self, request: Request, public_id: str, name: str) -> Response:
        """Send the signal, as an operator or as the order's client. It may come early. The same key has one effect.

        The answer's `signal` says what became of it. `late`: it is kept, but no step of the order waits for it any more.
        """
        account = account_of(request)
        operates = rights.may(account, "signal")
        if not operates:
            if not Submission.objects.filter(public_id=public_id, client=directory.current().client_of(account)).exists():
                raise UnknownRun(public_id)
            directory.demand_of_client(name)
        key = request.headers.get("Idempotency-Key", "")
        if not key:
            raise ValidationError({"Idempotency-Key": [_("This header is required.")]})
        given = self.read(request, self.asks)
        try:
            by = account if operates else Exempt(account)
            reason = given["reason"] or _("no reason given")
            sent = operator_verbs.signal(
                public_id, name, by=by, reason=reason, payload=given["payload"], signal_key=key, by_client=not operates
            ).outcome
        except Refused as refusal:
            if field := {"signal_payload": "payload", "signal_key": "Idempotency-Key"}.get(refusal.code):
                raise ValidationError({field: [str(refusal)]}) from None
            raise
        answer = self.now(public_id)
        answer.data["signal"] = {"outcome": str(sent), "message": told(public_id, sent)}
        return answer


class PlanView(VerbDoor):
    """The plan of an action, before the operator confirms it."""

    @extend_schema(
        operation_id="plan_order",
        parameters=[
            OpenApiParameter("action", OpenApiTypes.STR, enum=PLANS),
            OpenApiParameter("version", OpenApiTypes.INT, description="of the workflow, for `move`; without it, the newest"),
            OpenApiParameter("step", OpenApiTypes.STR, description="from which the order goes on, for `resume`"),
        ],
        responses=PlanAnswer,
    )
    def get(self, request: Request, public_id: str) -> Response:
        """The steps that the action would run, the steps it would keep, and the keys that the services have seen."""
        refuse_unknown(request, ["action", "version", "step"])
        action = request.query_params.get("action", PLANS[0])
        if action not in PLANS:
            raise ValidationError({"action": [_("Expected one of: %(words)s.") % {"words": ", ".join(PLANS)}]})
        version = request.query_params.get("version")
        if version is not None and (action != "move" or not (version.isascii() and version.isdecimal() and len(version) < 6)):
            raise ValidationError({"version": [_("Expected the number of a version, for the action move.")]})
        step = request.query_params.get("step", "")
        if bool(step) != (action == "resume"):
            raise ValidationError({"step": [_("Expected the name of a step, for the action resume.")]})
        self.order_with_run(public_id)
        if action == "resume":
            return Response(asdict(resuming.plan(public_id, step)))
        found = moving.plan(public_id, None if version is None else int(version)) if action == "move" else previews.plan(public_id, action)
        return Response(asdict(found))


class DeadLettersView(Door):
    """Messages and submissions that the consumers could not read."""

    permission_classes = [Watchers]

    @extend_schema(
        operation_id="list_dead_letters",
        parameters=[
            OpenApiParameter("resolved", OpenApiTypes.STR, enum=["true", "false"], description="only these; else all"),
            *PAGING,
        ],
        responses=DeadLetterPage,
    )
    def get(self, request: Request) -> Response:
        """Dead letters with their exact bytes, newest first."""
        found = DeadLetter.objects.all()
        if (resolved := yes_or_no(request, "resolved")) is not None:
            found = found.filter(resolved_at__isnull=not resolved)
        return answer_of(found, request, _letter, field="created_at", filters=["resolved"])


class DeadLetterView(Door):
    """One dead letter."""

    permission_classes = [Watchers]

    @extend_schema(operation_id="get_dead_letter", responses=DeadLetterAnswer)
    def get(self, request: Request, pk: int) -> Response:
        """The dead letter with its exact bytes."""
        return Response(_letter(get_object_or_404(DeadLetter, pk=pk)))


class RequeueView(Door):
    """Requeueing a dead letter."""

    permission_classes = [Operators]
    verb = rights.LETTERS

    @extend_schema(operation_id="requeue_dead_letter", request=ReasonSerializer, responses={202: DeadLetterAnswer})
    def post(self, request: Request, pk: int) -> Response:
        """Return it to its source, byte for byte: a submission waits again, a message goes into its queue again."""
        get_object_or_404(DeadLetter, pk=pk)
        operator_verbs.requeue_dead_letter(pk, by=account_of(request), **self.read(request, ReasonSerializer))
        return Response(_letter(DeadLetter.objects.get(pk=pk)), status=202)


class DiscardView(Door):
    """Discarding a dead letter."""

    permission_classes = [Operators]
    verb = rights.LETTERS

    @extend_schema(operation_id="discard_dead_letter", request=ReasonSerializer, responses={202: DeadLetterAnswer})
    def post(self, request: Request, pk: int) -> Response:
        """Close it for good; its bytes are kept."""
        get_object_or_404(DeadLetter, pk=pk)
        operator_verbs.discard_dead_letter(pk, by=account_of(request), **self.read(request, ReasonSerializer))
        return Response(_letter(DeadLetter.objects.get(pk=pk)), status=202)


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.pk,
        "source": letter.source,
        "content_type": letter.content_type,
        "headers": letter.headers,
        "delivery": letter.delivery,
        "reason": letter.reason,
        "deliveries": letter.deliveries,
        "public_id": letter.public_id,
        "created_at": iso(letter.created_at),
        "resolved_at": iso(letter.resolved_at),
        "resolution": letter.resolution,
        "body": b64encode(bytes(letter.body)).decode(),
        "text": bytes(letter.body[:TEXT_SHOWN]).decode("utf-8", "backslashreplace"),
    }
