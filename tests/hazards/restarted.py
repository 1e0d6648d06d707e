"""A client of the shop that is restarted: `python -m tests.hazards.restarted`, at the database of DATABASE_URL.

Reads a list of words from each line, as JSON, and answers each with a line. submit COUNT: accepts that many orders of the workflow
`killed`; their keys. signal NAME KEY...: sends the signal to each. show: each run's state and its steps. audit: what breaks an invariant.
"""

from __future__ import annotations

import json
import sys

from tests.workflows import worker  # sets Django up, and registers the workflow

# isort: split
from supervision import testing
from supervision.audit import registry
from supervision.models import Run, StepState
from supervision.signals.sending import NewSignal, send_all
from supervision.wakeup import hints


def main() -> None:
    """Answer until the input ends."""
    hints.enabled = False
    for line in sys.stdin:
        verb, *arguments = json.loads(line)
        answer = {"submit": submit, "signal": signal, "show": show, "audit": audit}[verb](*arguments)
        print(json.dumps(answer), flush=True)


def submit(count: str) -> list[str]:
    """Even numbers: their step `capture` hands its work over to a signal."""
    return testing.submit_many("killed", [{"n": 2 * n} for n in range(int(count))])


def signal(name: str, *keys: str) -> list[str]:
    """One signal to each."""
    return [str(sent) for key in keys for sent in send_all([NewSignal(run=key, name=name, key="k", payload={"for": key})])]


def show() -> dict[str, dict[str, str]]:
    """The states, by key. A run that begins between the two queries has its steps alone."""
    found = {key: {"": state} for key, state in Run.objects.values_list("key", "process_state")}
    for step in StepState.objects.filter(direction="do").select_related("run"):
        asleep = step.process_state == "Pending" and step.not_before is not None and step.turn_at is None
        found.setdefault(step.run.key, {})[step.name] = "asleep" if asleep else step.process_state
    return found


def audit() -> list[str]:
    """Broken invariants, in words."""
    return [str(found) for found in registry.violations()]


if __name__ == "__main__":
    assert worker.CALLS == []
    main()
