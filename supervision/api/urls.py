"""The API's paths: `path("api/", include("supervision.api.urls"))`, or `patterns` and `order_verbs` beside an application's own.

A path whose id has another form matches no view.
"""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, register_converter
from django.urls.converters import IntConverter, StringConverter

from supervision.api import governance_views, incident_views, operator_views, webhooks
from supervision.api.approvals import views as approvals
from supervision.api.desk import views as desk
from supervision.api.jobs import views as job_views
from supervision.api.shapes import ResubmitSerializer, RunAnswer, Shape, Strict, signalled

app_name = "supervision-api"


class PublicId(StringConverter):
    """An order's public id: URL-safe base64, as `secrets.token_urlsafe` writes it. That of a child run ends with its place."""

    regex = r"[A-Za-z0-9_-]{16,64}(?:(?::[A-Za-z0-9_.-]{1,100}(?:\[[0-9]{1,5}\])?(?::[0-9]{1,5})?:child){1,5})?"


class RowId(IntConverter):
    """A row's number, no larger than the column."""

    regex = "[0-9]{1,18}"


class ResourceName(StringConverter):
    """A resource's name, in the form that the console accepts from operators."""

    regex = "[A-Za-z0-9_.-]{1,100}"


register_converter(PublicId, "publicid")
register_converter(ResourceName, "resourcename")
register_converter(RowId, "rowid")


def order_verbs(answer: type[Shape] = RunAnswer, resubmit: type[Strict] = ResubmitSerializer) -> list[URLPattern]:
    """The paths below one order, whose own path is named `order`.

    answer: the shape of what the directory answers for an order. resubmit: of a resubmission, with the fields that may be amended.
    """
    return [
        path("resubmit/", operator_views.ResubmitView.as_view(answer=answer, asks=resubmit), name="resubmit"),
        path("compensate/", operator_views.CompensateView.as_view(answer=answer), name="compensate"),
        path("abandon/", operator_views.AbandonView.as_view(answer=answer), name="abandon"),
        path("skip/", operator_views.SkipView.as_view(answer=answer), name="skip"),
        path("complete/", operator_views.CompleteView.as_view(answer=answer), name="complete"),
        path("move/", operator_views.MoveView.as_view(answer=answer), name="move"),
        path("resume-from/", operator_views.ResumeFromView.as_view(answer=answer), name="resume-from"),
        path("signals/<resourcename:name>/", operator_views.SignalView.as_view(answer=signalled(answer)), name="signal"),
        path("family/", operator_views.FamilyView.as_view(), name="family"),
        path("notes/", desk.OrderNotesView.as_view(), name="notes"),
        path("owner/", desk.OrderOwnerView.as_view(), name="owner"),
        path("plan/", operator_views.PlanView.as_view(), name="plan"),
        path("pause/", governance_views.PauseOrderView.as_view(answer=answer), name="pause"),
        path("resume/", governance_views.ResumeOrderView.as_view(answer=answer), name="resume"),
    ]


patterns: list[URLPattern | URLResolver] = [
    path("alerts/", incident_views.AlertsView.as_view(), name="alerts"),
    path("alerts/<rowid:pk>/acknowledge/", incident_views.AcknowledgeView.as_view(), name="acknowledge"),
    path("incidents/", incident_views.IncidentsView.as_view(), name="incidents"),
    path("incidents/<rowid:pk>/", incident_views.IncidentView.as_view(), name="incident"),
    path("incidents/<rowid:pk>/acknowledge/", incident_views.AcknowledgeIncidentView.as_view(), name="acknowledge-incident"),
    path("incidents/<rowid:pk>/notes/", desk.IncidentNotesView.as_view(), name="incident-notes"),
    path("incidents/<rowid:pk>/owner/", desk.IncidentOwnerView.as_view(), name="incident-owner"),
    path("jobs/", job_views.JobsView.as_view(), name="jobs"),
    path("jobs/<rowid:pk>/", job_views.JobView.as_view(), name="job"),
    path("jobs/<rowid:pk>/stop/", job_views.StopJobView.as_view(), name="stop-job"),
    path("jobs/<rowid:pk>/end/", job_views.EndJobView.as_view(), name="end-job"),
    path("jobs/<rowid:pk>/resume/", job_views.ResumeJobView.as_view(), name="resume-job"),
    path("approvals/", approvals.ApprovalsView.as_view(), name="approvals"),
    path("approvals/<rowid:pk>/", approvals.ApprovalView.as_view(), name="approval"),
    path("approvals/<rowid:pk>/approve/", approvals.ApproveView.as_view(), name="approve"),
    path("approvals/<rowid:pk>/refuse/", approvals.RefuseView.as_view(), name="refuse"),
    path("dead-letters/", operator_views.DeadLettersView.as_view(), name="dead-letters"),
    path("dead-letters/<rowid:pk>/", operator_views.DeadLetterView.as_view(), name="dead-letter"),
    path("dead-letters/<rowid:pk>/requeue/", operator_views.RequeueView.as_view(), name="requeue"),
    path("dead-letters/<rowid:pk>/discard/", operator_views.DiscardView.as_view(), name="discard"),
    path("queues/", governance_views.QueuesView.as_view(), name="queues"),
    path("resources/", governance_views.ResourcesView.as_view(), name="resources"),
    path("resources/<resourcename:name>/", governance_views.ResourceView.as_view(), name="resource"),
    path("webhooks/", webhooks.WebhooksView.as_view(), name="webhooks"),
    path("webhooks/<publicid:public_id>/", webhooks.WebhookView.as_view(), name="webhook"),
    path("webhooks/<publicid:public_id>/test/", webhooks.TestWebhookView.as_view(), name="test-webhook"),
    path("reply-tokens/", webhooks.ReplyTokensView.as_view(), name="reply-tokens"),
    path("reply-tokens/<resourcename:name>/", webhooks.ReplyTokenView.as_view(), name="reply-token"),
    path("deliveries/", webhooks.DeliveriesView.as_view(), name="deliveries"),
    path("deliveries/<publicid:public_id>/", webhooks.DeliveryView.as_view(), name="delivery"),
    path("deliveries/<publicid:public_id>/redeliver/", webhooks.RedeliverView.as_view(), name="redeliver"),
    path("pauses/", governance_views.PausesView.as_view(), name="pauses"),
    path("pauses/<rowid:pk>/", governance_views.PauseView.as_view(), name="lift"),
]

_order = [
    path("", operator_views.OrderView.as_view(), name="order"),
    path("cancel/", operator_views.CancelView.as_view(), name="cancel"),
]

urlpatterns = [
    path("orders/<publicid:public_id>/", include([*_order, *order_verbs()])),
    *patterns,
]
