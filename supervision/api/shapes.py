"""Fields that refuse what is nearly right, and the shapes of requests and answers that views of several kinds share.

Answers are declared for the schema only: the views return plain dictionaries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _
from drf_spectacular.utils import PolymorphicProxySerializer
from rest_framework import serializers
from rest_framework.fields import empty

from supervision.signals.sending import Sent
from supervision.states import Direction, Effect, ProcessState, RunState

RUN_STATES = [state.value for state in RunState]
STEP_STATES = [state.value for state in ProcessState]
DIRECTIONS = [direction.value for direction in Direction]
EFFECTS = [effect.value for effect in Effect]
ACTIONS = ["run", "keep", "skip", "complete", "add", "remove"]
OUTCOMES = [str(outcome) for outcome in (Sent.ACCEPTED, Sent.REPEATED, Sent.LATE)]

# Also the characters that turn the direction of the text around them, and so show a name as another one.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]")


class Text(serializers.CharField):
    """A string. Numbers and control characters are refused."""

    default_error_messages = {
        "invalid": _("Expected a string."),
        "control": _("Control characters are not allowed."),
    }

    def run_validation(self, data: Any = empty) -> Any:
        if data is not empty and data is not None and not isinstance(data, str):
            self.fail("invalid")
        return super().run_validation(data)

    def to_internal_value(self, data: Any) -> str:
        if _CONTROL.search(data):
            self.fail("control")
        return str(super().to_internal_value(data))


class Whole(serializers.IntegerField):
    """An integer. Booleans, floats and strings are refused."""

    default_error_messages = {"invalid": _("Expected a whole number.")}

    def to_internal_value(self, data: Any) -> int:
        if type(data) is not int:
            self.fail("invalid")
        return data


class Choice(serializers.ChoiceField):
    """One of a few words. The error message lists them and does not repeat the value that was sent."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str) or data not in self.choices:
            words = ", ".join(map(str, self.choices))
            raise serializers.ValidationError(_("Expected one of: %(words)s.") % {"words": words}, code="invalid_choice")
        return data


class Flag(serializers.BooleanField):
    """true or false. Strings and numbers are refused."""

    def to_internal_value(self, data: object) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=type(data).__name__)
        return bool(data)


class Several(serializers.ListSerializer[Any]):
    """A list of objects."""

    default_error_messages = {
        "min_length": _("Expected at least one element."),
        "max_length": _("Expected at most {max_length} elements."),
    }


class Strict(serializers.Serializer[Any]):
    """A JSON object with exactly the declared fields."""

    class Meta:
        list_serializer_class = Several

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return super().to_internal_value(data)
        problems: dict[str, Any] = {}
        for name in list(data.keys() - self.fields.keys())[:20]:
            problems[str(name)[:100]] = [_("This field is not known.")]
        try:
            value = super().to_internal_value(data)
        except serializers.ValidationError as error:
            problems.update(error.detail)  # type: ignore[arg-type]
        if problems:
            raise serializers.ValidationError(problems)
        return value


class Shape(serializers.Serializer[Any]):
    """The shape of an answer."""


class Reason(Text):
    """The reason for an action, kept in the order's history."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=1000, **kwargs)


class PendingApproval(Shape):
    """The verb waits: another operator has to approve the request of this number."""

    approval = serializers.IntegerField()
    state = serializers.ChoiceField(["pending"])


def or_pending(answer: type[Shape]) -> PolymorphicProxySerializer:
    """The answer of a verb, or of one that waits for an approval."""
    name = f"{answer.__name__.removesuffix('Answer')}OrApproval"
    return PolymorphicProxySerializer(name, serializers=[answer, PendingApproval], resource_type_field_name=None)


class ReasonSerializer(Strict):
    """The reason for an action."""

    reason = Reason()


class ActSerializer(ReasonSerializer):
    """The reason, and the version of the plan that the operator looked at."""

    plan_version = Text(max_length=64, required=False, allow_null=True, default=None)


class StepSerializer(ActSerializer):
    """The reason, and the failed step's name where several branches have failed."""

    step = Text(max_length=200, required=False, allow_null=True, default=None)


