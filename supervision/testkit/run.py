"""A run as a test sees it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models.functions import Now

from supervision import models
from supervision.models import Alert, Signal, StepEvent, StepState
from supervision.operations import completing, operator_verbs, resuming
from supervision.operations.ending import abandoning
from supervision.signals.sending import Sent, send_signal


class Run:
    """A run under test, as it is now."""

    def __init__(self, key: str) -> None:
        self.key = key

    @property
    def state(self) -> str:
        """Its state; `Pending` while it is only submitted."""
        return str(models.Run.objects.filter(key=self.key).values_list("process_state", flat=True).first() or "Pending")

    @property
    def steps(self) -> dict[str, str]:
        """The state of each step by name, in order; `undo:` before the name of a step's undo."""
        return {_label(row): str(row.process_state) for row in self._rows()}

    @property
    def results(self) -> dict[str, Any]:
        """What the steps that are done returned, by name."""
        return {row.name: row.result for row in self._rows() if row.direction == "do" and row.process_state == "Processed"}

    @property
    def alerts(self) -> list[str]:
        """The kinds of its open alerts."""
        return sorted(Alert.objects.filter(run__key=self.key, closed_at__isnull=True).values_list("kind", flat=True))

    @property
    def history(self) -> list[str]:
        """Its events, one line each."""
        names: dict[Any, str] = {(row.direction, row.position): _label(row) for row in self._rows()}
        return [
            f"{event.seq}. {names.get((event.direction, event.position), 'run')}: {event.to_state}  {event.why or ''}".rstrip()
            for event in StepEvent.objects.filter(run__key=self.key).order_by("seq")
        ]

    def signal(self, name: str, payload: Mapping[str, Any] | None = None, *, key: str | None = None) -> Sent:
        """Send it a signal, and let nothing happen yet (`sas.run` does). Raises what `send_signal` raises."""
        return send_signal(self.key, name, payload, key=key, sent_by="test")

    def cancel(self, reason: str = "test") -> None:
        """Cancel it, as its owner does."""
        operator_verbs.cancel(self.key, by="test", reason=reason)

    def resubmit(self, reason: str = "test", **options: Any) -> None:
        """Resubmit its failed step, as an operator does. options: those of `operator_verbs.resubmit`."""
        operator_verbs.resubmit(self.key, by="test", reason=reason, **options)

    def skip(self, reason: str = "test") -> None:
        """Skip its failed step, as an operator does."""
        operator_verbs.skip(self.key, by="test", reason=reason)

    def complete(self, result: Mapping[str, Any], step: str | None = None, reason: str = "test") -> None:
        """Record that a failed or waiting step was done by hand, with this result. step: where several could be meant."""
        completing.complete(self.key, by="test", reason=reason, result=result, step=step)

    def resume_from(self, step: str, reason: str = "test") -> None:
        """Let it go on from this earlier step, as an operator does."""
        resuming.resume_from(self.key, step, by="test", reason=reason)

    def compensate(self, reason: str = "test") -> None:
        """Undo it, as an operator does."""
        operator_verbs.compensate(self.key, by="test", reason=reason)

    def abandon(self, reason: str = "test") -> None:
        """Cancel it without undo, as an operator does."""
        abandoning.abandon(self.key, by="test", reason=reason)

    def __repr__(self) -> str:
        """For failed assertions: the run, and what a test may have forgotten."""
        return " ".join([f"<run {self.key} is {self.state}>", *self._hints()])

    def assert_state(self, state: str) -> None:
        """Raises AssertionError with the steps, their errors and the history if the run is in another state."""
        if (now := self.state) == state:
            return
        steps = [f"  {_label(row)}: {row.process_state}  {row.last_error or ''}".rstrip() for row in self._rows()]
        raise AssertionError("\n".join([f"run {self.key} is {now}, expected {state}", *self._hints(), *steps, "history:", *self.history]))

    def _hints(self) -> list[str]:
        """What has not happened yet though it was begun: one sentence each."""
        mine = StepState.objects.filter(run__key=self.key)
        running = mine.filter(process_state="Processing")
        found = [
            f"{_label(row)} is still running: its call has not ended, or its process was killed (sas.advance() recovers it)"
            for row in running
        ]
        if found or self.state in ("Processed", "Cancelled", "Error"):
            return found
        if not mine:
            return ["it is only submitted: sas.run() is missing"]
        if not mine.filter(process_state="Pending", not_before__lte=Now(), turn_at__isnull=False):
            return []
        came = Signal.objects.filter(run_key=self.key, taken_at__isnull=True).order_by("sent_at")
        signals = [f"the signal {signal.name} has come" for signal in came if not signal.name.startswith("child:")]
        return [f"{', '.join(signals) or 'a step is due'}: sas.run() is missing"]

    def _rows(self) -> list[StepState]:
        return list(StepState.objects.filter(run__key=self.key).order_by("direction", "position"))


def _label(row: StepState) -> str:
    return f"undo:{row.name}" if row.direction == "undo" else row.name
