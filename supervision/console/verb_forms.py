"""The operators' verbs in words, and their forms. Each asks for a reason and carries the state that the operator saw."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from django import forms
from django.db.models import Q
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget, UnfoldBooleanWidget

from supervision.console.shared import LinesField
from supervision.errors import DefinitionError, UnreadableSubmission
from supervision.jobs.selection import Seen
from supervision.models import Run, StepState
from supervision.states import Direction, ProcessState, RunState
from supervision.workflow import newest, version_of

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise as StrOrPromise

BULK_LIMIT = 500  # orders that are selected one by one; the page names each
REASON_LENGTH = 500


@dataclass(frozen=True)
class Verb:
    """One thing an operator can do to a run, in words, and the states in which it makes sense."""

    name: str
    label: StrOrPromise
    explanation: StrOrPromise
    done: StrOrPromise
    states: frozenset[RunState]
    icon: str
    dangerous: bool = False
    forward_only: bool = False


_OPEN = frozenset({RunState.PENDING, RunState.PROCESSING})
VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "resubmit",
            _("Resubmit"),
            _("The failed step runs again. Steps that are done stay done."),
            _("The failed step will run again."),
            frozenset({RunState.ERROR}),
            "replay",
        ),
        Verb(
            "skip",
            _("Skip step"),
            _("The failed step is left out and the order goes on with the next one."),
            _("The step is skipped and the order goes on."),
            frozenset({RunState.ERROR}),
            "skip_next",
            dangerous=True,
        ),
        Verb(
            "complete",
            _("Done by hand"),
            _("The step counts as done, with the result that you give, and the order goes on with the next one."),
            _("The step is done and the order goes on."),
            frozenset({RunState.ERROR, RunState.PROCESSING}),
            "task_alt",
            dangerous=True,
        ),
        Verb(
            "compensate",
            _("Undo"),
            _("What was done, or may have been done, is undone in reverse order; then the order is cancelled."),
            _("What was done is being undone."),
            frozenset({RunState.ERROR, RunState.PROCESSING}),
            "undo",
            dangerous=True,
            forward_only=True,
        ),
        Verb(
            "cancel",
            _("Cancel order"),
            _("The order ends cancelled. What was done is undone first."),
            _("The order is being cancelled."),
            _OPEN | {RunState.ERROR},
            "cancel",
            dangerous=True,
            forward_only=True,
        ),
        Verb(
            "abandon",
            _("Cancel without undo"),
            _("The order ends cancelled. What was done for it at other services stays as it is: nothing is paid back or called off."),
            _("The order is cancelled without undo."),
            _OPEN | {RunState.ERROR, RunState.COMPENSATING},
            "block",
            dangerous=True,
        ),
        Verb(
            "signal",
            _("Send signal"),
            _("The order gets a signal that it waits for, as if its sender had sent it. It is kept if it comes too early."),
            _("The signal is sent."),
            _OPEN | {RunState.ERROR},
            "sensors",
            forward_only=True,
        ),
        Verb(
            "resume",
            _("Go back to a step"),
            _("The step that you choose and all that came after it are undone, and then done again."),
            _("The order goes back to the step."),
            frozenset({RunState.ERROR, RunState.PROCESSING}),
            "settings_backup_restore",
            dangerous=True,
            forward_only=True,
        ),
        Verb(
            "move",
            _("Move to the newest version"),
            _("The order goes on with the newest version of its workflow. What has begun is kept, the rest is planned again."),
            _("The order goes on with the newest version."),
            _OPEN | {RunState.ERROR},
            "upgrade",
            dangerous=True,
            forward_only=True,
        ),
    )
}
BULK_VERBS = ("resubmit", "skip", "cancel", "abandon")
# Takes corrected parts of a payload. Returns them as the application stores them, and the errors by place.
Check = Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], Mapping[str, list[str]]]]


def label_of(verb: str) -> str:
    """The verb as the console's buttons call it; one of the application's as the API does."""
    return str(VERBS[verb].label) if verb in VERBS else verb


def verbs_for(run: Run) -> list[Verb]:
    """The verbs that make sense in the state the run is in."""
    undoing = run.direction == Direction.UNDO
    possible = [verb for verb in VERBS.values() if run.process_state in verb.states and not (undoing and verb.forward_only)]
    asked: dict[str, Callable[[Run], Sequence[str]]] = {"signal": signals_of, "complete": completable, "move": newer, "resume": begun}
    return [verb for verb in possible if verb.name not in asked or asked[verb.name](run)]


def completable(run: Run) -> list[str]:
    """The names of the steps that an operator may record as done by hand: those that failed, and those that wait."""
    steps = StepState.objects.filter(run=run, direction=run.direction).order_by("position")
    failed = Q(process_state=ProcessState.ERROR)
    asleep = Q(process_state=ProcessState.PENDING, not_before__isnull=False, turn_at__isnull=True, direction=Direction.DO)
    return list(steps.filter(failed | asleep).values_list("name", flat=True))


def signals_of(run: Run) -> list[str]:
    """The names of the signals that the run's workflow waits for."""
    try:
        return sorted(version_of(run.workflow, run.version).signals)
    except DefinitionError:
        return []


