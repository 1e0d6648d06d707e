"""Messages to the outside. The outbox; webhooks, deliveries, reply queues; channels that tell operators; who listens to live pages."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, Coalesce, Now
from django.db.models.lookups import IsNull
from django.utils.translation import gettext_lazy as _

from supervision.models.states import Run
from supervision.sealing.fields import SealedText


class Notification(models.Model):
    """The outbox: a row is committed with the change it reports, and delivered afterwards, at least once, under its own id."""

    kind = models.TextField(_("kind"))
    run = models.ForeignKey(Run, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, verbose_name=_("run"))
    payload = models.JSONField(_("payload"), db_default={})
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    not_before = models.DateTimeField(_("not before"), db_default=Now())
    tries = models.IntegerField(_("tries"), db_default=0)
    last_error = models.TextField(_("last error"), db_default="")
    delivered_at = models.DateTimeField(_("delivered at"), null=True)
    given_up_at = models.DateTimeField(_("given up at"), null=True)

    class Meta:
        verbose_name = _("notification")
        verbose_name_plural = _("notifications")
        default_permissions = ("view",)
        # Separate indexes, so that many status messages never delay the mail of an alert.
        indexes = [
            models.Index(
                name="notification_due",
                fields=["not_before"],
                condition=Q(delivered_at__isnull=True, given_up_at__isnull=True) & ~Q(kind="status"),
            ),
            # The claim's (`outbox.notifications`). It has to be another condition than that of notification_due: see there.
            models.Index(
                name="notification_kind_due",
                fields=["kind", "not_before"],
                condition=~Q(kind__in=["status", "hook"]) & Q(IsNull(Coalesce("delivered_at", "given_up_at"), True)),
            ),
            models.Index(
                KT("payload__workflow"),
                Cast(KT("payload__version"), models.IntegerField()),
                "not_before",
                name="notification_hook_version_due",
                condition=Q(delivered_at__isnull=True, kind="hook"),
            ),
            models.Index(name="notification_given_up", fields=["given_up_at"], condition=Q(given_up_at__isnull=False)),
            models.Index(name="notification_to_fan_out", fields=["id"], condition=Q(delivered_at__isnull=True, kind="status")),
        ]

    def __str__(self) -> str:
        return f"{self.kind} #{self.pk}"


class WebhookEndpoint(models.Model):
    """The address to which an account wants messages about its orders. secret: signs every delivery; shown once, when made; encrypted.

    failures: tries in a row that failed, the first of them at failing_since. retry_at: nothing is sent before this time,
    because the receiver gave no answer.
    """

    public_id = models.TextField(_("id"), unique=True)
    client = models.TextField(_("client"))
    url = models.TextField(_("address"))
    secret = SealedText(_("secret"))
    events = models.JSONField(_("events"), db_default=[], default=list, blank=True)
    active = models.BooleanField(_("active"), db_default=True, default=True)
    failures = models.IntegerField(_("failures in a row"), db_default=0, default=0)
    failing_since = models.DateTimeField(_("failing since"), null=True, blank=True)
    retry_at = models.DateTimeField(_("left in peace until"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    removed_at = models.DateTimeField(_("removed at"), null=True, blank=True)

    class Meta:
        verbose_name = _("webhook")
        verbose_name_plural = _("webhooks")
        default_permissions = ("view", "change")
        constraints = [
            models.CheckConstraint(name="a_removed_webhook_is_not_active", condition=Q(active=False) | Q(removed_at__isnull=True))
        ]
        indexes = [models.Index(name="webhook_of_a_client", fields=["client"], condition=Q(active=True))]

    def __str__(self) -> str:
        return self.url


class ReplyToken(models.Model):
    """An opaque name for a private reply queue, issued by the server, which chooses the queue's name as well."""

    token_hash = models.TextField(_("hash of the token"), unique=True)
    client = models.TextField(_("client"))
    queue = models.TextField(_("queue"), unique=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    revoked_at = models.DateTimeField(_("revoked at"), null=True, blank=True)

    class Meta:
        verbose_name = _("reply token")
        verbose_name_plural = _("reply tokens")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.queue


class Delivery(models.Model):
    """One message to one receiver, delivered at least once, with retries and back-off. seq: its number among the order's messages.

    run: the order that it is about; null for the test of a webhook, which is tried once.

    message_id: the same for every receiver and every try. attempt: the fencing token for recording a try's outcome.
    tries: the tries since it was last requested, at asked_at. log: all tries.
    """

    public_id = models.TextField(_("id"), unique=True)
    client = models.TextField(_("client"))
    endpoint = models.ForeignKey(
        WebhookEndpoint,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_index=False,
        related_name="deliveries",
        verbose_name=_("webhook"),
    )
    reply_token = models.ForeignKey(
        ReplyToken,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        db_index=False,
        related_name="deliveries",
        verbose_name=_("reply token"),
    )
    run = models.ForeignKey(
        "supervision.Run",
        on_delete=models.DO_NOTHING,
        null=True,
        db_constraint=False,
        db_index=False,
        related_name="deliveries",
    )
    seq = models.IntegerField(_("sequence"))
    event = models.TextField(_("event"))
    message_id = models.TextField(_("message id"))
    body = models.TextField(_("body"))
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    asked_at = models.DateTimeField(_("asked for at"), db_default=Now())
    not_before = models.DateTimeField(_("not before"), db_default=Now())
    attempt = models.IntegerField(_("attempt"), db_default=0)
    tries = models.IntegerField(_("tries"), db_default=0)
    status_code = models.IntegerField(_("answer"), null=True, blank=True)
    last_error = models.TextField(_("last error"), db_default="", default="", blank=True)
    log = models.JSONField(_("log"), db_default=[], default=list, blank=True)
    delivered_at = models.DateTimeField(_("delivered at"), null=True, blank=True)
    given_up_at = models.DateTimeField(_("given up at"), null=True, blank=True)

    class Meta:
        verbose_name = _("delivery")
        verbose_name_plural = _("deliveries")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="a_webhook_hears_an_event_once", fields=["run", "seq", "endpoint"]),
            models.UniqueConstraint(name="a_reply_queue_hears_an_event_once", fields=["run", "seq", "reply_token"]),
            models.CheckConstraint(
                name="a_delivery_has_one_receiver",
                condition=Q(endpoint__isnull=False, reply_token__isnull=True) | Q(endpoint__isnull=True, reply_token__isnull=False),
            ),
            models.CheckConstraint(
                name="a_delivery_is_delivered_or_given_up", condition=Q(delivered_at__isnull=True) | Q(given_up_at__isnull=True)
            ),
        ]
        indexes = [
            models.Index(
                name="delivery_due",
                fields=["endpoint", "reply_token", "not_before"],
                condition=Q(delivered_at__isnull=True, given_up_at__isnull=True),
            ),
            models.Index(name="delivery_of_a_client", fields=["client", "id"]),
            models.Index(name="delivery_of_a_webhook", fields=["endpoint", "id"], condition=Q(endpoint__isnull=False)),
            models.Index(
                name="delivery_waiting", fields=["client", "id"], condition=Q(delivered_at__isnull=True, given_up_at__isnull=True)
            ),
            models.Index(name="delivery_given_up", fields=["client", "id"], condition=Q(given_up_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.event} of {self.run_id}" if self.run_id else self.event


class Audience(models.Model):
    """One row. While `until` is in the future, a listener exists and events are announced (`insight.live_events`). That slows commits."""

    until = models.DateTimeField(_("until"))

    class Meta:
        verbose_name = _("audience")
        verbose_name_plural = _("audiences")
        default_permissions = ()

    def __str__(self) -> str:
        return f"until {self.until:%Y-%m-%d %H:%M:%S}"


class Channel(models.Model):
    """Where operators are told of incidents, beside OPERATOR_EMAILS. Operators edit these rows.

    address: the receivers of mails, separated by commas; the webhook's address; empty for Slack, and for PagerDuty its own. secret: the
    webhook's signing secret, Slack's address (which is one), PagerDuty's integration key. No page shows it again. Both are encrypted.
    least: the least severity that it is told of. kinds: of incidents; empty: all. failures: tries in a row that failed, the first of
    them at failing_since. retry_at: nothing is sent before this time, because the last try failed.
    """

    class Kind(models.TextChoices):
        MAIL = "mail", _("Mail")
        WEBHOOK = "webhook", _("Webhook")
        SLACK = "slack", _("Slack")
        PAGERDUTY = "pagerduty", _("PagerDuty")

    class Least(models.TextChoices):
        WARNING = "warning", _("warning and critical")
        CRITICAL = "critical", _("critical only")

    name = models.TextField(_("name"), unique=True)
    kind = models.TextField(_("kind"), choices=Kind.choices)
    address = SealedText(_("address"), db_default="", default="", blank=True)
    secret = SealedText(_("secret"), db_default="", default="", blank=True)
    least = models.TextField(_("severity"), choices=Least.choices, db_default=Least.WARNING.value, default=Least.WARNING)
    kinds = models.JSONField(_("kinds of incidents"), db_default=[], default=list, blank=True)
    active = models.BooleanField(_("active"), db_default=True, default=True)
    failures = models.IntegerField(_("failures in a row"), db_default=0, default=0)
    failing_since = models.DateTimeField(_("failing since"), null=True)
    retry_at = models.DateTimeField(_("left in peace until"), null=True)
    last_error = models.TextField(_("last error"), db_default="", default="")
    sent_at = models.DateTimeField(_("last sent at"), null=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())

    class Meta:
        verbose_name = _("channel")
        verbose_name_plural = _("channels")
        default_permissions = ("view", "change")

    def __str__(self) -> str:
        return self.name


class Telling(models.Model):
    """One message about an incident to one channel, written with the change that it tells of, and every try to send it.

    event: opened, worse, again, acknowledged, closed; or test, without an incident. attempt: the fencing token of a try. log: the last
    tries. Its id is the same for every try, so that a receiver can recognise a repetition.
    """

    channel = models.ForeignKey(Channel, on_delete=models.CASCADE, related_name="tellings", verbose_name=_("channel"), db_index=False)
    incident_id = models.BigIntegerField(_("incident"), null=True)
    event = models.TextField(_("event"))
    severity = models.TextField(_("severity"), db_default="", default="")
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    not_before = models.DateTimeField(_("not before"), db_default=Now())
    attempt = models.IntegerField(_("attempt"), db_default=0, default=0)
    status_code = models.IntegerField(_("answer"), null=True)
    last_error = models.TextField(_("last error"), db_default="", default="")
    log = models.JSONField(_("log"), db_default=[], default=list)
    delivered_at = models.DateTimeField(_("delivered at"), null=True)
    given_up_at = models.DateTimeField(_("given up at"), null=True)

    class Meta:
        verbose_name = _("alert sent out")
        verbose_name_plural = _("alerts sent out")
        default_permissions = ("view",)
        indexes = [
            models.Index(name="telling_due", fields=["channel", "id"], condition=Q(delivered_at__isnull=True, given_up_at__isnull=True)),
            models.Index(name="telling_of_incident", fields=["incident_id", "channel"]),
        ]

    def __str__(self) -> str:
        return f"{self.event} {self.incident_id or ''}".strip()
