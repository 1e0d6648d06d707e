"""The shop's pages in the admin: the editable catalogue, and the operators' list of orders (`supervision.console.run_lists`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from babel.numbers import is_currency
from django import forms
from django.contrib import admin
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import mark_safe
from django.utils.translation import gettext_lazy as _
from unfold.decorators import display

from orders import queries, searching, staying
from orders.currencies import decimals
from orders.desk import money
from orders.documents.issuing import of_order as documents_of
from orders.edits.console import LinesDesk
from orders.filters import OrderFilters
from orders.models import Category, Erasure, Order, PaymentEvent, Product, Return
from orders.payments import codes
from orders.payments.console import SEES_EVENTS
from orders.payments.state import adjustments
from orders.privacy.console import sees_erasures
from orders.returns.answers import of_order
from orders.returns.console import SEES_RETURNS
from orders.returns.shown import str_of
from orders.validation import OrderRequestSerializer
from supervision.console import shared, sidebar
from supervision.console.bounded_lists import CountedAdmin, OwnChangesAdmin
from supervision.console.bulk.preview import Preview
from supervision.console.lists.searching import Way
from supervision.console.shared import run_address
from supervision.insight.queries import NamedStep
from supervision.models import Run, StepState

shared.show_runs_at("orders_order")

_UNPAID = _("%(total)s will not be charged, and the goods are still sent. To send nothing, cancel the order.")
_MANY_UNPAID = _("%(n)d orders will not be charged, %(total)s in all, and their goods are still sent. To send nothing, cancel the orders.")
_MANY_LEFT = _("What they were charged stays charged, and what is booked for them stays booked.")
_SAID_TO_BE_PAID = _("You say that %(total)s are paid, and the goods are sent. Look first whether the payment service has the payment.")


class _InTheList(forms.ModelForm):  # type: ignore[type-arg]  # it takes no argument at run time
    """A row of the list of products. Its fields have no labels of their own: each says for screen readers what it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            field.widget.attrs["aria-label"] = f"{self.instance.name}: {field.label}"


class _TheProduct(forms.ModelForm):  # type: ignore[type-arg]  # as above
    """The page of one product. Refuses a price that its currency cannot express, and a currency that does not exist."""

    def clean_currency(self) -> str:
        currency: str = self.cleaned_data["currency"]
        if not is_currency(currency):
            raise forms.ValidationError(_("Expected the three letters (ISO 4217) of a currency, such as EUR."))
        return currency

    def clean(self) -> None:
        super().clean()  # asks for the SKU to be unique
        price, currency = self.cleaned_data.get("price"), self.cleaned_data.get("currency")
        if price is not None and currency and price != round(price, decimals(currency)):
            text = _("Expected an amount without decimals: %(currency)s has none.")
            self.add_error("price", forms.ValidationError(text, params={"currency": currency}))


@admin.register(Product)
class ProductAdmin(OwnChangesAdmin, CountedAdmin):
    """The catalogue. Products cannot be deleted, because orders refer to them: staff make a product inactive instead.

    While a form is open, orders take from the stock: to save the whole row would put it back.
    """

    form = _TheProduct
    list_display = ["name", "sku", "money", "available", "category", "warehouse", "active"]
    list_editable = ["available", "active"]
    list_filter = ["active", "category", "warehouse"]
    list_select_related = ["category"]
    search_fields = ["name", "sku"]
    search_help_text = _("name or SKU")
    list_per_page = 30  # with two fields in each row, more weigh over 100 KB

    @display(description=_("price"), ordering="price")
    def money(self, obj: Product) -> str:
        return money(obj.price, obj.currency)

    def has_delete_permission(self, request: HttpRequest, obj: Product | None = None) -> bool:
        return False

    def get_changelist_form(self, request: HttpRequest, **kwargs: Any) -> type[forms.ModelForm[Any]]:
        form: type[forms.ModelForm[Any]] = super().get_changelist_form(request, form=_InTheList, **kwargs)
        return form


