"""Reads the submission of a return. The shop writes it (`orders.returns.asking`), so only its form is checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from orders.validation import AmendSerializer
from supervision.errors import UnreadableSubmission
from supervision.workflow import Intake, NewRun


class ReturnIntake(Intake):
    """The payload is the submission. The return's own rows were written with it."""

    def read(self, body: str) -> NewRun:
        """The run of a return. Raises UnreadableSubmission."""
        run = super().read(body)
        for name, kind in (("order", str), ("email", str), ("currency", str), ("lines", list)):
            if type(run.payload.get(name)) is not kind:
                raise UnreadableSubmission(f"{name}: expected {'a list' if kind is list else 'a string'}", {name: ["is missing"]})
        return run

    def check_amendment(self, changed: Mapping[str, Any]) -> None:
        """An operator may correct the e-mail address. Raises UnreadableSubmission."""
        serializer = AmendSerializer(data=changed)
        if not serializer.is_valid():
            raise UnreadableSubmission(f"the correction is not valid: {json.dumps(serializer.errors)}", serializer.errors)
