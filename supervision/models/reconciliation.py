"""Differences between our books and the services' own lists, when each was last compared; and requests for an approval."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Finding(models.Model):
    """One difference between our books and a service's list; written by `reconciliation` alone.

    A row is open until an operator settles it (`verb`, `settled_by`, `reason`) or a later comparison shows that it is gone. A
    difference that comes back is a new row, so the rows are a complete record of the operators' decisions.

    order_key: the public id that the service names. key: the idempotency key under which it was made, if known.
    amount: the money concerned, in the currency's usual unit. verbs: the verbs that may settle it. tries: attempts to settle
    it. seen_at: when it was last found. settling_until: the lease of an attempt that is settling it.
    """

    service = models.TextField(_("service"))
    kind = models.TextField(_("kind"))
    order_key = models.TextField(_("order"), db_default="")
    external_id = models.TextField(_("external id"), db_default="")
    key = models.TextField(_("idempotency key"), db_default="")
    run_id = models.BigIntegerField(_("run"), null=True)
    amount = models.DecimalField(_("amount"), max_digits=18, decimal_places=3, null=True)
    currency = models.TextField(_("currency"), db_default="")
    verbs = models.JSONField(_("verbs"), db_default=[])
    detail = models.TextField(_("detail"), db_default="")
    found_at = models.DateTimeField(_("found at"), db_default=Now())
    seen_at = models.DateTimeField(_("seen at"), db_default=Now())
    settling_until = models.DateTimeField(_("being settled until"), null=True)
    tries = models.IntegerField(_("tries"), db_default=0)
    last_error = models.TextField(_("last error"), db_default="")
    closed_at = models.DateTimeField(_("closed at"), null=True)
    verb = models.TextField(_("settled by"), db_default="")
    settled_by = models.TextField(_("who settled it"), db_default="")
    reason = models.TextField(_("reason"), db_default="")
    outcome = models.TextField(_("outcome"), db_default="")

    class Meta:
        verbose_name = _("finding")
        verbose_name_plural = _("findings")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                name="a_difference_is_found_once",
                fields=["service", "kind", "order_key", "external_id"],
                condition=Q(closed_at__isnull=True),
            ),
        ]
        indexes = [
            models.Index(
                name="finding_adopted",
                fields=["service", "kind", "order_key", "external_id"],
                condition=Q(verb="adopt", closed_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.external_id or self.order_key}"


class Reconciliation(models.Model):
    """One service's last comparison. compared_at: when the last complete one began. failing_since: none has completed since."""

    service = models.TextField(_("service"), primary_key=True)
    compared_at = models.DateTimeField(_("compared at"), null=True)
    failing_since = models.DateTimeField(_("failing since"), null=True)
    last_error = models.TextField(_("last error"), db_default="")

    class Meta:
        verbose_name = _("reconciliation")
        verbose_name_plural = _("reconciliations")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.service


class Approval(models.Model):
    """An operator's verb that waits until another operator approves it, because more than APPROVAL_ABOVE is at stake.

    verb, subject, arguments: what is called once it is approved. stake: [amount, currency] pairs. plan_version: the order's state
    when it was asked for. identity: the same for requests that ask for the same. `approved` without `carried_out_at`: the outbox is
    about to do it. failed: the verb was not possible any more; `outcome` says why. Decided requests are kept as a record.
    """

    class State(models.TextChoices):
        PENDING = "pending", _("waits for another operator")
        APPROVED = "approved", _("approved")
        REFUSED = "refused", _("refused")
        EXPIRED = "expired", _("not decided in time")
        FAILED = "failed", _("not possible any more")

    verb = models.TextField(_("verb"))
    subject = models.TextField(_("subject"))
    order_key = models.TextField(_("order"), db_default="", default="")
    run_id = models.BigIntegerField(_("run"), null=True)
    step = models.TextField(_("step"), db_default="", default="")
    arguments = models.JSONField(_("arguments"), db_default={}, default=dict)
    stake = models.JSONField(_("at stake"), db_default=[], default=list)
    plan_version = models.TextField(_("version of the plan"), db_default="", default="")
    identity = models.TextField(_("identity"))
    reason = models.TextField(_("reason"))
    asked_by = models.TextField(_("asked by"))
    asked_by_id = models.BigIntegerField(_("account that asked"), null=True)
    asked_at = models.DateTimeField(_("asked at"), db_default=Now())
    expires_at = models.DateTimeField(_("expires at"))
    state = models.TextField(_("state"), choices=State.choices, db_default=State.PENDING.value, default=State.PENDING)
    decided_by = models.TextField(_("decided by"), db_default="", default="")
    decided_at = models.DateTimeField(_("decided at"), null=True)
    decision_reason = models.TextField(_("reason of the decision"), db_default="", default="")
    carried_out_at = models.DateTimeField(_("carried out at"), null=True)
    outcome = models.TextField(_("outcome"), db_default="", default="")

    class Meta:
        verbose_name = _("approval")
        verbose_name_plural = _("approvals")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="the_same_is_asked_for_once", fields=["identity"], condition=Q(state="pending")),
            models.CheckConstraint(
                name="a_known_state_of_an_approval", condition=Q(state__in=["pending", "approved", "refused", "expired", "failed"])
            ),
            models.CheckConstraint(
                name="only_what_is_approved_is_carried_out", condition=Q(carried_out_at__isnull=True) | Q(state="approved")
            ),
        ]
        indexes = [
            models.Index(name="approval_of_order", fields=["order_key", "-id"]),
            models.Index(name="approval_pending", fields=["id"], condition=Q(state="pending")),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.step}: {self.subject}"

    @property
    def amounts(self) -> str:
        """What is at stake, as text."""
        return ", ".join(f"{amount} {currency}" for amount, currency in self.stake)
