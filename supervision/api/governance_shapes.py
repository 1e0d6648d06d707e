"""The shapes of requests and answers about pauses, resources and queues."""

from __future__ import annotations

import math
from typing import Any

from rest_framework import serializers

from supervision.api.shapes import Choice, Flag, Reason, ReasonSerializer, Shape, Strict, Text, Whole, page_answer
from supervision.models import Pause, Resource

SCOPES = [str(scope) for scope in Pause.Scope.values]
BREAKERS = [str(state) for state in Resource.Breaker.values]
SMALL, LARGE = 32767, 2**31 - 1


class Number(serializers.FloatField):
    """A finite JSON number. Strings and booleans are refused."""

    def to_internal_value(self, data: Any) -> float:
        if isinstance(data, bool) or not isinstance(data, int | float) or abs(data) > LARGE or not math.isfinite(data):
            self.fail("invalid")
        return float(data)


class OrderPauseSerializer(ReasonSerializer):
    """The reason of a pause, and its end."""

    until = Text(
        required=False,
        allow_null=True,
        default=None,
        max_length=40,
        help_text="a time (ISO 8601), or a duration: 15m, 2h; none: until resumed",
    )


class PauseSerializer(OrderPauseSerializer):
    """What to pause. `name` is an order's public id, or the name of an agent or a workflow; empty for everything."""

    scope = Choice(SCOPES)
    name = Text(required=False, allow_blank=True, default="", max_length=200)


class LiftSerializer(Strict):
    """An optional reason."""

    reason = Reason(required=False, allow_blank=True, default="")


class LimitsSerializer(Strict):
    """Limits of a resource. Limits that the request leaves out stay as they are."""

    capacity = Whole(
        required=False, allow_null=True, min_value=1, max_value=LARGE, help_text="calls at once over all workers; null: no limit"
    )
    rate_per_second = Number(required=False, allow_null=True, min_value=0.001, max_value=1e6, help_text="null: no limit")
    paused = Flag(required=False)
    breaker_threshold = Whole(required=False, min_value=1, max_value=SMALL)
    cool_down_seconds = Whole(required=False, min_value=1, max_value=LARGE)
    probe_limit = Whole(required=False, min_value=1, max_value=SMALL)


class PauseAnswer(Shape):
    """A pause. It stops claims for one order, one agent, one workflow or everything."""

    id = serializers.IntegerField()
    scope = serializers.ChoiceField(SCOPES)
    name = serializers.CharField(allow_blank=True)
    reason = serializers.CharField()
    paused_by = serializers.CharField()
    paused_at = serializers.DateTimeField()
    until = serializers.DateTimeField(allow_null=True)
    active = serializers.BooleanField()
    lifted_at = serializers.DateTimeField(allow_null=True)
    lifted_by = serializers.CharField(allow_null=True)
    lift_reason = serializers.CharField(allow_null=True)


class ResourceAnswer(Shape):
    """A remote resource: its limits, its breaker and its load."""

    name = serializers.CharField()
    service = serializers.CharField(help_text="the service that agents ask for; it may have several resources")
    capacity = serializers.IntegerField(allow_null=True)
    rate_per_second = serializers.FloatField(allow_null=True)
    paused = serializers.BooleanField()
    in_flight = serializers.IntegerField()
    waiting = serializers.IntegerField(help_text="steps of the service that no agent has started")
    breaker_state = serializers.ChoiceField(BREAKERS)
    failures = serializers.IntegerField()
    breaker_threshold = serializers.IntegerField()
    cool_down_seconds = serializers.IntegerField()
    probe_limit = serializers.IntegerField()
    opened_at = serializers.DateTimeField(allow_null=True)
    retry_at = serializers.DateTimeField(allow_null=True)
    last_error = serializers.CharField(allow_null=True)
    last_error_at = serializers.DateTimeField(allow_null=True)


class QueueAnswer(Shape):
    """One agent's load, from the database."""

    agent = serializers.CharField()
    waiting = serializers.IntegerField()
    running = serializers.IntegerField()
    overdue = serializers.IntegerField()
    oldest_seconds = serializers.FloatField()
    held = serializers.IntegerField(help_text="how many of the waiting steps are paused")
    finished_per_second = serializers.FloatField()
    mean_seconds = serializers.FloatField()
    consumers = serializers.IntegerField()
    recommended_calls = serializers.IntegerField()
    recommended_consumers = serializers.IntegerField()


PausePage = page_answer(PauseAnswer)
ResourcePage = page_answer(ResourceAnswer)
QueuePage = page_answer(QueueAnswer)
