"""The shapes of requests and answers. `orders.validation` declares order requests; answers are declared here for the schema."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from orders.validation import MAX_KEY_LENGTH, AmendSerializer, LineSerializer, OrderRequestSerializer, Strict, Text, Whole
from supervision.states import Direction, Effect, ProcessState, RunState

MAX_BATCH = 500
RUN_STATES = [state.value for state in RunState]
STEP_STATES = [state.value for state in ProcessState]
DIRECTIONS = [direction.value for direction in Direction]
EFFECTS = [effect.value for effect in Effect]


class Shape(serializers.Serializer[Any]):
    """The shape of an answer. Used only for the schema: the views return plain dictionaries."""


class Reason(Text):
    """The reason for an action, kept in the order's history."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=1000, **kwargs)


class ReasonSerializer(Strict):
    """The reason for an action."""

    reason = Reason()


class ActSerializer(ReasonSerializer):
    """The reason, and the version of the plan that the operator looked at."""

    plan_version = Text(max_length=64, required=False, allow_null=True, default=None)


class Flag(serializers.BooleanField):
    """true or false. Strings and numbers are refused."""

    def to_internal_value(self, data: object) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=type(data).__name__)
        return bool(data)


class ResubmitSerializer(ActSerializer):
    """A resubmission: the attempt that the operator saw, and the corrections."""

    attempt = Whole(required=False, allow_null=True, min_value=0, max_value=2**31 - 1, default=None)
    new_generation = Flag(required=False, default=False)
    amend = AmendSerializer(required=False)


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
    country = serializers.CharField()


class StepAnswer(Shape):
    """One step, with the field names of the Scheduler-Agent-Supervisor pattern."""

    name = serializers.CharField()
    position = serializers.IntegerField()
    direction = serializers.ChoiceField(DIRECTIONS)
    agent = serializers.CharField()
    process_state = serializers.ChoiceField(STEP_STATES)
    effect = serializers.ChoiceField(EFFECTS)
    attempt = serializers.IntegerField()
    generation = serializers.IntegerField()
    failure_count = serializers.IntegerField()
    locked_by = serializers.CharField(allow_null=True)
    complete_by = serializers.DateTimeField(allow_null=True)
    not_before = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField(allow_null=True)
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)


class OrderAnswer(Shape):
    """An order and its present state."""

    id = serializers.CharField()
    number = serializers.CharField(allow_null=True, help_text="for mails and phone calls; gives no access to the order")
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


class PlanStepAnswer(Shape):
    """The action of a plan for one step."""

    name = serializers.CharField()
    direction = serializers.ChoiceField(DIRECTIONS)
    action = serializers.ChoiceField(["run", "keep", "skip"])
    idempotency_key = serializers.CharField()
    key_reused = serializers.BooleanField()


class PlanAnswer(Shape):
    """What an action would do to the order in its present state."""

    version = serializers.CharField()
    steps = PlanStepAnswer(many=True)


class BatchResultAnswer(Shape):
    """The result of one order, with the status that a single request would have had."""

    index = serializers.IntegerField()
    status = serializers.IntegerField()
    id = serializers.CharField(required=False)
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
    image = serializers.CharField()


class AlertAnswer(Shape):
    """A reason why one order needs an operator."""

    id = serializers.IntegerField()
    order = serializers.CharField()
    step = serializers.CharField(allow_blank=True)
    kind = serializers.CharField()
    incident = serializers.IntegerField(allow_null=True)
    message = serializers.CharField(allow_blank=True)
    raised_at = serializers.DateTimeField()
    acknowledged_at = serializers.DateTimeField(allow_null=True)
    acknowledged_by = serializers.CharField(allow_null=True)
    closed_at = serializers.DateTimeField(allow_null=True)


class DeadLetterAnswer(Shape):
    """A message or submission that no consumer could read, with the reason. `body`: its bytes in base64. `text`: its beginning."""

    id = serializers.IntegerField()
    source = serializers.CharField()  # type: ignore[assignment]
    content_type = serializers.CharField(allow_blank=True)
    headers = serializers.DictField()
    delivery = serializers.DictField()
    reason = serializers.CharField(allow_blank=True)
    deliveries = serializers.IntegerField()
    public_id = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()
    resolved_at = serializers.DateTimeField(allow_null=True)
    resolution = serializers.CharField(allow_blank=True)
    body = serializers.CharField(allow_blank=True)
    text = serializers.CharField(allow_blank=True)


class ProblemAnswer(Shape):
    """RFC 9457. `errors` has the request's own shape; `code` names the problem."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField(required=False)
    code = serializers.CharField(required=False)
    errors = serializers.DictField(required=False)  # type: ignore[assignment]
    total = serializers.CharField(required=False, help_text="price_changed: the server's total")
    currency = serializers.CharField(required=False)


def page_answer(item: type[Shape]) -> type[Shape]:
    """The envelope of a list of these."""
    fields = {
        "results": item(many=True),
        "next": serializers.CharField(allow_null=True),
        "previous": serializers.CharField(allow_null=True),
        "__doc__": f"One page of {item.__name__.removesuffix('Answer').lower()}s.",
    }
    return type(f"{item.__name__.removesuffix('Answer')}Page", (Shape,), fields)


OrderPage = page_answer(OrderAnswer)
EventPage = page_answer(EventAnswer)
ProductPage = page_answer(ProductAnswer)
AlertPage = page_answer(AlertAnswer)
DeadLetterPage = page_answer(DeadLetterAnswer)
