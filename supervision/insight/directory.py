"""How operators' commands and API find and show runs.

Runs are found by their public ids. An application whose runs have other names, or more to show, subclasses
`Directory` and calls `use` in its module `workflows`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext as _

from supervision.errors import NotPermitted
from supervision.insight import queries
from supervision.insight.filters import Filters
from supervision.insight.queries import iso
from supervision.insight.waiting import why_unconsumed, why_waiting
from supervision.models import Run, StepState, Submission
from supervision.states import Direction, ProcessState, RunState


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One run, also before a consumer has made it from its submission.

    run_id: None before that. title, details: lines for a person, before and after its state. answer: its JSON form, with at
    least the names that `Directory` answers.
    """

    key: str
    run_id: int | None
    title: str
    answer: dict[str, Any]
    steps: Sequence[StepState] = ()
    details: Sequence[str] = ()


class Directory:
    """The engine's own, by public ids. known_by: what names a run. columns: the headers of a list, as in `cells`. filters: of its list."""

    known_by = "public id"
    columns: Sequence[str] = ("ID", "WORKFLOW", "STATE", "CREATED")
    filters = Filters()

    def find(self, said: str) -> Entry | None:
        """The run that an operator names; None if there is none."""
        archived = queries.archived_run(said)
        run = archived.run if archived else Run.objects.filter(key=said).first()
        if run is not None:
            because = None if run.finished_at else why_waiting([run.pk]).get(run.pk)
            return _entry(run, because, queries.steps_of([run.pk])[run.pk])
        waiting = Submission.objects.filter(public_id=said).first()
        if waiting is None:
            return None
        run = Run(key=said, workflow=waiting.workflow, created_at=waiting.created_at, cancel_requested_at=waiting.cancel_requested_at)
        run.process_state, run.direction = RunState.PENDING.value, Direction.DO.value
        return _entry(run, why_unconsumed([said])[said] if waiting.consumed_at is None else None)

    def names(self, keys: Sequence[str]) -> dict[str, str]:
        """What people call the runs with these public ids, for lists; without those that have no other name."""
        return {}

    def client_of(self, account: AbstractBaseUser) -> str | None:
        """The client name under which this account's submissions and webhooks are stored; None: it may have no webhooks."""
        return f"user:{account.pk}" if account.has_perm("supervision.add_webhookendpoint") else None  # type: ignore[attr-defined]

    def clients_send(self, signal: str) -> bool:
        """Whether the client that submitted a run may send it this signal. An application refuses what only its operators know."""
        return True

    def newest(self, given: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
        """The newest runs that fit these filters, as JSON values with at least the names of `state_facts`. Raises BadFilter."""
        listed = list(self.filters.found(given)[:most])
        steps = queries.steps_of([run.pk for run in listed])
        return [{"id": run.key, "workflow": run.workflow, **state_facts(run, steps[run.pk])} for run in listed]

    def cells(self, row: dict[str, Any]) -> Sequence[Any]:
        """One row of `newest` in a table."""
        return row["id"], row["workflow"], row["process_state"], row["created_at"]


_used: list[Directory] = [Directory()]


def use(directory: Directory) -> None:
    """Let the doors find and show runs with this directory."""
    _used[0] = directory


def current() -> Directory:
    """The directory in use."""
    return _used[0]


def find(said: str) -> Entry | None:
    """The run that an operator names, as the application's directory finds it, or else the engine's own: a child, for example."""
    return current().find(said) or Directory().find(said)


def names(keys: Iterable[str]) -> dict[str, str]:
    """What people call the runs with these public ids: each has a name, and be it its id."""
    asked = list(dict.fromkeys(keys))
    return dict(zip(asked, asked, strict=True)) | (current().names(asked) if asked else {})


def demand_of_client(signal: str) -> None:
    """Raise NotPermitted if the client that submitted a run may not send it this signal."""
    if not current().clients_send(signal):
        raise NotPermitted(_("Operators send the signal %(name)s. The client that placed the order may not.") % {"name": signal})


def state_facts(run: Run, steps: Sequence[StepState], **more: Any) -> dict[str, Any]:
    """A run's state and the step that failed last, for a list. more: the application's facts, before the times."""
    failed = next((step for step in reversed(steps) if step.process_state == ProcessState.ERROR), None)
    return {
        "process_state": run.process_state,
        "direction": run.direction,
        **more,
        "created_at": run.created_at,
        "finished_at": run.finished_at,
        "failed_step": failed and failed.name,
        "attempt": failed and failed.attempt,
        "last_error": failed and failed.last_error,
    }


def _entry(run: Run, because: str | None, steps: Sequence[StepState] = ()) -> Entry:
    answer = {
        "id": run.key,
        "workflow": run.workflow,
        "process_state": str(run.process_state),
        "direction": str(run.direction),
        "waiting_because": because,
        "created_at": iso(run.created_at),
        "finished_at": iso(run.finished_at),
        "cancel_requested_at": iso(run.cancel_requested_at),
        "steps": [queries.step_answer(step) for step in steps],
    }
    return Entry(key=run.key, run_id=run.pk, title=f"run {run.key}  workflow {run.workflow}", answer=answer, steps=steps)
