"""The API's paths. Any other path below /api/ is answered with a problem document too."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

import orders.api.converters  # noqa: F401 - registers the ids' shapes
from orders.api import catalogue, governance_views, incident_views, operator_views, views, webhooks
from orders.api.errors import problem
from orders.api.events import EventsView

app_name = "api"


@csrf_exempt  # it changes nothing, and its refusal must be a problem document, not Django's CSRF page
def nowhere(request: HttpRequest, rest: str) -> HttpResponse:
    """No such path."""
    hint = "" if rest.endswith("/") else _("Every path of this API ends with a slash.")
    return problem(404, " ".join(filter(None, [_("There is nothing here, or it is not yours to see."), hint])))


order_patterns = [
    path("", views.OrderDetailView.as_view(), name="order"),
    path("events/", EventsView.as_view(), name="events"),
    path("cancel/", views.CancelView.as_view(), name="cancel"),
    path("resubmit/", operator_views.ResubmitView.as_view(), name="resubmit"),
    path("compensate/", operator_views.CompensateView.as_view(), name="compensate"),
    path("skip/", operator_views.SkipView.as_view(), name="skip"),
    path("plan/", operator_views.PlanView.as_view(), name="plan"),
    path("pause/", governance_views.PauseOrderView.as_view(), name="pause"),
    path("resume/", governance_views.ResumeOrderView.as_view(), name="resume"),
]

version_1: list[URLPattern | URLResolver] = [
    path("orders/", views.OrdersView.as_view(), name="orders"),
    path("orders/batch/", views.BatchView.as_view(), name="batch"),
    path("orders/<publicid:public_id>/", include(order_patterns)),
    path("products/", catalogue.ProductsView.as_view(), name="products"),
    path("alerts/", operator_views.AlertsView.as_view(), name="alerts"),
    path("alerts/<rowid:pk>/acknowledge/", operator_views.AcknowledgeView.as_view(), name="acknowledge"),
    path("incidents/", incident_views.IncidentsView.as_view(), name="incidents"),
    path("incidents/<rowid:pk>/", incident_views.IncidentView.as_view(), name="incident"),
    path("incidents/<rowid:pk>/acknowledge/", incident_views.AcknowledgeIncidentView.as_view(), name="acknowledge-incident"),
    path("dead-letters/", operator_views.DeadLettersView.as_view(), name="dead-letters"),
    path("dead-letters/<rowid:pk>/", operator_views.DeadLetterView.as_view(), name="dead-letter"),
    path("dead-letters/<rowid:pk>/requeue/", operator_views.RequeueView.as_view(), name="requeue"),
    path("dead-letters/<rowid:pk>/discard/", operator_views.DiscardView.as_view(), name="discard"),
    path("queues/", governance_views.QueuesView.as_view(), name="queues"),
    path("resources/", governance_views.ResourcesView.as_view(), name="resources"),
    path("resources/<resourcename:name>/", governance_views.ResourceView.as_view(), name="resource"),
    path("webhooks/", webhooks.WebhooksView.as_view(), name="webhooks"),
    path("webhooks/<publicid:public_id>/", webhooks.WebhookView.as_view(), name="webhook"),
    path("reply-tokens/", webhooks.ReplyTokensView.as_view(), name="reply-tokens"),
    path("reply-tokens/<resourcename:name>/", webhooks.ReplyTokenView.as_view(), name="reply-token"),
    path("deliveries/", webhooks.DeliveriesView.as_view(), name="deliveries"),
    path("deliveries/<publicid:public_id>/", webhooks.DeliveryView.as_view(), name="delivery"),
    path("deliveries/<publicid:public_id>/redeliver/", webhooks.RedeliverView.as_view(), name="redeliver"),
    path("pauses/", governance_views.PausesView.as_view(), name="pauses"),
    path("pauses/<rowid:pk>/", governance_views.PauseView.as_view(), name="lift"),
]

urlpatterns = [
    path("v1/", include(version_1)),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("docs/", SpectacularSwaggerView.as_view(url_name="api:schema"), name="docs"),
    re_path(r"^(?P<rest>.*)$", nowhere),
]
