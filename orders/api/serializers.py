"""The shapes of requests and answers. `orders.validation` declares order requests; answers are declared here for the schema."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from orders.parcels.shown import SHOWN
from orders.payments.state import STATES
from orders.validation import MAX_KEY_LENGTH, AmendSerializer, LineSerializer, OrderRequestSerializer
from supervision.api import shapes
from supervision.api.shapes import DIRECTIONS, RUN_STATES, Shape, StepAnswer, Text, page_answer

MAX_BATCH = 500


class ResubmitSerializer(shapes.ResubmitSerializer):
    """A resubmission: the attempt that the operator saw, and the corrections."""

    amend = AmendSerializer(required=False)  # type: ignore[assignment]


class BatchItemSerializer(OrderRequestSerializer):
    """One order of a batch."""

    idempotency_key = Text(max_length=MAX_KEY_LENGTH, required=False, allow_null=True, default=None)


class BatchSerializer(Shape):
    """Up to 500 orders."""

    orders = BatchItemSerializer(many=True, min_length=1, max_length=MAX_BATCH)  # type: ignore[call-arg]


class OrderLineAnswer(LineSerializer):
    """A line with the price that the customer agreed to."""

    name = serializers.CharField()
    unit_price = serializers.CharField(help_text="decimal string")


class AddressAnswer(Shape):
    """The delivery address."""

    name = serializers.CharField()
    line1 = serializers.CharField()
    line2 = serializers.CharField(allow_blank=True)
    city = serializers.CharField()
    postal_code = serializers.CharField()
    country_area = serializers.CharField(required=False, help_text="the province or state, if it was named")
    country = serializers.CharField()


class PaymentAnswer(Shape):
    """The order's payment as its customer sees it."""

    state = serializers.ChoiceField(list(STATES))
    action_url = serializers.CharField(allow_null=True, help_text="the page on which the customer has to confirm the payment")
    paid = serializers.CharField(help_text="decimal string")
    refunded = serializers.CharField(help_text="decimal string")


class ParcelAnswer(Shape):
    """One parcel of the order, and where the carrier says that it is."""

    id = serializers.CharField(allow_null=True, help_text="the carrier's id of the shipment; null before its booking")
    state = serializers.ChoiceField(list(SHOWN))
    tracking_number = serializers.CharField(allow_null=True)
    changed_at = serializers.DateTimeField(allow_null=True, help_text="when the carrier says that it happened")
    warehouse = serializers.CharField(allow_null=True, help_text="where it comes from, in an order of several parcels")


class OrderAnswer(Shape):
    """An order and its present state."""

    id = serializers.CharField()
    number = serializers.CharField(help_text="for mails and phone calls; gives no access to the order")
    process_state = serializers.ChoiceField(RUN_STATES)
    direction = serializers.ChoiceField(DIRECTIONS)
    waiting_because = serializers.CharField(allow_null=True)
    incident = serializers.IntegerField(allow_null=True, help_text="the open incident that holds it up")
    total = serializers.CharField(help_text="decimal string")
    currency = serializers.CharField()
    email = serializers.CharField()
    lines = OrderLineAnswer(many=True)
    shipping_address = AddressAnswer()
    payment_method = serializers.CharField()
    language = serializers.CharField(help_text="of the mails and documents for the customer")
    payment = PaymentAnswer()
    parcels = ParcelAnswer(many=True)
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    cancel_requested_at = serializers.DateTimeField(allow_null=True)
    steps = StepAnswer(many=True)


class EventAnswer(Shape):
    """One transition of a step, or of the whole order if `step` is null."""

    seq = serializers.IntegerField()
    at = serializers.DateTimeField()
    step = serializers.CharField(allow_null=True)
    direction = serializers.ChoiceField(DIRECTIONS, allow_null=True)
    attempt = serializers.IntegerField(allow_null=True)
    to = serializers.CharField()
    actor = serializers.CharField()
    why = serializers.CharField(allow_blank=True)

    def get_fields(self) -> dict[str, Any]:
        """Add `from`, which cannot be an attribute because it is a Python keyword."""
        return {**super().get_fields(), "from": serializers.CharField(allow_null=True)}


class ReturnLineAnswer(LineSerializer):
    """One product of a return. `accepted` and `refused` are null until the goods were looked at."""

    name = serializers.CharField()
    unit_price = serializers.CharField(help_text="decimal string")
    accepted = serializers.IntegerField(allow_null=True)
    refused = serializers.IntegerField(allow_null=True)


class ReturnAnswer(Shape):
    """A return and its present state."""

    id = serializers.CharField()
    number = serializers.CharField()
    order = serializers.CharField(help_text="the order's id")
    process_state = serializers.ChoiceField(RUN_STATES)
    direction = serializers.ChoiceField(DIRECTIONS)
    waiting_because = serializers.CharField(allow_null=True)
    reason = serializers.CharField()
    currency = serializers.CharField()
    lines = ReturnLineAnswer(many=True)
    worth = serializers.CharField(allow_null=True, help_text="of the accepted pieces; null until the goods were looked at")
    refunded = serializers.CharField(help_text="decimal string")
    owed = serializers.CharField(help_text="decimal string: sent back and failed to arrive, or waits for its payout by bank transfer")
    too_much = serializers.CharField(help_text="decimal string: paid for pieces that did not come, as a correction of the report says")
    corrections = serializers.IntegerField(help_text="how often the report was corrected")
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)


class FirstEventsAnswer(Shape):
    """The oldest events of an order, and the address of the later ones."""

    results = EventAnswer(many=True)
    next = serializers.CharField(allow_null=True)


class TraceAnswer(Shape):
    """The order's trace."""

    id = serializers.CharField(help_text="32 hexadecimal digits, as in W3C Trace Context")
    url = serializers.CharField(allow_null=True, help_text="the page that shows it, if one is set")


class ExpandedOrderAnswer(OrderAnswer):
    """An order, with what `expand` asks for."""

    trace = TraceAnswer(required=False, allow_null=True, help_text="for operators; null where no traces are kept")

    events = FirstEventsAnswer(required=False)
    returns = ReturnAnswer(many=True, required=False)


class BatchResultAnswer(Shape):
    """The result of one order, with the status that a single request would have had."""

    index = serializers.IntegerField()
    status = serializers.IntegerField()
    id = serializers.CharField(required=False)
    number = serializers.CharField(required=False)
    code = serializers.CharField(required=False)
    detail = serializers.CharField(required=False)
    errors = serializers.DictField(required=False)  # type: ignore[assignment]


class BatchAnswer(Shape):
    """One result for each order, in the sequence of the request."""

    results = BatchResultAnswer(many=True)


class ProductAnswer(Shape):
    """A product on sale."""

    sku = serializers.CharField()
    name = serializers.CharField()
    price = serializers.CharField(help_text="decimal string")
    currency = serializers.CharField()
    available = serializers.IntegerField()
    category = serializers.CharField(allow_null=True, help_text="the category's address")
    image = serializers.CharField()


class ProblemAnswer(shapes.ProblemAnswer):
    """RFC 9457. `errors` has the request's own shape; `code` names the problem."""

    total = serializers.CharField(required=False, help_text="price_changed: the server's total")
    currency = serializers.CharField(required=False)


OrderPage = page_answer(OrderAnswer)
EventPage = page_answer(EventAnswer)
ProductPage = page_answer(ProductAnswer)
