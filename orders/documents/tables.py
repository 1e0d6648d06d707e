"""The tables of invoices and credit notes."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

INVOICE, CREDIT_NOTE = "invoice", "credit_note"
SERIES = {INVOICE: "INV", CREDIT_NOTE: "CRN"}


class DocumentCounter(models.Model):
    """The last number of a series in a year. It rises in the transaction that records the documents: a rollback takes it back, too.

    gone: the documents up to this number were deleted, DOCUMENT_YEARS after their year.
    """

    series = models.TextField(_("series"))
    year = models.IntegerField(_("year"))
    last = models.IntegerField(_("last number"), db_default=0, default=0)
    gone = models.IntegerField(_("deleted up to"), db_default=0, default=0)

    class Meta:
        app_label = "orders"
        verbose_name = _("number series")
        verbose_name_plural = _("number series")
        default_permissions = ()
        constraints = [models.UniqueConstraint(name="a_series_has_one_counter_a_year", fields=["series", "year"])]

    def __str__(self) -> str:
        return f"{self.series}-{self.year}: {self.last}"


class Document(models.Model):
    """An invoice of an order, or a credit note. It is never changed: body holds all that is printed.

    cause: empty for an invoice. For a credit note: the public id of its return or refund, or a name of money that went back elsewhere
    (`orders.documents.crediting`). total: with VAT; positive for a credit note, too.
    """

    kind = models.TextField(_("kind"))
    series = models.TextField(_("series"))
    year = models.IntegerField(_("year"))
    number = models.IntegerField(_("number"))
    order_key = models.TextField(_("order"))
    cause = models.TextField(_("cause"), db_column="return_key", db_default="", default="")
    issued_at = models.DateTimeField(_("issued at"))
    currency = models.CharField(_("currency"), max_length=3)
    total = models.DecimalField(_("total"), max_digits=12, decimal_places=2)
    vat = models.DecimalField(_("VAT"), max_digits=12, decimal_places=2)
    body = models.JSONField(_("body"))

    class Meta:
        app_label = "orders"
        verbose_name = _("invoice or credit note")
        verbose_name_plural = _("invoices and credit notes")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="a_number_of_a_series_is_used_once", fields=["series", "year", "number"]),
            models.UniqueConstraint(name="an_order_has_one_invoice_and_a_return_one_credit_note", fields=["order_key", "kind", "cause"]),
            models.CheckConstraint(
                name="a_document_is_an_invoice_or_of_a_return",
                condition=Q(kind=INVOICE, cause="") | (Q(kind=CREDIT_NOTE) & ~Q(cause="")),
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """Its number as it is printed, such as INV-2026-000042."""
        return f"{self.series}-{self.year}-{self.number:06d}"
