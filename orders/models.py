"""The shop's tables: facts, no transitions. An order's state is the state of its run; the shop's tables do not repeat it.

The data that agents need (address, payment method, priced lines) is stored once, in the run's payload, where an operator
may correct it. The order keeps what the customer agreed to.
"""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVector
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from orders.accents import without_accents
from orders.accounts.tables import SavedAddress, VerifiedEmail
from orders.documents.tables import Document, DocumentCounter
from orders.identity.tables import TokenGrant
from orders.mails.tables import MailAgain
from orders.parcels.tables import Parcel, ParcelCursor, ParcelEvent, ParcelWatch
from orders.privacy.tables import Erasure
from orders.refunds.tables import Refund
from orders.returns.tables import ReturnCorrection
from orders.shelves.tables import WORDS, WORDS_AS_WRITTEN, Category
from supervision.models import Run

__all__ = [
    "Category",
    "Document",
    "DocumentCounter",
    "Erasure",
    "MailAgain",
    "Order",
    "OrderLine",
    "Parcel",
    "ParcelCursor",
    "ParcelEvent",
    "ParcelWatch",
    "PaymentAdjustment",
    "PaymentEvent",
    "Product",
    "Refund",
    "ReturnCorrection",
    "SavedAddress",
    "StockReservation",
    "TokenGrant",
    "VerifiedEmail",
]


class Product(models.Model):
    """A product; `available` is the quantity that can still be sold. Products of two warehouses travel in two parcels."""

    sku = models.SlugField(_("SKU"), max_length=64, unique=True)
    name = models.CharField(_("name"), max_length=200)
    description = models.TextField(_("description"), blank=True, db_default="")
    price = models.DecimalField(_("price"), max_digits=10, decimal_places=2, validators=[MinValueValidator(0)])
    currency = models.CharField(_("currency"), max_length=3, db_default="EUR", default="EUR")
    available = models.IntegerField(_("available"), db_default=0, default=0)
    active = models.BooleanField(_("active"), db_default=True, default=True)
    picture = models.CharField(_("picture"), max_length=100, blank=True, db_default="")
    warehouse = models.SlugField(_("warehouse"), max_length=64, db_index=False, db_default="main", default="main")
    category = models.ForeignKey(
        Category,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_constraint=False,
        db_index=False,
        related_name="products",
        verbose_name=_("category"),
    )
    vat_rate = models.DecimalField(
        _("VAT rate"),
        max_digits=4,
        decimal_places=2,
        null=True,
        blank=True,
        validators=[MinValueValidator(0)],
        help_text=_("In percent, included in the price. Empty: the shop's usual rate."),
    )

    class Meta:
        verbose_name = _("product")
        verbose_name_plural = _("products")
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(name="stock_is_never_oversold", condition=Q(available__gte=0)),
            models.CheckConstraint(name="a_price_is_not_negative", condition=Q(price__gte=0)),
        ]
        # None has `available`: an order that takes from the stock writes no index.
        indexes = [
            models.Index(name="product_by_name", fields=["name", "id"], condition=Q(active=True)),
            models.Index(name="product_by_price", fields=["price", "id"], condition=Q(active=True)),
            models.Index(name="product_by_category", fields=["category", "name", "id"], condition=Q(active=True)),
            GinIndex(WORDS, name="product_words_plain", fastupdate=False),  # without a list of what waits to be put into the index
            GinIndex(WORDS_AS_WRITTEN, name="product_words", fastupdate=False),  # for processes of 0.1; to be dropped after it
        ]

    def __str__(self) -> str:
        return self.name


class StockReservation(models.Model):
    """Pieces taken out of `available` for one order, under the step's idempotency key: taken and released once."""

    idempotency_key = models.TextField(_("idempotency key"))
    order_key = models.TextField(_("order"), db_index=True)
    sku = models.CharField(_("SKU"), max_length=64)
    quantity = models.IntegerField(_("quantity"))
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    released_at = models.DateTimeField(_("released at"), null=True)

    class Meta:
        verbose_name = _("stock reservation")
        verbose_name_plural = _("stock reservations")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="a_key_reserves_a_product_once", fields=["idempotency_key", "sku"]),
            models.CheckConstraint(name="a_reservation_takes_something", condition=Q(quantity__gt=0)),
        ]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.sku}"


