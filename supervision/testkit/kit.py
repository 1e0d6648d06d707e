"""The engine under the control of a test: scheduler, agents and supervisor act, and time passes, when the test calls for it.

One process, real PostgreSQL, no broker. A killed process is an exception that ends its work where it stands: what it has
not committed is lost, and what it holds expires.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from supervision import testing
from supervision.agent import Agent, StepRequest, agents, get_agent
from supervision.audit import registry as invariants
from supervision.errors import AgentFailure, TransientFailure
from supervision.execution import runner
from supervision.plans import registry
from supervision.recovery import supervisor
from supervision.recovery.supervisor import SweepReport
from supervision.runtime import failpoints
from supervision.testkit.run import Run
from supervision.workflow import newest, workflows

Behaviour = Callable[[StepRequest], Any]
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
MOST_JUMPS = 10_000


class Killed(BaseException):
    """Ends the work of a process at a failpoint. PostgreSQL rolls back what the process has not committed."""


class Kit:
    """What the fixture `sas` is. performed, undone: the names of the steps whose agent was called, once for each call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, record: bool) -> None:
        self.performed: list[str] = []
        self.undone: list[str] = []
        self.supervisors = 1  # how many sweep at the same time
        self._patch, self._record = monkeypatch, record
        self._fakes: dict[str, list[tuple[Behaviour, int | None]]] = {}
        self._watched: set[int] = set()
        self._deaths: list[tuple[str, str]] = []
        self._lost: list[str] = []
        self._late: list[str] = []
        self._dead = threading.Event()
        self._take_failpoints_over()

    # ------------------------------------------------------------------------------------------------- the work

    def submit(self, workflow: str, payload: Mapping[str, Any] | None = None, **fields: Any) -> Run:
        """Accept a submission. fields: of `NewSubmission`, such as `session_key`. Raises UnreadableSubmission for an unknown workflow."""
        newest(workflow)
        self._watch_agents()
        return Run(testing.submit(workflow, payload or {}, **fields))

    def start(self, workflow: str, payload: Mapping[str, Any] | None = None, **fields: Any) -> Run:
        """Accept a submission and perform all that is due now."""
        run = self.submit(workflow, payload, **fields)
        self.run()
        return run

    def run(self, rounds: int = 100) -> None:
        """Schedule and perform until nothing is due. Work that waits for a later time, or whose claim must expire, is left alone."""
        self._watch_agents()
        for _ in range(rounds):
            sent = self._unless_killed(testing.schedule)
            if not sent:
                return
            for place, claims in sent:
                self._unless_killed(partial(testing.perform, place, claims, arrives=self._arrives))
        raise AssertionError(f"still busy after {rounds} rounds")

    def sweep(self) -> list[SweepReport]:
        """Let the supervisors sweep, all at the same time; returns their reports."""
        if self.supervisors == 1:
            report = self._unless_killed(supervisor.sweep_once)
            return [] if report is None else [report]
        reports = testing.at_once(*[lambda: self._unless_killed(supervisor.sweep_once)] * self.supervisors)
        for error in reports:
            if isinstance(error, Exception):
                raise error
        return [report for report in reports if report is not None]

    def advance(self, time: timedelta | str) -> None:
        """Let this much time pass: `timedelta` or text such as `90s`, `15m`, `3d`.

        All waits, claims and pauses that end on the way end at their moment: claims are recovered, steps run again.

        The engine's rows move into the past; the clock and the calendar stay. So a schedule that a `sweep` has seen starts a run for
        its last time before now, and never a second one for that time. A `Timer(until=)` that begins to wait afterwards, and code
        that asks for the time, do not know how much has passed.
        """
        left = time.total_seconds() if isinstance(time, timedelta) else _seconds(time)
        self.run()
        for _ in range(MOST_JUMPS):
            jump = min(left, testing.next_moment() + 0.001)
            testing.let_pass(jump)
            self.sweep()
            self.run()
            left -= jump
            if left <= 0:
                return
        raise AssertionError(f"more than {MOST_JUMPS} moments fell due")

    # ------------------------------------------------------------------------------------------ what goes wrong

    def fake(
        self, step: str, *, returns: Any = None, raises: Exception | None = None, does: Behaviour | None = None, times: int | None = None
    ) -> None:
        """Answer this step's calls instead of its agent; `undo:` before the name for its undo.

        times: only so many calls; then what answered before answers again. The fake that was set last goes first.
        """

        def answer(request: StepRequest) -> Any:
            if raises is not None:
                raise raises
            return does(request) if does is not None else returns or {}

        self._fakes.setdefault(self._known(step), []).append((answer, times))

    def kill(self, step: str = "", at: str = "agent.after_effect") -> None:
        """Let the process that works on this step die at this failpoint, once. Its claims expire; `advance` shows the recovery.

        step: as for `fake`; empty for failpoints that work on no step. at: a name of `supervision.runtime.failpoints.NAMES`.
        """
        if at not in failpoints.NAMES:
            raise ValueError(f"no failpoint is named {at!r}; known: {', '.join(failpoints.NAMES)}")
        at = "undo.after_effect" if step.startswith("undo:") and at == "agent.after_effect" else at
        self._deaths.append((self._known(step) if step else "", at))

    def lose_message(self, step: str) -> None:
        """Let the next message that carries this step be lost in the broker."""
        self._lost.append(self._known(step))

    def answer_late(self, step: str) -> None:
        """Let the next call of this step take so long that the supervisor recovers the step before its answer comes."""
        self._late.append(self._known(step))

    def others_succeed(self, step: str) -> None:
        """Let other runs have just succeeded at this step's service. Otherwise its failures count against the service, not the run."""
        names = {one.agent for workflow in workflows() for one in workflow.steps if one.name == self._known(step)}
        for resource in filter(None, (get_agent(name).resource for name in names)):
            testing.others_succeed(resource)

    # -------------------------------------------------------------------------------------------------- checks

    def assert_healthy(self) -> None:
        """Raises AssertionError if an invariant of the engine or of the application does not hold (`manage.py audit`)."""
        if broken := [str(violation) for violation in invariants.violations()]:
            raise AssertionError("\n".join(broken))

    def definitions(self, path: str | Path) -> None:
        """Compare the registered workflows with this file, which belongs under version control.

        Raises AssertionError if a version has changed, is gone or is not in the file. `--record-workflows` adds new versions.
        """
        file = Path(path)
        kept = json.loads(file.read_text()) if file.is_file() else {}
        here = {f"{one.name} {one.version}": registry.definition_of(one) for one in workflows()}
        both = sorted(kept.keys() & here.keys())
        if changed := [f"workflow {label}: {what}" for label in both if (what := registry.first_difference(here[label], kept[label]))]:
            raise AssertionError("\n".join([*changed, "give the new definition a new version, and keep the old one registered"]))
        if gone := sorted(kept.keys() - here.keys()):
            raise AssertionError(f"not registered: {', '.join(gone)}; delete it from {file} once no run of it is unfinished")
        if (new := sorted(here.keys() - kept.keys())) and not self._record:
            raise AssertionError(f"not in {file}: {', '.join(new)}; run pytest with --record-workflows")
        if new:
            file.write_text(json.dumps(here, indent=1, sort_keys=True) + "\n")

    def assert_nothing_left(self) -> None:
        """Raises AssertionError if a kill, a lost message or a late answer that the test asked for never happened."""
        left = [f"kill({step!r}, {at!r})" for step, at in self._deaths]
        left += [f"lose_message({step!r})" for step in self._lost] + [f"answer_late({step!r})" for step in self._late]
        if left:
            raise AssertionError(f"never happened: {', '.join(left)}")

    # -------------------------------------------------------------------------------------------------- pieces

    def _known(self, step: str) -> str:
        names = {one.name for workflow in workflows() for one in workflow.steps}
        if step.removeprefix("undo:") not in names:
            close = get_close_matches(step.removeprefix("undo:"), names, n=1)
            raise ValueError(f"no registered workflow has a step {step!r}" + (f", did you mean {close[0]!r}?" if close else ""))
        return step

    def _watch_agents(self) -> None:
        for agent in agents():
            if id(agent) not in self._watched:
                self._watched.add(id(agent))
                self._watch(agent)

    def _watch(self, agent: Agent) -> None:
        def one(real: Behaviour, calls: list[str], prefix: str) -> Behaviour:
            return lambda request: self._call(f"{prefix}{request.step}", real, request, calls)

        def many(real: Any, calls: list[str], prefix: str) -> Callable[[Sequence[StepRequest]], Sequence[Any]]:
            return lambda requests: self._call_many(prefix, real, requests, calls)

        made, suffix = (many, "_many") if agent.transactional else (one, "")
        for name, calls, prefix in (("perform", self.performed, ""), ("compensate", self.undone, "undo:")):
            real: Any = getattr(agent, name + suffix)
            self._patch.setattr(agent, name + suffix, made(real, calls, prefix), raising=False)
        opens = agent.opens_with
        self._patch.setattr(agent, "opens_with", lambda request: None if self._fakes.get(request.step) else opens(request), raising=False)

    def _call(self, step: str, real: Behaviour, request: StepRequest, calls: list[str]) -> Any:
        calls.append(request.step)
        answer = (self._next_fake(step) or real)(request)
        self._recover_if_late(step, request)
        return answer

    def _call_many(self, prefix: str, real: Any, requests: Sequence[StepRequest], calls: list[str]) -> Sequence[Any]:
        """Give the agent all requests that no fake answers in one call, as a worker does. What the agent raises is for the engine."""
        calls += [request.step for request in requests]
        before = {step: list(stack) for step, stack in self._fakes.items()}
        fakes = [self._next_fake(f"{prefix}{request.step}") for request in requests]
        rest = [number for number, fake in enumerate(fakes) if fake is None]
        try:
            answers = real([requests[number] for number in rest]) if rest else []
        except Exception:
            self._fakes = before  # the engine gives the requests again, one by one
            raise
        if len(rest) < len(requests):
            own = dict(zip(rest, answers, strict=True))
            answers = [_outcome(fake, requests[number]) if fake else own[number] for number, fake in enumerate(fakes)]
        for request in requests:
            self._recover_if_late(f"{prefix}{request.step}", request)
        return answers

    def _next_fake(self, step: str) -> Behaviour | None:
        if not (stack := self._fakes.get(step)):
            return None
        behaviour, times = stack.pop()
        if times is None or times > 1:
            stack.append((behaviour, times and times - 1))
        return behaviour

    def _recover_if_late(self, step: str, request: StepRequest) -> None:
        if step in self._late:
            self._late.remove(step)
            testing.let_pass(request.remaining + 1)
            self.sweep()

    def _arrives(self, label: str) -> bool:
        if label in self._lost:
            self._lost.remove(label)
            return False
        return True

    def _take_failpoints_over(self) -> None:
        report, test = runner._report, threading.current_thread()

        def hit(name: str, steps: Sequence[str] | None = None) -> bool:
            for step, at in self._deaths:
                if at == name and (not step or step in (steps or [])):
                    self._deaths.remove((step, at))
                    self._dead.set()
                    # On the thread of a call an error would be reported, so `reported` ends the process that waits for the call.
                    of_a_call = name.startswith(("agent.", "undo.")) and threading.current_thread() is not test
                    raise TransientFailure("killed") if of_a_call else Killed(name)
            return False

        def reported(*args: Any, **kwargs: Any) -> Any:
            if self._dead.is_set():  # the process died on the thread of a call
                # The thread that reports late answers has to live on for later tests: to the order it is the same.
                raise Killed if threading.current_thread() is test else TransientFailure("killed")
            return report(*args, **kwargs)

        self._patch.setattr(failpoints, "armed", True)
        self._patch.setattr(failpoints, "hit", hit)
        self._patch.setattr(runner, "_report", reported)

    def _unless_killed(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except Killed:
            return None
        finally:
            self._dead.clear()


def _outcome(call: Behaviour, request: StepRequest) -> Any:
    try:
        return call(request)
    except AgentFailure as failure:
        return failure


def _seconds(text: str) -> float:
    unit = text.lstrip("0123456789.")
    try:
        return float(text.removesuffix(unit)) * SECONDS[unit]
    except (KeyError, ValueError):
        raise ValueError(f"expected a time such as 90s, 15m or 3d, got {text!r}") from None
