"""The operators' verbs as pages: GET shows what would happen. Only POST acts, and never on a run that has changed since.

`RunVerbs` is mixed into the admin that shows runs. `supervision.operations.operator_verbs` does all the writing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from supervision.approvals import rights
from supervision.console.bulk.pages import BulkPages
from supervision.console.shared import may_operate, person
from supervision.console.verb_forms import (
    VERBS,
    AmendForm,
    CompleteForm,
    ResubmitForm,
    ResumeForm,
    SignalForm,
    Verb,
    VerbForm,
    begun,
    completable,
    failed_step,
    signals_of,
    step_field,
    verbs_for,
)
from supervision.errors import AwaitsApproval, ChangedMeanwhile, DefinitionError, Refused, UnknownRun
from supervision.insight import queries
from supervision.jobs.acting import must_still_fail
from supervision.models import Run, StepState
from supervision.models.labels import RUN_LABELS
from supervision.operations import completing, moving, operator_verbs, previews, resuming
from supervision.operations.ending import abandoning
from supervision.signals.sending import told
from supervision.states import Direction, Effect, ProcessState, RunState
from supervision.workflow import version_of


class RunVerbs(BulkPages):
    """Adds the verbs' pages to an admin of runs, or of rows that have a run."""

    amend_labels: Mapping[str, Any] = {}

    def check_amended(self, parts: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, list[str]]]:
        """The application's check of an operator's corrections: the parts as it stores them, and the errors by place."""
        return parts, {}

    def caution(self, obj: Any, verb: str, steps: Sequence[StepState]) -> str:
        """What the application warns of before this verb acts on these steps, which are in Error; empty if there is nothing."""
        return ""

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """Whether this account may act. Django calls it before it offers an action."""
        return may_operate(request) and self.has_view_permission(request)

    def verb_urls(self) -> list[URLPattern]:
        """One address per verb and run, and those of the verbs for many runs."""
        prefix = f"{self.opts.app_label}_{self.opts.model_name}"
        guard = self.admin_site.admin_view
        return [
            path("<int:object_id>/operate/<slug:verb>/", guard(self.operate_view), name=f"{prefix}_operate"),
            *self.bulk_urls(),
        ]

    # --- One run ------------------------------------------------------------------------------------------------------

    def operate_view(self, request: HttpRequest, object_id: int, verb: str) -> HttpResponse:
        """Show what a verb would do (GET), or do it (POST) unless the run has changed since."""
        if not (rights.may(request.user, verb) and self.has_view_permission(request)):
            raise PermissionDenied
        obj = self.get_object(request, str(object_id))
        if obj is None or verb not in VERBS:
            raise Http404
        chosen, run = VERBS[verb], self.run_of(obj)
        if request.method != "POST":
            return self._confirm(request, obj, run, chosen)
        steps = queries.steps_of([run.pk]).get(run.pk, [])
        form = self._verb_form(run, chosen, steps, request.POST)
        amend = self._amend_form(run, chosen, failed_step(run, steps), request.POST)
        if not form.is_valid() or (amend is not None and not amend.is_valid()):
            return self._confirm(request, obj, run, chosen, form, amend)
        try:
            done = self._act(request, run, chosen, form.cleaned_data, amend.amended if amend else None)
        except ChangedMeanwhile:
            return self._confirm(request, obj, run, chosen, typed=form.cleaned_data | (amend.cleaned_data if amend else {}))
        except AwaitsApproval as waits:
            messages.warning(request, str(waits))
        except Refused as refusal:
            messages.error(request, str(refusal))
        except UnknownRun:
            raise Http404 from None
        else:
            messages.success(request, done)
        return HttpResponseRedirect(self._address("change", obj.pk))

    def _act(self, request: HttpRequest, run: Run, verb: Verb, seen: Mapping[str, Any], amend: Mapping[str, Any] | None) -> Any:
        """Act, and say in words what was done."""
        who, reason, version = person(request), seen["reason"], seen["plan_version"] or None
        step = seen.get("step") or None
        attempt = None if step else seen["attempt"]  # the attempt is that of the first failed step
        match verb.name:
            case "resubmit":
                operator_verbs.resubmit(
                    run.key, by=who, reason=reason, attempt=attempt, plan_version=version, amend=amend, step=step,
                    new_generation=seen["new_generation"],
                )  # fmt: skip
            case "skip":
                operator_verbs.skip(run.key, by=who, reason=reason, attempt=attempt, plan_version=version, step=step)
            case "complete":
                completing.complete(run.key, by=who, reason=reason, result=seen["result"], step=step, plan_version=version)
            case "compensate":
                operator_verbs.compensate(run.key, by=who, reason=reason, plan_version=version)
            case "abandon":
                abandoning.abandon(run.key, by=who, reason=reason, plan_version=version)
            case "resume":
                resuming.resume_from(run.key, seen["step"], by=who, reason=reason, plan_version=version)
            case "move":
                moving.move(run.key, by=who, reason=reason, plan_version=version)
            case "signal":
                sent = operator_verbs.signal(run.key, seen["name"], by=who, reason=reason, payload=seen["payload"], signal_key=seen["key"])
                return told(run.key, sent.outcome)
            case "cancel":
                must_still_fail(run.key, seen["attempt"])
                operator_verbs.cancel(run.key, by=who, reason=reason)
        return verb.done

    def _verb_form(self, run: Run, verb: Verb, steps: Sequence[StepState], data: Any = None, **initial: Any) -> VerbForm:
        if verb.name == "signal":
            asleep = StepState.objects.filter(run=run, process_state=ProcessState.PENDING, turn_at__isnull=True, awaits__gt="").first()
            return SignalForm(data, initial={"name": asleep and asleep.awaits, **initial}, names=signals_of(run))
        if verb.name == "resume":
            return ResumeForm(data, initial=initial, names=begun(run))
        if verb.name == "complete":
            return CompleteForm(data, initial=initial, names=completable(run))
        failed = failed_steps(run, steps)
        if verb.name not in ("resubmit", "skip"):
            return VerbForm(data, initial=initial)
        form = (ResubmitForm if verb.name == "resubmit" else VerbForm)(data, initial=initial)
        if all(step.effect == Effect.NONE for step in failed) and verb.name == "resubmit":
            form.fields["new_generation"].widget = forms.HiddenInput()  # such a step gets a new key automatically
        if len(failed) > 1:
            form.fields["step"] = step_field([step.name for step in failed], all_of_them=verb.name == "resubmit")
        return form

    def _amend_form(self, run: Run, verb: Verb, step: StepState | None, data: Mapping[str, Any] | None = None) -> AmendForm | None:
        if verb.name != "resubmit" or step is None or step.direction != Direction.DO:
            return None
        try:
            names = version_of(run.workflow, run.version).step(step.position).amendable
        except (DefinitionError, IndexError):
            return None
        return AmendForm(run.payload, names, self.amend_labels, self.check_amended, data) if names else None

    def _plan(self, request: HttpRequest, run: Run, verb: Verb) -> previews.Plan:
        if verb.name == "move":
            return moving.plan(run.key)
        if verb.name == "resume":
            return resuming.plan(run.key, request.POST.get("step") or request.GET.get("step") or begun(run)[-1])
        return previews.plan(run.key, verb.name)

    def _confirm(
        self, request: HttpRequest, obj: Any, run: Run, verb: Verb,
        form: VerbForm | None = None, amend: AmendForm | None = None, *, typed: Mapping[str, Any] | None = None,
    ) -> HttpResponse:  # fmt: skip
        run.refresh_from_db()
        steps = queries.steps_of([run.pk]).get(run.pk, [])
        step, plan, refusal = failed_step(run, steps), None, ""
        if verb not in verbs_for(run):
            refusal = _("The order is %(state)s; this is not possible now.") % {"state": RUN_LABELS[RunState(run.process_state)]}
        else:
            try:
                plan = self._plan(request, run, verb)
                refusal = " ".join(plan.refusals) if verb.name in ("move", "abandon") else ""
            except (Refused, UnknownRun) as problem:
                refusal = str(problem)
        if form is None and plan is not None:
            attempt = step.attempt if step is not None else None
            form = self._verb_form(run, verb, steps, plan_version=plan.version, attempt=attempt, reason=(typed or {}).get("reason", ""))
            amend = self._amend_form(run, verb, step)
            if amend is not None and typed is not None:
                for place, field in amend.fields.items():
                    field.initial = typed.get(place, field.initial)
        undoing = verb.name in previews.UNDOING
        rows = [row for row in plan.steps if not (undoing and row.action == "keep")] if plan else []
        return self.page(
            request, "operate.html", 409 if typed is not None or refusal else 200,
            title=verb.label, subtitle=str(obj), verb=verb, object=obj, run=run, step=step, plan=plan, rows=rows, form=form,
            amend=amend, refusal=refusal, changed=typed is not None,
            caution=self.caution(obj, verb.name, failed_steps(run, steps)), back=self._address("change", obj.pk),
        )  # fmt: skip


def failed_steps(run: Run, steps: Sequence[StepState]) -> list[StepState]:
    """The steps in Error that a verb would act on."""
    return [step for step in steps if step.process_state == ProcessState.ERROR and step.direction == run.direction]