class ResubmitSerializer(StepSerializer):
    """A resubmission: the attempt that the operator saw, and the corrections. The workflow checks what may be corrected."""

    attempt = Whole(required=False, allow_null=True, min_value=0, max_value=2**31 - 1, default=None)
    new_generation = Flag(required=False, default=False)
    amend = serializers.DictField(required=False)

    def validate_amend(self, value: dict[str, Any]) -> dict[str, Any]:
        """Refuse what PostgreSQL cannot keep: NUL and lone surrogates."""
        text = json.dumps(value, ensure_ascii=False)
        if "\\u0000" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise serializers.ValidationError("Control characters are not allowed.")
        return value


class CompleteSerializer(StepSerializer):
    """The result of a step that was done by hand, and the attempt that the operator saw."""

    result = serializers.DictField(required=False, default=dict)
    attempt = Whole(required=False, allow_null=True, min_value=0, max_value=2**31 - 1, default=None)


class MoveSerializer(ActSerializer):
    """The version of its workflow with which the order goes on; without it, the newest."""

    version = Whole(required=False, allow_null=True, min_value=1, max_value=2**15 - 1, default=None)


class ResumeFromSerializer(ActSerializer):
    """The earlier step from which the order goes on."""

    step = Text(max_length=200)


class SignalSerializer(Strict):
    """A signal: what the waiting step gets."""

    payload = serializers.DictField(required=False, default=dict)
    reason = Reason(required=False, default="")


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


class RunAnswer(Shape):
    """A run and its present state, as the engine's own directory answers it."""

    id = serializers.CharField()
    workflow = serializers.CharField()
    process_state = serializers.ChoiceField(RUN_STATES)
    direction = serializers.ChoiceField(DIRECTIONS)
    waiting_because = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    cancel_requested_at = serializers.DateTimeField(allow_null=True)
    steps = StepAnswer(many=True)


class SignalAnswer(Shape):
    """What became of a signal, as a word and as a sentence."""

    outcome = serializers.ChoiceField(OUTCOMES)
    message = serializers.CharField()


def signalled(answer: type[Shape]) -> type[Shape]:
    """The shape of an order's answer with what became of a signal."""
    told = {"signal": SignalAnswer(), "__doc__": "An order, and what became of the signal."}
    return type(f"Signalled{answer.__name__}", (answer,), told)


class ParentAnswer(Shape):
    """The parent of a run, and the step of it that waits for the run."""

    id = serializers.CharField()
    step = serializers.CharField()


class ChildAnswer(ParentAnswer):
    """A child of a run. `process_state`: its run's, or how the parent counts it where it has no run."""

    process_state = serializers.CharField()


class FamilyAnswer(Shape):
    """A run's relatives. `children`: at most 50, those in Error first. `children_by_state`: the number in each state, by step."""

    parent = ParentAnswer(allow_null=True)
    children = ChildAnswer(many=True)
    children_by_state = serializers.DictField(child=serializers.DictField(child=serializers.IntegerField()))


class PlanStepAnswer(Shape):
    """The action of a plan for one step."""

    name = serializers.CharField()
    direction = serializers.ChoiceField(DIRECTIONS)
    action = serializers.ChoiceField(ACTIONS)
    idempotency_key = serializers.CharField()
    key_reused = serializers.BooleanField()


class PlanAnswer(Shape):
    """What an action would do to the order in its present state, or the reasons why it is refused."""

    version = serializers.CharField()
    steps = PlanStepAnswer(many=True)
    refusals = serializers.ListField(child=serializers.CharField())


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
    code = serializers.CharField()
    errors = serializers.DictField(required=False)  # type: ignore[assignment]


def page_answer(item: type[Shape]) -> type[Shape]:
    """The envelope of a list of these."""
    fields = {
        "results": item(many=True),
        "next": serializers.CharField(allow_null=True),
        "previous": serializers.CharField(allow_null=True),
        "__doc__": f"One page of {_plural(item.__name__.removesuffix('Answer'))}.",
    }
    return type(f"{item.__name__.removesuffix('Answer')}Page", (Shape,), fields)


def _plural(name: str) -> str:
    """`DeadLetter` -> `dead letters`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return f"{words[:-1]}ies" if words.endswith("y") else f"{words}s"


AlertPage = page_answer(AlertAnswer)
DeadLetterPage = page_answer(DeadLetterAnswer)
