"""The API's paths. Any other path below /api/ is answered with a problem document too."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, include, path, re_path
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.views import SpectacularAPIView

from orders.api import catalogue, corrections, failed_refunds, lines, payouts, reference, refunds, returns, views
from orders.api.events import EventsView
from orders.api.payment import PaymentView
from orders.api.serializers import OrderAnswer, ResubmitSerializer
from supervision.api import urls as operators
from supervision.api.errors import problem

app_name = "api"


@csrf_exempt  # it changes nothing, and its refusal must be a problem document, not Django's CSRF page  # nosemgrep: door-without-csrf
def nowhere(request: HttpRequest, rest: str) -> HttpResponse:
    """No such path."""
    hint = "" if rest.endswith("/") else _("Every path of this API ends with a slash.")
    return problem(404, " ".join(filter(None, [_("There is nothing here, or it is not yours to see."), hint])))


class Schema(SpectacularAPIView):
    """The OpenAPI schema, as YAML or JSON by the Accept header; `?format=json` and `?format=yaml` choose for browsers."""

    def get_renderers(self) -> list[Any]:
        """Those of the format asked for; all of them where it is unknown."""
        every = super().get_renderers()
        return [one for one in every if one.format == self.request.GET.get("format")] or every


order_patterns = [
    path("", views.OrderDetailView.as_view(), name="order"),
    path("events/", EventsView.as_view(), name="events"),
    path("cancel/", views.CancelView.as_view(), name="cancel"),
    path("payment/", PaymentView.as_view(), name="payment"),
    path("returns/", returns.OrderReturnsView.as_view(), name="returns"),
    path("failed-refunds/", failed_refunds.FailedRefundsView.as_view(), name="failed-refunds"),
    path("lines/", lines.LinesView.as_view(answer=OrderAnswer), name="lines"),
    path("refunds/", refunds.OrderRefundsView.as_view(), name="refunds"),
    *operators.order_verbs(OrderAnswer, ResubmitSerializer),
]

version_1: list[URLPattern | URLResolver] = [
    path("orders/", views.OrdersView.as_view(), name="orders"),
    path("orders/batch/", views.BatchView.as_view(), name="batch"),
    path("orders/<publicid:public_id>/", include(order_patterns)),
    path("returns/<publicid:public_id>/", returns.ReturnDetailView.as_view(), name="return"),
    path("returns/<publicid:public_id>/goods/", returns.GoodsView.as_view(), name="return-goods"),
    path("returns/<publicid:public_id>/correction/", corrections.CorrectionView.as_view(), name="return-correction"),
    path("returns/<publicid:public_id>/correction/plan/", corrections.CorrectionPlanView.as_view(), name="return-correction-plan"),
    path("returns/<publicid:public_id>/payout/", payouts.ReturnPayoutView.as_view(), name="return-payout"),
    path("refunds/<publicid:public_id>/payout/", payouts.RefundPayoutView.as_view(), name="refund-payout"),
    path("products/", catalogue.ProductsView.as_view(), name="products"),
    *operators.patterns,
]

urlpatterns = [
    path("v1/", include(version_1)),
    path("schema/", Schema.as_view(), name="schema"),
    path("docs/", reference.page, name="docs"),
    re_path(r"^(?P<rest>.*)$", nowhere),
]