class Order(models.Model):
    """The purchase that a customer agreed to. Written together with its run, in one transaction, from a submission.

    customer: the name of its shipping address, to search for.
    """

    public_id = models.CharField(_("public id"), max_length=64, unique=True)
    number = models.CharField(_("number"), max_length=20, unique=True)
    run = models.OneToOneField(Run, on_delete=models.PROTECT, related_name="order", db_constraint=False, verbose_name=_("run"))
    account = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="orders",
        verbose_name=_("account"),
        db_index=False,  # `order_of_account` begins with it
    )
    email = models.EmailField(_("e-mail"), db_index=True)  # 0040 adds `order_mail`, 0041 drops Django's second index of it
    total = models.DecimalField(_("total"), max_digits=12, decimal_places=2)
    currency = models.CharField(_("currency"), max_length=3)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    customer = models.TextField(_("customer"), db_default="", default="")

    class Meta:
        verbose_name = _("order")
        verbose_name_plural = _("orders")
        default_permissions = ("view",)
        permissions = [("high_priority", _("Can place orders of high priority"))]
        indexes = [
            models.Index(name="order_newest_first", fields=["-created_at", "-id"]),
            models.Index(name="order_total", fields=["total"]),
            models.Index(name="order_of_account", fields=["account", "-created_at", "-id"], condition=Q(account__isnull=False)),
            GinIndex(SearchVector(without_accents("customer"), config="simple"), name="order_customer_plain"),  # as `orders.filters` asks
        ]

    def __str__(self) -> str:
        return self.number


class PaymentEvent(models.Model):
    """An event that the payment service told by a webhook, stored once under the service's id. order_key: empty where it is unknown.

    applied_at: when it has had its effect (`orders.payments.events`); outcome: which one.
    """

    event_id = models.TextField(_("event"), unique=True)
    kind = models.TextField(_("kind"))
    intent = models.TextField(_("payment"))
    order_key = models.TextField(_("order"), db_default="")
    received_at = models.DateTimeField(_("received at"), db_default=Now())
    applied_at = models.DateTimeField(_("applied at"), null=True)
    outcome = models.TextField(_("outcome"), db_default="")

    class Meta:
        verbose_name = _("payment event")
        verbose_name_plural = _("payment events")
        default_permissions = ("view",)
        indexes = [
            models.Index(name="payment_event_received", fields=["received_at"]),
            models.Index(name="payment_event_of_payment", fields=["intent"]),
            models.Index(name="payment_event_of_order", fields=["order_key"]),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.event_id}"


class PaymentAdjustment(models.Model):
    """A refund or a dispute of an order's charge, as the payment service showed it last; or what an operator has sent back.

    gives_back: whether the customer gets the amount, by its present status. rank: the order of the states; it never falls.
    """

    external_id = models.TextField(_("external id"), unique=True)
    kind = models.TextField(_("kind"))
    intent = models.TextField(_("payment"))
    order_key = models.TextField(_("order"))
    amount = models.DecimalField(_("amount"), max_digits=18, decimal_places=3)
    currency = models.TextField(_("currency"))
    status = models.TextField(_("status"))
    gives_back = models.BooleanField(_("gives back"))
    rank = models.SmallIntegerField(_("rank"))
    reason = models.TextField(_("reason"), db_default="")
    heard_at = models.DateTimeField(_("heard at"), db_default=Now())
    changed_at = models.DateTimeField(_("changed at"), db_default=Now())

    class Meta:
        verbose_name = _("refund or dispute")
        verbose_name_plural = _("refunds and disputes")
        default_permissions = ("view",)
        constraints = [models.CheckConstraint(name="an_adjustment_is_of_a_known_kind", condition=Q(kind__in=["refund", "dispute"]))]
        indexes = [
            models.Index(name="payment_adjustment_of_order", fields=["order_key"]),
            models.Index(name="adjustment_of_payment", fields=["intent"]),
        ]

    def __str__(self) -> str:
        words = f"{self.kind} {self.external_id}: {self.amount.normalize():f} {self.currency} {self.status}"
        return f"{words} ({self.reason})" if self.reason else words


