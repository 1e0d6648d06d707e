"""The shapes of requests and answers about webhooks, their deliveries, and reply tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rest_framework import serializers

from supervision.api.shapes import Choice, Shape, Strict, Text, page_answer
from supervision.outbox.subscriptions import EVENTS, STATUSES, TEST

WAITING, DELIVERED, GIVEN_UP = DELIVERY_STATES = ("waiting", "delivered", "given-up")
EVENT_WISHES = [*EVENTS, *STATUSES]


class Event(Choice):
    """An event such as `order.processed`; `processed` alone is accepted too."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(choices=EVENT_WISHES, **kwargs)

    def to_internal_value(self, data: Any) -> str:
        value = super().to_internal_value(data)
        return value if value in EVENTS else f"order.{value}"


class WebhookSerializer(Strict):
    """Where to send, and which events. Without `events`, or with an empty list, every event is sent."""

    url = Text(max_length=2000, help_text="https:// or http://, at a public address")
    events = serializers.ListField(child=Event(), required=False, max_length=len(EVENT_WISHES))

    def validate_events(self, value: Sequence[str]) -> list[str]:
        """Each event once, in the sequence in which an order passes through them."""
        return [event for event in EVENTS if event in value]


class NewWebhookAnswer(Shape):
    """A new endpoint. The secret that signs its deliveries is shown only here."""

    id = serializers.CharField()
    secret = serializers.CharField(help_text="whsec_..., as Standard Webhooks writes it")
    url = serializers.CharField()
    events = serializers.ListField(child=serializers.ChoiceField(EVENTS))


class WebhookAnswer(Shape):
    """An endpoint. `failures`: how many deliveries in a row it refused or did not answer, the first one at `failing_since`."""

    id = serializers.CharField()
    url = serializers.CharField()
    events = serializers.ListField(child=serializers.ChoiceField(EVENTS))
    active = serializers.BooleanField()
    failures = serializers.IntegerField()
    failing_since = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()


class NewReplyTokenAnswer(Shape):
    """A new token, shown only here. Order requests name it as `reply_to`. Its `id` is used to revoke it."""

    id = serializers.CharField()
    token = serializers.CharField()
    queue = serializers.CharField()


class ReplyTokenAnswer(Shape):
    """A token that was issued and not revoked. The token itself is not shown, only its queue."""

    id = serializers.CharField()
    queue = serializers.CharField()
    created_at = serializers.DateTimeField()


class TryAnswer(Shape):
    """One try; or, with `asked_by`, an account's request to send it again."""

    at = serializers.DateTimeField()
    status_code = serializers.IntegerField(allow_null=True, required=False)
    error = serializers.CharField(allow_blank=True, required=False)
    seconds = serializers.FloatField(required=False)
    asked_by = serializers.CharField(required=False, help_text="clients read their own name, or `operator`")


class DeliveryAnswer(Shape):
    """One message to one receiver, which is either a webhook or a reply queue."""

    id = serializers.CharField()
    message_id = serializers.CharField(help_text="the same for each receiver and each try")
    order = serializers.CharField(allow_null=True, help_text="null: a test")
    seq = serializers.IntegerField(help_text="of the order's messages, from 1, without a gap; of a test 0")
    event = serializers.ChoiceField([*EVENTS, TEST])
    webhook = serializers.CharField(allow_null=True)
    queue = serializers.CharField(allow_null=True)
    state = serializers.ChoiceField(DELIVERY_STATES)
    tries = serializers.IntegerField(help_text="since it was last asked for")
    status_code = serializers.IntegerField(allow_null=True)
    last_error = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()
    next_try_at = serializers.DateTimeField(allow_null=True)
    delivered_at = serializers.DateTimeField(allow_null=True)
    given_up_at = serializers.DateTimeField(allow_null=True)


class OneDeliveryAnswer(DeliveryAnswer):
    """A delivery with its exact body and every try."""

    body = serializers.CharField()
    log = TryAnswer(many=True)


WebhookPage = page_answer(WebhookAnswer)
ReplyTokenPage = page_answer(ReplyTokenAnswer)
DeliveryPage = page_answer(DeliveryAnswer)
