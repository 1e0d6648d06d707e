"""Reads the submissions of returns, and of refunds and mails after an order. The shop writes them, so only their form is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from orders.records import leaving
from orders.validation import AmendSerializer
from supervision.errors import UnreadableSubmission
from supervision.workflow import Intake, NewRun


class AfterIntake(Intake):
    """The payload is the submission. The rows of what happens after an order were written with it."""

    members: Sequence[tuple[str, type]] = (("order", str), ("email", str), ("currency", str))

    def read(self, body: str) -> NewRun:
        """The run. Raises UnreadableSubmission."""
        run = super().read(body)
        for name, kind in self.members:
            if type(run.payload.get(name)) is not kind:
                raise UnreadableSubmission(f"{name}: expected {'a list' if kind is list else 'a string'}", {name: ["is missing"]})
        return run

    def check_amendment(self, changed: Mapping[str, Any]) -> None:
        """An operator may correct the e-mail address. Raises UnreadableSubmission."""
        serializer = AmendSerializer(data=changed)
        if not serializer.is_valid():
            raise UnreadableSubmission(f"the correction is not valid: {json.dumps(serializer.errors)}", serializer.errors)

    def archive(self, run_ids: Sequence[int], *, keep: bool) -> Mapping[int, Mapping[str, Any]]:
        """What was asked for, and what came of it. The rows leave with their order."""
        return leaving.later(run_ids)


class ReturnIntake(AfterIntake):
    """A return also says which goods come back."""

    members = (*AfterIntake.members, ("lines", list))