def begun(run: Run) -> list[str]:
    """The names of the steps that have begun, if none of them is running."""
    steps = StepState.objects.filter(run=run, direction=Direction.DO).order_by("position")
    if any(step.process_state == ProcessState.PROCESSING for step in steps):
        return []
    return [step.name for step in steps if step.process_state != ProcessState.PENDING or step.attempt > 0]


def newer(run: Run) -> list[str]:
    """The newest version of the run's workflow, if this code knows one that is newer than the run's."""
    try:
        latest = newest(run.workflow).version
    except UnreadableSubmission:
        return []
    return [str(latest)] if latest > run.version else []


def stopped_at(run: Run, steps: Sequence[StepState]) -> list[StepState]:
    """The steps in Error that a verb would act on. Without one, those that had failed before the run went back: they stay so."""
    failed = [step for step in steps if step.process_state == ProcessState.ERROR]
    return [step for step in failed if step.direction == run.direction] or failed


def failed_step(run: Run, steps: Sequence[StepState]) -> StepState | None:
    """The first of them, if there is one."""
    return next(iter(stopped_at(run, steps)), None)


def failed_names(run: Run, steps: Sequence[StepState]) -> str:
    """Their names, as text."""
    return ", ".join(step.name for step in stopped_at(run, steps))


def step_field(names: Sequence[str], *, all_of_them: bool) -> forms.ChoiceField:
    """Asks which of several failed steps is meant. all_of_them: all may be meant."""
    choices: list[tuple[str, StrOrPromise]] = [("", _("All failed steps"))] if all_of_them else []
    choices += [(name, name) for name in names]
    help_text = _("Several branches have failed. The order goes on when none of its steps is in Error any more.")
    return forms.ChoiceField(
        label=_("Step"), choices=choices, required=not all_of_them, help_text=help_text, widget=UnfoldAdminSelectWidget
    )


class ReasonForm(forms.Form):
    """Asks for a reason, which every operation needs."""

    reason = LinesField(
        label=_("Reason"),
        max_length=REASON_LENGTH,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        help_text=_("Stays in the order's history together with your name."),
    )


class VerbForm(ReasonForm):
    """A reason, and the plan's version and the attempt that the operator saw when giving it."""

    plan_version = forms.CharField(required=False, widget=forms.HiddenInput)
    attempt = forms.IntegerField(required=False, widget=forms.HiddenInput)


class ResubmitForm(VerbForm):
    """Also offers a new idempotency key, for an operator who has checked the remote service."""

    new_generation = forms.BooleanField(
        label=_("Use a new idempotency key"),
        required=False,
        widget=UnfoldBooleanWidget,
        help_text=_(
            "Leave this off unless you have looked at the remote service and know that the step had no effect there. "
            "With the old key the service recognises a repetition; with a new one it does the work once more."
        ),
    )


class ChoiceForm(VerbForm):
    """Offers `names` to choose from, in the field `offers`."""

    offers = "step"

    def __init__(self, *args: Any, names: Sequence[str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields[self.offers].choices = [(name, name) for name in names]  # type: ignore[attr-defined]


class SignalForm(ChoiceForm):
    """Which signal, and what the step gets with it. Its key is made with the form, so that a second click has no second effect."""

    offers = "name"
    key = forms.CharField(max_length=64, initial=partial(secrets.token_urlsafe, 16), widget=forms.HiddenInput)
    name = forms.ChoiceField(label=_("Signal"), widget=UnfoldAdminSelectWidget)
    payload = forms.JSONField(
        label=_("Payload"),
        required=False,
        initial=dict,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}),
        help_text=_("A JSON object, as the signal's sender would have sent it."),
    )

    def clean_payload(self) -> dict[str, Any]:
        """Refuse what is no object."""
        return _an_object(self.cleaned_data["payload"])


