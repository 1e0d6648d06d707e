"""One row for each request of an API client that changes something or is refused."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class ApiRequest(models.Model):
    """One request and its answer, without query, body, address or name. Kept for REQUEST_LOG_DAYS; nothing depends on it.

    path: what is no word of the API's own paths and no id that they ask for is masked. kind: the first digit of the status.
    code: of the problem document. account_id: the account's primary key; its name is looked up where it is shown. key: whether the
    request had an idempotency key, and whether its answer repeats an earlier one. order_key: the public id of the order that the
    path names, or that the request has placed. missing: in a row of its own, how many requests one process could not record.
    """

    class SignedIn(models.TextChoices):
        TOKEN = "token", _("token")
        SESSION = "session", _("session")

    class Key(models.TextChoices):
        GIVEN = "given", _("given")
        REPLAYED = "replayed", _("answered before")

    request_id = models.TextField(_("request id"))
    at = models.DateTimeField(_("at"), db_default=Now())
    method = models.TextField(_("method"))
    path = models.TextField(_("path"))
    status = models.SmallIntegerField(_("status"))
    kind = models.SmallIntegerField(_("kind of status"))
    code = models.TextField(_("problem"), db_default="", default="")
    milliseconds = models.FloatField(_("milliseconds"))
    account_id = models.BigIntegerField(_("account"), null=True)
    signed_in = models.TextField(_("signed in by"), choices=SignedIn.choices, db_default="", default="")
    key = models.TextField(_("idempotency key"), choices=Key.choices, db_default="", default="")
    order_key = models.TextField(_("order"), db_default="", default="")
    missing = models.IntegerField(_("requests that are missing"), db_default=0, default=0)

    class Meta:
        verbose_name = _("API request")
        verbose_name_plural = _("API requests")
        default_permissions = ()
        indexes = [
            models.Index(name="request_by_id", fields=["request_id"]),
            models.Index(name="request_of_account", fields=["account_id", "id"]),
            models.Index(name="request_by_kind", fields=["kind", "id"]),
            models.Index(name="request_of_order", fields=["order_key", "id"], condition=~Q(order_key="")),
            models.Index(name="request_by_code", fields=["code", "id"], condition=~Q(code="")),
            models.Index(name="request_missing", fields=["id"], condition=Q(missing__gt=0)),
        ]

    def __str__(self) -> str:
        return f"{self.method} {self.path}" if not self.missing else str(_("not recorded"))
