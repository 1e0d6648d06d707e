"""Webhooks, reply queues and deliveries in the admin. It lists sent and waiting messages; an operator can send them again."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import URLPattern
from django.utils.html import format_html, format_html_join
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext
from unfold.decorators import action, display

from supervision.console.bounded_lists import Labelled, LockedAdmin, ReadOnlyAdmin
from supervision.console.lists.row_buttons import button_of, row_button
from supervision.console.shared import may_operate, person, run_address
from supervision.insight import directory
from supervision.models import Delivery, ReplyToken, WebhookEndpoint
from supervision.outbox import subscriptions
from supervision.runtime.humanize import at_of
from supervision.runtime.retold import retold
from supervision.sealing.texts import Unopened

SENT_AGAIN_AT_ONCE = 1000


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(LockedAdmin, ReadOnlyAdmin):
    """The webhook addresses of accounts. An operator can switch one off, and send it a test. The admin never shows its secret."""

    empty_means = _("No client has registered a webhook.")
    list_display = ["url", "client", "state", "failures", "created_at"]
    list_filter = ["active"]
    fields = ["url", "client", "events", "active", "failures", "failing_since", "retry_at", "created_at", "removed_at", "test_button"]
    readonly_fields = [name for name in fields if name != "active"]
    ordering = ["-id"]
    search_fields = ["=client", "=public_id"]
    search_help_text = _("client or id")

    def has_change_permission(self, request: HttpRequest, obj: WebhookEndpoint | None = None) -> bool:
        if obj is not None and obj.removed_at is not None:
            return False
        return request.user.has_perm("supervision.change_webhookendpoint")

    def get_fields(self, request: HttpRequest, obj: WebhookEndpoint | None = None) -> list[str]:
        sends = may_operate(request) and obj is not None and obj.active
        return [name for name in self.fields if sends or name != "test_button"]

    @display(description=_("Test"))
    def test_button(self, obj: WebhookEndpoint) -> str:
        return button_of("test", obj, _("Send a test"))

    def get_urls(self) -> list[URLPattern]:
        return [row_button(self, "test", self.send_test, allowed=may_operate), *super().get_urls()]

    def send_test(self, request: HttpRequest, row: WebhookEndpoint) -> Delivery | None:
        """Queue a test, and show its delivery: the deliverers write the result there."""
        sent = subscriptions.send_test(row, by=person(request).get_username())
        if sent is None:
            messages.warning(request, _("The webhook is switched off or removed: nothing was sent."))
        else:
            messages.success(request, _("The test is being sent. Load this page again to see its result."))
        return sent

    @display(description=_("State"), label={"active": "success", "failing": "danger", "off": "warning", "removed": "neutral"})
    def state(self, obj: WebhookEndpoint) -> tuple[str, Any]:
        if obj.removed_at is not None:
            return "removed", _("removed")
        if not obj.active:
            return "off", _("switched off")
        if isinstance(obj.secret, Unopened):
            return "failing", _("its secret cannot be decrypted")
        return ("failing", _("failing")) if obj.failures else ("active", _("active"))


@admin.register(ReplyToken)
class ReplyTokenAdmin(ReadOnlyAdmin):
    """Private reply queues."""

    empty_means = _("No client has asked for a reply queue.")
    list_display = ["queue", "client", "created_at", "revoked_at"]
    fields = ["queue", "client", "created_at", "revoked_at"]
    ordering = ["-id"]
    search_fields = ["=client", "=queue"]
    search_help_text = _("client or queue")


class DeliveryStateFilter(admin.SimpleListFilter):
    """Waiting, delivered or given up."""

    title, parameter_name = _("state"), "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        waiting = [("waiting", _("Waiting")), ("failing", _("Waiting after a failure"))]
        return [*waiting, ("given-up", _("Given up")), ("delivered", _("Delivered"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.value()
        if chosen in ("waiting", "failing"):
            queryset = queryset.filter(delivered_at__isnull=True, given_up_at__isnull=True)
            return queryset.filter(tries__gt=0) if chosen == "failing" else queryset
        if chosen == "given-up":
            return queryset.filter(given_up_at__isnull=False)
        return queryset.filter(delivered_at__isnull=False) if chosen == "delivered" else queryset


@admin.register(Delivery)
class DeliveryAdmin(ReadOnlyAdmin):
    """The log of messages to the systems of client accounts."""

    empty_means = _("No delivery: no message to a client waits or fails.")
    list_display = ["event", "order", "seq", "receiver", "state", "tries", "trouble", "age"]
    list_filter = [DeliveryStateFilter]
    list_select_related = ["endpoint", "reply_token"]
    fields = [
        "public_id", "message_id", "order", "event", "seq", "receiver", "client", "state", "tries", "not_before",
        "status_code", "last_error", "created_at", "asked_at", "delivered_at", "given_up_at", "body", "history", "again_button",
    ]  # fmt: skip
    readonly_fields = fields
    ordering = ["-id"]
    search_fields = ["=public_id"]
    search_help_text = _("id of a delivery, number or public id of an order, or client")
    actions = ["deliver_again"]
    aged_from = "created_at"

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        term = search_term.strip()
        if not term or "\0" in term:
            return queryset, False
        if term.startswith("dlv_"):
            return queryset.filter(public_id=term), False
        if ":" in term:
            return queryset.filter(client=term), False
        found = directory.find(term)
        return subscriptions.about_order(queryset, term if found is None else found.key), False

    def get_fields(self, request: HttpRequest, obj: Delivery | None = None) -> list[str]:
        return [name for name in self.fields if name != "again_button" or may_operate(request)]

    @display(description=_("Deliver again"))
    def again_button(self, obj: Delivery) -> str:
        return button_of("again", obj, _("Deliver again"))

    def get_urls(self) -> list[URLPattern]:
        return [row_button(self, "again", self.send_again, allowed=may_operate), *super().get_urls()]

    def send_again(self, request: HttpRequest, row: Delivery) -> None:
        """Send this one again."""
        self.deliver_again(request, Delivery.objects.filter(pk=row.pk))

    def order_of(self, obj: Delivery) -> str:  # type: ignore[override]
        return json.loads(obj.body)["data"]["order"] or ""

    @display(description=_("Order"))
    def order(self, obj: Delivery) -> str:
        if not (key := self.order_of(obj)):
            return str(_("none: a test"))
        if obj.run_id is None:
            return self.called(obj)
        return format_html('<a class="sc-link" href="{}" title="{}">{}</a>', run_address(obj.run_id), key, self.called(obj))

    @display(description=_("Receiver"))
    def receiver(self, obj: Delivery) -> str:
        return str(obj.endpoint or obj.reply_token)

    @display(description=_("State"), label={"delivered": "success", "given-up": "danger", "failing": "warning", "waiting": "info"})
    def state(self, obj: Delivery) -> Labelled:
        if obj.delivered_at is not None:
            return Labelled(("delivered", _("delivered")))
        if obj.given_up_at is not None:
            return Labelled(("given-up", _("given up")))
        return Labelled(("failing", _("will be tried again")) if obj.tries else ("waiting", _("waiting")))

    @display(description=_("Last error"), empty_value="")
    def trouble(self, obj: Delivery) -> str | None:
        return Truncator(retold(" ".join(obj.last_error.split()))).chars(80) if obj.last_error else None

    @display(description=_("Tries"))
    def history(self, obj: Delivery) -> str:
        lines = ((at_of(entry), _outcome(entry)) for entry in obj.log)
        return format_html_join("", "<div>{} &nbsp; {}</div>", lines) or "-"

    @action(description=_("Deliver the selected again"), permissions=["operate"])
    def deliver_again(self, request: HttpRequest, queryset: QuerySet[Delivery]) -> None:
        """Send again, even if delivered or given up. A receiver recognises a repetition by the message's id."""
        chosen = list(queryset.order_by("pk").values_list("pk", flat=True)[:SENT_AGAIN_AT_ONCE])
        done = subscriptions.redeliver(chosen, by=person(request).get_username())
        text = ngettext("%(n)d message is being sent again.", "%(n)d messages are being sent again.", done) % {"n": done}
        messages.success(request, text) if done else messages.warning(request, _("The receivers of all these are gone or switched off."))


def _outcome(entry: dict[str, Any]) -> Any:
    if "asked_by" in entry:
        return _("asked for again by %(who)s") % {"who": entry["asked_by"]}
    words = entry.get("error") or _("delivered")
    return f"{words} ({entry.get('seconds', 0):g} s)"