class CompleteForm(ChoiceForm):
    """Which step was done by hand, and its result."""

    step = forms.ChoiceField(label=_("Step"), widget=UnfoldAdminSelectWidget)
    result = forms.JSONField(
        label=_("Result"),
        required=False,
        initial=dict,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}),
        help_text=_("A JSON object: what the step's agent would have returned. Later steps may read it."),
    )

    def clean_result(self) -> dict[str, Any]:
        """Refuse what is no object."""
        return _an_object(self.cleaned_data["result"])


class ResumeForm(ChoiceForm):
    """From which step the order goes on."""

    step = forms.ChoiceField(label=_("Step"), widget=UnfoldAdminSelectWidget)


def _an_object(value: Any) -> dict[str, Any]:
    if not isinstance(value or {}, dict):
        raise forms.ValidationError(_("Expected a JSON object."))
    return value or {}


class OnceForm(ReasonForm):
    """A reason. token: made with the form, so that a form that is sent twice starts one job."""

    token = forms.CharField(required=False, max_length=64, initial=partial(secrets.token_urlsafe, 16), widget=forms.HiddenInput)


LONGEST_ATTEMPT = 9  # digits


class BulkForm(OnceForm):
    """`chosen`: the public id of each order, with the attempt and the step in Error that were shown."""

    chosen = forms.CharField(widget=forms.HiddenInput)

    def clean_chosen(self) -> list[Seen]:
        """Parse them."""
        found: list[Seen] = []
        for word in self.cleaned_data["chosen"].split()[:BULK_LIMIT]:
            key, attempt, step = parts_of(word)
            if len(attempt) > LONGEST_ATTEMPT:
                raise forms.ValidationError(word[:100], "invalid")
            found.append(Seen(key, int(attempt) if attempt.isdecimal() else None, step))
        return found


def as_word(key: str, step: StepState | None) -> str:
    """One order of `chosen`, with the step that is shown. A name with spaces or colons is left out."""
    name = step.name if step and not re.search(r"[\s:]", step.name) else ""
    return f"{key}:{step.attempt if step else ''}:{name}"


def parts_of(word: str) -> tuple[str, str, str]:
    """The public id, the attempt and the step of such a word. A page of the release before names no step."""
    before, _colon, last = word.rpartition(":")
    key, _colon, attempt = before.rpartition(":")
    return (key, attempt, last) if key else (before, last, "")


class AmendForm(forms.Form):
    """The part of a run's payload that an operator may correct for one step: texts, and objects of texts.

    `labels` names the fields by their place (`email`, `shipping_address.city`); `check` is the application's validator.
    """

    def __init__(
        self, payload: Mapping[str, Any], names: Sequence[str], labels: Mapping[str, Any], check: Check,
        data: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(data, prefix="amend")
        self.payload, self.check = payload, check
        self.amended: Mapping[str, Any] | None = None
        order = list(labels)
        for name in names:
            value = payload.get(name, "")
            parts = {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
            for place in sorted(parts, key=lambda place: order.index(place) if place in order else len(order)):
                if isinstance(part := parts[place], str):
                    label = labels.get(place) or gettext(place.replace("_", " ").replace(".", ": ").capitalize())
                    widget = UnfoldAdminTextInputWidget()
                    self.fields[place] = forms.CharField(label=label, initial=part, required=False, max_length=1000, widget=widget)

    def clean(self) -> None:
        """Set `amended` to the changed fields, an object as a whole if a part of it changed. None if nothing changed."""
        result: dict[str, Any] = {}
        for place in self.changed_data:
            name, _dot, key = place.partition(".")
            if place not in self.cleaned_data:
                continue
            if key:
                result.setdefault(name, dict(self.payload[name]))[key] = self.cleaned_data[place]
            else:
                result[name] = self.cleaned_data[place]
        if result:
            self.amended, errors = self.check(result)
            for place, problems in errors.items():
                self.add_error(place if place in self.fields else None, problems)