@admin.register(Category)
class CategoryAdmin(OwnChangesAdmin):
    """The shop's categories. Who may see or change products may do so with categories; one that has products cannot be deleted."""

    list_display = ["name", "slug", "position"]
    prepopulated_fields = {"slug": ["name"]}

    def has_view_permission(self, request: HttpRequest, obj: Category | None = None) -> bool:
        return request.user.has_perm("orders.view_product")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Category | None = None) -> bool:
        return request.user.has_perm("orders.change_product")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Category | None = None) -> bool:
        return self.has_change_permission(request)


@admin.register(Order)
class OrderAdmin(LinesDesk):
    """The operators' list of orders."""

    empty_means = _("No order has been placed yet.")
    run_path = "run__"
    newest_first = ("-created_at", "-id")
    list_display = ["number", "email", "money", "state", "step", "attempts", "age", "owner", "error"]
    list_select_related = ["run"]
    filters = OrderFilters()
    search_words = _("number, mail, name, tracking number, payment, error")
    amend_labels = {
        "payment_method": _("Payment method"),
        "email": _("E-mail"),
        "shipping_address.name": _("Name"),
        "shipping_address.line1": _("Address"),
        "shipping_address.line2": _("Address, second line"),
        "shipping_address.city": _("City"),
        "shipping_address.postal_code": _("Postal code"),
        "shipping_address.country_area": _("Province or state"),
        "shipping_address.country": _("Country, two letters"),
    }

    def run_of(self, obj: Order) -> Run:
        return queries.with_runs([obj])[0].run  # an archived order's run comes from the archive

    def check_amended(self, parts: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, list[str]]]:
        serializer = OrderRequestSerializer(data=parts, partial=True)
        if serializer.is_valid():
            return {name: serializer.validated_data[name] for name in parts}, {}
        return parts, dict(_by_place(serializer.errors))

    def ways(self) -> Sequence[Way]:
        return [*searching.ways(), *super().ways()]

    def caution(self, obj: Order, verb: str, steps: Sequence[StepState]) -> str:
        if verb == "abandon":
            run = self.run_of(obj)
            return staying.in_words(obj, run, queries.order_views([obj])[0].steps)
        if verb not in ("skip", "complete") or not any(step.direction == "do" and step.name in codes.TAKES_MONEY for step in steps):
            return ""
        words = _UNPAID if verb == "skip" else _SAID_TO_BE_PAID
        return str(words % {"total": money(obj.total, obj.currency)})

    def caution_many(self, verb: str, shown: Preview) -> str:
        unpaid = [group for group in shown.differ if group.direction == "do" and set(codes.TAKES_MONEY) & set(group.steps)]
        if verb == "abandon":
            return str(_MANY_LEFT)
        if verb != "skip" or not unpaid:
            return ""
        totals: dict[str, Decimal] = defaultdict(Decimal)
        for group in unpaid:
            for currency, amount in group.held:
                totals[currency] += amount
        worth = ", ".join(money(total, currency) for currency, total in sorted(totals.items()))
        return str(_MANY_UNPAID % {"n": sum(group.orders for group in unpaid), "total": worth})

    def export_header(self) -> Sequence[Any]:
        own = [_("Order number"), _("E-mail"), _("Customer"), _("Total"), _("Currency")]
        return [*own, *super().export_header()]

    def export_cells(self, obj: Order, run: Run, step: NamedStep | None) -> Sequence[Any]:
        return [obj.number, obj.email, obj.customer, obj.total, obj.currency, *super().export_cells(obj, run, step)]

    @display(description=_("Total"))
    def money(self, obj: Order) -> str:
        return money(obj.total, obj.currency)

    def money_at_stake(self, objects: Sequence[Order]) -> str:
        totals: dict[str, Decimal] = defaultdict(Decimal)
        for order in objects:
            totals[order.currency] += order.total
        return ", ".join(money(total, currency) for currency, total in sorted(totals.items()))

    def lines(self, obj: Order) -> Sequence[Any]:
        return [
            (line, money(line.unit_price, obj.currency), money(line.unit_price * line.quantity, obj.currency))
            for line in obj.lines.order_by("pk")
        ]

    def facts(self, obj: Order) -> list[tuple[Any, Any]]:
        run = self.run_of(obj)
        address = run.payload.get("shipping_address") or {}
        parts = [address.get(key) for key in ("name", "line1", "line2", "postal_code", "city", "country_area", "country")]
        return [
            (_("Order number"), obj.number),
            (_("Customer"), obj.email),
            (_("Account"), obj.account if obj.account_id else _("guest")),
            (_("Total"), money(obj.total, obj.currency)),
            (_("Ships to"), ", ".join(str(part) for part in parts if part)),
            (_("Payment method"), run.payload.get("payment_method")),
            (_("Parcels"), "; ".join(map(str, queries.order_views([obj])[0].parcels))),
            (_("Refunds and disputes"), "; ".join(map(str, adjustments(obj.public_id)))),
            (_("Returns"), _linked((run_address(one.run_id) if one.run_id else "", str_of(one)) for one in of_order(obj.public_id))),
            (_("Invoices and credit notes"), _linked(_documents(obj.public_id))),
            (_("Placed"), obj.created_at),
            (_("Cancel requested"), run.cancel_requested_at),
            (_("Finished"), run.finished_at),
        ]


