"""What operators do for the customer of a finished order, on the order's page: give money back, send the mail again."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.loader import render_to_string
from django.urls import URLPattern, path, reverse
from django.utils.formats import number_format
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminEmailInputWidget

from orders import formats, queries
from orders.mails import codes as mails
from orders.mails.resending import resend
from orders.models import MailAgain, Order, Refund
from orders.payments.state import charge_of
from orders.refunds import asking, codes
from orders.refunds.again import Failed, failed_of, pay_again
from orders.returns import answers
from orders.returns.correction_pages import CorrectionPages, correctable
from orders.services import Conflict, InvalidOrder, KeyReused
from supervision.approvals import rights
from supervision.console.run_lists import labelled
from supervision.console.shared import run_address
from supervision.console.verb_forms import ReasonForm
from supervision.errors import AwaitsApproval, Refused, UnknownRun
from supervision.models import Run
from supervision.states import RunState


class _Once(ReasonForm):
    """Its key is made with the form: a second click has no second effect."""

    key = forms.CharField(max_length=64, initial=partial(secrets.token_urlsafe, 16), widget=forms.HiddenInput)


class RefundForm(_Once):
    """How much goes back, and why."""

    amount = forms.DecimalField(label=_("Amount"), max_digits=12, decimal_places=2, widget=UnfoldAdminDecimalFieldWidget)
    field_order = ("amount", "reason")


class ResendForm(_Once):
    """Where the mail goes, and why."""

    email = forms.EmailField(label=_("E-mail"), widget=UnfoldAdminEmailInputWidget)
    field_order = ("email", "reason")


class OrderDesk(CorrectionPages):
    """Adds to the page of an order what happened after it, and the pages that ask for more."""

    def get_urls(self) -> list[URLPattern]:
        guard = self.admin_site.admin_view
        return [
            path("<int:object_id>/refund/", guard(self.refund_view), name="orders_order_refund"),
            path("<int:object_id>/pay-again/<str:refund>/", guard(self.pay_again_view), name="orders_order_pay_again"),
            path("<int:object_id>/resend/", guard(self.resend_view), name="orders_order_resend"),
            *super().get_urls(),
        ]

    def panels(self, request: HttpRequest, obj: Order, /) -> Sequence[SafeString]:
        refunds = list(Refund.objects.filter(order_key=obj.public_id).order_by("pk"))
        again = list(MailAgain.objects.filter(order_key=obj.public_id).order_by("pk"))
        failed = failed_of(obj.public_id)
        if self.run_of(obj).process_state != RunState.PROCESSED and not (refunds or again or failed):
            return [*super().panels(request, obj)]
        keys = [*(row.public_id for row in refunds), *(row.public_id for row in again)]
        runs = {run.key: run for run in Run.objects.filter(key__in=keys)}
        rest = _left(obj)
        context = {
            "refunds": [(row, money(row.amount, row.currency), *_standing(runs.get(row.public_id))) for row in refunds],
            "failed": [(one, money(one.amount, one.currency), self._pays_again(obj, one)) for one in failed],
            "mails": [(row, *_standing(runs.get(row.public_id))) for row in again],
            "left": None if rest is None else money(rest, obj.currency),
            "refund_at": reverse("admin:orders_order_refund", args=[obj.pk]) if rest else "",
            "resend_at": reverse("admin:orders_order_resend", args=[obj.pk]) if len(again) < mails.MOST else "",
            "correctable": correctable(obj, answers.of_order(obj.public_id)) if rights.may(request.user, "") else [],
            "may_refund": rights.may(request.user, codes.VERB),
            "may_act": self.has_operate_permission(request),
        }
        return [*super().panels(request, obj), render_to_string("admin/orders/_afterwards.html", context, request)]

    def refund_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """Give a part of the charge back: GET asks, POST does it once."""
        order = self._to_act_on(request, object_id, codes.VERB)
        rest = _left(order)
        lead = _("Of the charge %(left)s are left. The money goes back to the customer's card, once, and the customer gets a mail.")
        if charge_of(queries.order_views([order])[0].steps) is None:
            lead = _(
                "%(left)s of the customer's transfer are left. Make the transfer at the bank, then record it: the refund waits for that. "
                "The customer gets a mail."
            )
        words = lead % {"left": money(rest or Decimal(0), order.currency)}
        form = RefundForm(request.POST if request.method == "POST" else None)

        def act(said: Mapping[str, Any]) -> Any:
            made = asking.refund(
                order.public_id, amount=said["amount"], reason=said["reason"], by=request.user, idempotency_key=said["key"]
            )  # fmt: skip
            return _("This refund was asked for before.") if made.replayed else _("The money goes back.")

        return self._ask(request, order, form, act, title=_("Give money back"), lead=words, button=_("Give back"), dangerous=True)

    def pay_again_view(self, request: HttpRequest, object_id: int, refund: str) -> HttpResponse:
        """Send the money of a failed refund again: GET asks, POST does it once."""
        order = self._to_act_on(request, object_id, codes.VERB)
        one = next((one for one in failed_of(order.public_id) if one.refund == refund), None)
        amount = "" if one is None else money(one.amount, one.currency)
        lead = _("Refund %(id)s has failed: the customer has not got %(amount)s. The same amount is sent to the card again, once.")
        form = _Once(request.POST if request.method == "POST" else None)

        def act(said: Mapping[str, Any]) -> Any:
            made = pay_again(order.public_id, refund, reason=said["reason"], by=request.user, idempotency_key=said["key"])
            return _("This refund was asked for before.") if made.replayed else _("The money goes back.")

        if one is None and request.method != "POST":
            messages.error(request, _("This order has no failed refund %(id)s that is still owed.") % {"id": refund})
            return HttpResponseRedirect(self._address("change", order.pk))
        words = lead % {"id": refund, "amount": amount}
        return self._ask(request, order, form, act, title=_("Pay again"), lead=words, button=_("Pay again"), dangerous=True)

    def resend_view(self, request: HttpRequest, object_id: int) -> HttpResponse:
        """Send the mail that the order is on its way once more: GET asks, POST does it once."""
        order = self._to_act_on(request, object_id)
        form = ResendForm(request.POST if request.method == "POST" else None, initial={"email": order.email})

        def act(said: Mapping[str, Any]) -> Any:
            made = resend(order.public_id, email=said["email"], reason=said["reason"], by=request.user, idempotency_key=said["key"])
            return _("This mail was asked for before.") if made.replayed else _("The mail is sent again.")

        lead = _("The mail that the order is on its way is sent once more.")
        return self._ask(request, order, form, act, title=_("Send the mail again"), lead=lead, button=_("Send"))

    def _pays_again(self, order: Order, failed: Failed) -> str:
        return "" if failed.under_way else reverse("admin:orders_order_pay_again", args=[order.pk, failed.refund])

    def _to_act_on(self, request: HttpRequest, object_id: int, verb: str = "") -> Order:
        """The order, for an account that may do this verb; without one, for those that may do all."""
        if not rights.may(request.user, verb):
            raise PermissionDenied
        order: Order = self.row(request, object_id)
        return order

    def _ask(self, request: HttpRequest, order: Order, form: forms.Form, act: Any, **words: Any) -> HttpResponse:
        back = self._address("change", order.pk)
        if form.is_valid():
            try:
                messages.success(request, act(form.cleaned_data))
            except AwaitsApproval as waits:
                messages.warning(request, str(waits))
                return HttpResponseRedirect(back)
            except (InvalidOrder, Conflict) as wrong:
                for name, problems in wrong.errors.items():
                    form.add_error(name if name in form.fields else None, problems)
            except (KeyReused, Refused, UnknownRun) as refusal:
                messages.error(request, str(refusal))
                return HttpResponseRedirect(back)
            else:
                return HttpResponseRedirect(back)
        return self.page(request, "ask.html", subtitle=str(order), object=order, form=form, back=back, **words)


def money(amount: Decimal, currency: str) -> str:
    """An amount in the number format of the active language."""
    return f"{number_format(amount, formats.shown(amount, currency), use_l10n=True, force_grouping=True)} {currency}"


def _left(order: Order) -> Decimal | None:
    """What of the order's charge can still be given back; None where no refund is possible."""
    view = queries.order_views([order])[0]
    try:
        return asking.left(view)
    except Conflict:
        return None


def _standing(run: Run | None) -> tuple[str, Any, str]:
    """The state of a run, its words, and its page. One that is not taken up yet, or archived, has no page."""
    if run is None:
        return "", _("accepted"), ""
    return run.process_state, labelled(run.process_state)[1], run_address(run.pk)
