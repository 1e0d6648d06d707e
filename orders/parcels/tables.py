"""The tables of parcels. They hold what the carrier told; whether a parcel was booked is said by its step alone."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from orders.parcels import states


class Parcel(models.Model):
    """What is known of one parcel at the carrier, under the idempotency key of its booking.

    order_key: the order's public id; empty while our books do not know the key. look_at: when to ask the carrier for its state;
    empty when there is nothing to ask any more. trouble: why an operator is told of it.
    """

    key = models.TextField(_("idempotency key"), primary_key=True)
    order_key = models.TextField(_("order"), db_default="")
    shipment = models.TextField(_("shipment"), db_default="")
    tracking_number = models.TextField(_("tracking number"), db_default="")
    state = models.TextField(_("state"), db_default=states.BOOKED)
    changed_at = models.DateTimeField(_("changed at"), null=True)
    booked_at = models.DateTimeField(_("booked at"), db_default=Now())
    look_at = models.DateTimeField(_("look at"), null=True)
    looks = models.SmallIntegerField(_("looks"), db_default=0)
    trouble = models.TextField(_("trouble"), null=True)
    trouble_at = models.DateTimeField(_("trouble since"), null=True)

    class Meta:
        app_label = "orders"
        verbose_name = _("parcel")
        verbose_name_plural = _("parcels")
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(name="a_parcel_is_in_a_known_state", condition=Q(state__in=states.IN_ORDER)),
            models.CheckConstraint(name="a_parcels_trouble_is_known", condition=Q(trouble__isnull=True) | Q(trouble__in=states.TROUBLES)),
        ]
        indexes = [
            models.Index(name="parcel_of_order", fields=["order_key"]),
            models.Index(name="parcel_tracked", fields=["tracking_number"]),
            # A delivered parcel is in none of these two: the looks cost nothing for it.
            models.Index(name="parcel_to_look_at", fields=["look_at"], condition=Q(look_at__isnull=False)),
            models.Index(name="parcel_in_trouble", fields=["trouble_at"], condition=Q(trouble__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"parcel {self.tracking_number or self.key}: {self.state}"


class ParcelEvent(models.Model):
    """An event that the carrier told by a webhook. The same event is stored once: its id, key, state and time together."""

    event_id = models.TextField(_("event"))
    key = models.TextField(_("idempotency key"))
    state = models.TextField(_("state"))
    at = models.DateTimeField(_("at"))
    received_at = models.DateTimeField(_("received at"), db_default=Now())
    outcome = models.TextField(_("outcome"), db_default="")

    class Meta:
        app_label = "orders"
        verbose_name = _("parcel event")
        verbose_name_plural = _("parcel events")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(name="a_parcel_event_is_stored_once", fields=["event_id", "key", "state", "at"])]
        indexes = [models.Index(name="parcel_event_received", fields=["received_at"])]

    def __str__(self) -> str:
        return f"{self.key} {self.state}"


class ParcelWatch(models.Model):
    """An order whose parcels are not all known yet. The row goes when the order has ended."""

    order_key = models.TextField(_("order"), primary_key=True)
    run_id = models.BigIntegerField(_("run"))
    look_at = models.DateTimeField(_("look at"), db_default=Now())
    looks = models.SmallIntegerField(_("looks"), db_default=0)

    class Meta:
        app_label = "orders"
        verbose_name = _("watch for parcels")
        verbose_name_plural = _("watches for parcels")
        default_permissions = ()
        indexes = [models.Index(name="parcel_watch_due", fields=["look_at"])]

    def __str__(self) -> str:
        return self.order_key


class ParcelCursor(models.Model):
    """How far the orders were read that parcels are to be watched of; one row.

    done_to: every order up to this id was read. seen_to: the newest order at the last look, and seen_before: the first transaction
    that had not begun then. When all earlier ones have ended, no order up to `seen_to` can come any more.
    """

    id = models.SmallIntegerField(primary_key=True)
    done_to = models.BigIntegerField(_("done to"))
    seen_to = models.BigIntegerField(_("seen to"))
    seen_before = models.BigIntegerField(_("seen before"))

    class Meta:
        app_label = "orders"
        verbose_name = _("reader of orders with parcels")
        verbose_name_plural = _("readers of orders with parcels")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.done_to}"