def _linked(found: Iterable[tuple[str, str]]) -> str:
    """These texts with their links, one line each; without a link where there is none."""
    parts = (format_html('<a href="{}">{}</a>', address, text) if address else text for address, text in found)
    return format_html_join(mark_safe("<br>"), "{}", ((part,) for part in parts))


def _documents(order: str) -> Iterator[tuple[str, str]]:
    for one in documents_of(order):
        yield reverse("orders:document", args=[order, one.name]), f"{one.name}: {money(one.total, one.currency)}"


def _by_place(errors: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    for name, problems in errors.items():
        if isinstance(problems, dict):
            yield from _by_place(problems, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", [str(problem) for problem in problems]


def navigation(request: HttpRequest) -> list[dict[str, Any]]:
    """The console's side bar: the daily work first, then the shop's catalogue, the engine's supervision and its machinery."""
    shown = sidebar.badges(request, OrderAdmin.filters)
    daily = [
        sidebar.overview_entry(shown),
        *sidebar.entry(request, Order, "receipt_long", badge=shown["error"]),
        *sidebar.entry(request, Return, "assignment_return", permission=SEES_RETURNS),
        *sidebar.entry(request, PaymentEvent, "credit_card", permission=SEES_EVENTS),
        *sidebar.job_entry(request),
        *sidebar.dead_letter_entry(request),
        *sidebar.entry(request, Erasure, "shield_person", title=str(_("Privacy")), permission=sees_erasures(request)),
        *sidebar.entry(request, Product, "inventory_2"),
        *sidebar.entry(request, Category, "category", permission="orders.view_product"),
    ]
    groups = sidebar.engine_groups(request, shown, schedules=project_entries(request, SCHEDULES))
    people = {"title": _("People"), "separator": True, "items": project_entries(request, PEOPLE)}
    return [{"title": _("Daily work"), "items": daily}, *groups, people]


SCHEDULES = [
    ("django_celery_beat", "periodictask", "schedule", _("Schedules")),
    ("django_celery_beat", "intervalschedule", "timer", _("Intervals")),
    ("django_celery_beat", "crontabschedule", "calendar_month", _("Crontabs")),
    ("django_celery_beat", "clockedschedule", "alarm", _("Clocked")),
    ("django_celery_beat", "solarschedule", "wb_sunny", _("Solar events")),
]
PEOPLE = [("auth", "user", "person", _("Users")), ("auth", "group", "group", _("Groups")), ("knox", "authtoken", "key", _("API tokens"))]


def project_entries(request: HttpRequest, models: Sequence[tuple[str, str, str, Any]]) -> list[dict[str, Any]]:
    """The side bar's entries for models of other packages: schedules and people."""
    return [
        {"title": label, "icon": icon, "link": reverse(f"admin:{app}_{model}_changelist")}
        for app, model, icon, label in models
        if request.user.has_perm(f"{app}.view_{model}")
    ]
