"""A toy application for the engine's tests: three agents with programmed behaviour that keep their requests."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from supervision import (
    AcceptedRun,
    Agent,
    Intake,
    NewRun,
    OnExhausted,
    OnPermanent,
    RetryPolicy,
    Step,
    StepRequest,
    UnreadableSubmission,
    Workflow,
    register,
    register_agent,
)

Behaviour = Callable[[StepRequest], Any]


class ToyAgent(Agent):
    """Answers {"by": name}, unless a test sets a behaviour; keeps every request."""

    def __init__(self, name: str) -> None:
        self.name = name  # type: ignore[misc]
        self.reset()

    def reset(self) -> None:
        self.performed: list[StepRequest] = []
        self.undone: list[StepRequest] = []
        self.on_perform: Behaviour | None = None
        self.on_compensate: Behaviour | None = None
        self.lock = threading.Lock()

    def perform(self, request: StepRequest) -> dict[str, Any]:
        with self.lock:
            self.performed.append(request)
        request.pace()
        answer = self.on_perform(request) if self.on_perform else None
        return answer or {"by": self.name}

    def compensate(self, request: StepRequest) -> dict[str, Any]:
        with self.lock:
            self.undone.append(request)
        answer = self.on_compensate(request) if self.on_compensate else None
        return answer or {}


class ToyIntake(Intake):
    """Accepts any JSON object with an `n`; keeps the runs that it was given to write."""

    def __init__(self) -> None:
        self.written: list[AcceptedRun] = []
        self.refuse: dict[Any, Exception] = {}

    def read(self, body: str) -> NewRun:
        data = json.loads(body)
        if not isinstance(data, dict) or "n" not in data:
            raise UnreadableSubmission("n: expected a number", {"n": ["expected a number"]})
        names = ("session_key", "partition", "reply_to")
        return NewRun(payload=data, priority=data.get("priority", 0), **{name: data.get(name) for name in names})

    def write(self, runs: Sequence[AcceptedRun]) -> None:
        for run in runs:
            if run.new.payload["n"] in self.refuse:
                raise self.refuse[run.new.payload["n"]]
        self.written.extend(runs)


ALPHA, BETA, GAMMA = (register_agent(ToyAgent(name)) for name in ("alpha", "beta", "gamma"))
INTAKE = ToyIntake()
TOLD: dict[str, list[str]] = defaultdict(list)  # hook name -> keys


def _hook(name: str) -> Callable[[Sequence[Any]], None]:
    def told(runs: Sequence[Any]) -> None:
        TOLD[name].extend(run.key for run in runs)

    return told


RETRY = RetryPolicy(threshold=3, first_delay=timedelta(seconds=1))


def steps(**policy: Any) -> tuple[Step, ...]:
    retry = RetryPolicy(threshold=3, first_delay=timedelta(seconds=1), **policy)
    return tuple(
        Step(f"{name}-step", agent=name, complete_within=timedelta(seconds=30), retry=retry, amendable=("colour",))
        for name in ("alpha", "beta", "gamma")
    )


TOY = register(
    Workflow(
        "toy",
        steps(),
        intake=INTAKE,
        on_cancelled=_hook("cancelled"),
        on_error=_hook("error"),
        on_processed=_hook("processed"),
    )
)
PLAIN = register(Workflow("toy-plain", steps(), intake=INTAKE))  # no hooks, so that a finish is a single statement
FORGIVING = register(Workflow("toy-skip", steps(on_exhausted=OnExhausted.SKIP, on_permanent=OnPermanent.SKIP), intake=INTAKE))
PATIENT = register(Workflow("toy-wait", steps(on_exhausted=OnExhausted.WAIT), intake=INTAKE))
FIVE = register(
    Workflow(
        "toy-five",
        tuple(Step(f"{name}-step", agent=name, retry=RetryPolicy(threshold=5)) for name in ("alpha", "beta", "gamma")),
        intake=INTAKE,
    )
)
UNDOING = register(
    Workflow(
        "toy-undo",
        steps(on_exhausted=OnExhausted.COMPENSATE, on_permanent=OnPermanent.COMPENSATE),
        intake=INTAKE,
        on_cancelled=_hook("cancelled"),
    )
)


def reset() -> None:
    """Forget the requests and behaviours of earlier tests."""
    for agent in (ALPHA, BETA, GAMMA):
        agent.reset()  # type: ignore[attr-defined]
    INTAKE.written.clear()
    INTAKE.refuse.clear()
    TOLD.clear()