class Returnable(models.Model):
    """How many pieces of a product an order delivered, and how many of them returns hold. Written with the order's first return."""

    order_key = models.TextField(_("order"))
    sku = models.CharField(_("SKU"), max_length=64)
    delivered = models.IntegerField(_("delivered"))
    returned = models.IntegerField(_("returned"), db_default=0, default=0)

    class Meta:
        verbose_name = _("returnable product")
        verbose_name_plural = _("returnable products")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(name="an_order_has_a_returnable_product_once", fields=["order_key", "sku"]),
            models.CheckConstraint(name="no_more_is_returned_than_delivered", condition=Q(returned__gte=0, returned__lte=F("delivered"))),
        ]

    def __str__(self) -> str:
        return f"{self.returned} of {self.delivered} x {self.sku}"


class Return(models.Model):
    """A customer's wish to give goods of an order back. Its state is that of its run, which has the same public id.

    corrections: how often the report on its goods was corrected.
    """

    public_id = models.CharField(_("public id"), max_length=64, unique=True)
    order_key = models.TextField(_("order"))
    number = models.CharField(_("number"), max_length=40, unique=True)
    reason = models.TextField(_("reason"))
    asked_by = models.TextField(_("asked by"))
    currency = models.CharField(_("currency"), max_length=3)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    corrections = models.IntegerField(_("corrections"), db_default=0, default=0)

    class Meta:
        verbose_name = _("return")
        verbose_name_plural = _("returns")
        default_permissions = ("view",)
        indexes = [models.Index(name="return_of_order", fields=["order_key"])]

    def __str__(self) -> str:
        return self.number


class ReturnLine(models.Model):
    """One product of a return at one price. accepted, refused: None until the goods were looked at.

    holds: the pieces that count in `Returnable.returned`: all that are asked for, then the accepted ones, and those that were paid for
    although a correction says that they did not come; none once it is cancelled. restocked: the pieces that were put back into stock.
    reported: the accepted pieces of the first report, which the run knows; None if it was never corrected.
    """

    of = models.ForeignKey(Return, on_delete=models.PROTECT, related_name="lines", db_constraint=False)
    sku = models.CharField(_("SKU"), max_length=64)
    name = models.CharField(_("name"), max_length=200)
    quantity = models.IntegerField(_("quantity"))
    unit_price = models.DecimalField(_("unit price"), max_digits=10, decimal_places=2)
    accepted = models.IntegerField(_("accepted"), null=True)
    refused = models.IntegerField(_("refused"), null=True)
    holds = models.IntegerField(_("holds"))
    restocked = models.IntegerField(_("restocked"), db_default=0, default=0)
    reported = models.IntegerField(_("reported"), null=True)

    class Meta:
        verbose_name = _("return line")
        verbose_name_plural = _("return lines")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(name="a_return_has_a_product_at_a_price_once", fields=["of", "sku", "unit_price"]),
            models.CheckConstraint(
                name="a_return_takes_back_what_was_asked",
                condition=Q(quantity__gt=0, holds__gte=0, holds__lte=F("quantity"))
                & (Q(accepted=None) | Q(accepted__gte=0, refused__gte=0, accepted__lte=F("quantity") - F("refused"))),
            ),
            models.CheckConstraint(
                name="no_more_is_restocked_than_accepted",
                condition=Q(restocked=0) | Q(restocked__gte=0, restocked__lte=F("accepted"), accepted__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.sku}"


class OrderLine(models.Model):
    """One product of an order, at the price when the order was accepted."""

    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="lines", db_constraint=False)
    sku = models.CharField(_("SKU"), max_length=64)
    name = models.CharField(_("name"), max_length=200)
    quantity = models.PositiveIntegerField(_("quantity"))
    unit_price = models.DecimalField(_("unit price"), max_digits=10, decimal_places=2)

    class Meta:
        verbose_name = _("order line")
        verbose_name_plural = _("order lines")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.quantity} x {self.sku}"
