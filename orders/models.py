"""The shop's tables: facts, no transitions. An order's state is the state of its run; the shop's tables do not repeat it.

The data that agents need (address, payment method, priced lines) is stored once, in the run's payload, where an operator
may correct it. The order keeps what the customer agreed to.
"""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from supervision.models import Run


class Product(models.Model):
    """A product; `available` is the quantity that can still be sold."""

    sku = models.SlugField(_("SKU"), max_length=64, unique=True)
    name = models.CharField(_("name"), max_length=200)
    description = models.TextField(_("description"), blank=True, db_default="")
    price = models.DecimalField(_("price"), max_digits=10, decimal_places=2, validators=[MinValueValidator(0)])
    currency = models.CharField(_("currency"), max_length=3, db_default="EUR", default="EUR")
    available = models.IntegerField(_("available"), db_default=0, default=0)
    active = models.BooleanField(_("active"), db_default=True, default=True)
    picture = models.CharField(_("picture"), max_length=100, blank=True, db_default="")

    class Meta:
        verbose_name = _("product")
        verbose_name_plural = _("products")
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(name="stock_is_never_oversold", condition=Q(available__gte=0)),
            models.CheckConstraint(name="a_price_is_not_negative", condition=Q(price__gte=0)),
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
    """The purchase that a customer agreed to. Written together with its run, in one transaction, from a submission."""

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
    )
    email = models.EmailField(_("e-mail"), db_index=True)
    total = models.DecimalField(_("total"), max_digits=12, decimal_places=2)
    currency = models.CharField(_("currency"), max_length=3)
    created_at = models.DateTimeField(_("created at"), db_default=Now())

    class Meta:
        verbose_name = _("order")
        verbose_name_plural = _("orders")
        default_permissions = ("view",)
        permissions = [("high_priority", _("Can place orders of high priority"))]
        indexes = [models.Index(name="order_newest_first", fields=["-created_at", "-id"])]

    def __str__(self) -> str:
        return self.number


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
