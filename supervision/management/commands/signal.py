"""Send a signal to orders that wait for one."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.deadletters import of_orders
from supervision.management.acting import OperatorCommand
from supervision.operations import operator_verbs
from supervision.signals.sending import Sent, told
from supervision.states import RunState


class Command(OperatorCommand):
    """The signal is kept; the order goes on if it waits for it."""

    help = (
        "Send orders a signal that they wait for, or will wait for: for a fact that you know and whose sender has not told it. "
        "`manage.py order ID` names the signal. With --key, the same signal sent again has one effect."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--name", required=True, metavar="NAME", help="the signal's name")
        parser.add_argument("--payload", default="{}", metavar="JSON", help="a JSON object that the step gets (default: {})")
        parser.add_argument("--key", metavar="KEY", help="the signal's idempotency key (default: a new one, so each call sends a signal)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            options["payload"] = json.loads(options["payload"])
        except (ValueError, RecursionError) as problem:
            raise CommandError(f"--payload: expected a JSON object: {problem}") from None
        super().handle(*args, **options)

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        payload, signal_key = options["payload"], options["key"]
        state, self.outcome = operator_verbs.signal(key, options["name"], by=by, reason=reason, payload=payload, signal_key=signal_key)
        return state

    def remark(self, key: str, state: str) -> str:
        if letter := of_orders.letter_of(key):
            return f"{told(key, self.outcome)} {of_orders.in_words(letter)}"
        if state == RunState.ERROR:
            return f"{told(key, self.outcome)} (manage.py resubmit {key})"
        return told(key, self.outcome) if self.outcome != Sent.ACCEPTED else ""
