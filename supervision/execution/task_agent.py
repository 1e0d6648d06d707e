"""Makes an existing, unchanged Celery task the work of a step."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from celery import Task
from celery.exceptions import Ignore, MaxRetriesExceededError, Retry

from supervision.agent import JSON, Agent, StepRequest
from supervision.errors import DefinitionError, OutcomeUnknown, PermanentFailure
from supervision.states import ATTEMPTS_PER_EPOCH

_request: ContextVar[StepRequest | None] = ContextVar("request", default=None)


def beat() -> bool:
    """Call this in the work of a long task, more often than its step's `complete_within`: the task goes on.

    It does what `request.heartbeat()` does for an agent, for the step whose `TaskAgent` called the task; its step needs `longest`.
    False once the order is being undone. Where the task runs as an ordinary task of its queue it does nothing and returns True.
    """
    request = _request.get()
    return request is None or request.heartbeat()


Arguments = Callable[[StepRequest], Mapping[str, Any]]


class TaskAgent(Agent):
    """Calls a Celery task in the agents process. The task is not sent anywhere: its own queue and time limits do not apply.

    name: the agent's name. task, undo: tasks, as decorated by `app.task` or `shared_task`; without `undo` the work cannot be
    undone. arguments: the task's keyword arguments; without it, those of its parameters that the payload has a field for
    (`result`, when undoing, is what the task returned), and the whole payload for a task with `**names`. refusals: exceptions
    that mean "refused for good, nothing was done".

    In the task, `self.request.id` is the step's idempotency key, the same in every attempt; `self.request.retries` counts earlier
    attempts, and `self.request.timelimit[0]` is the seconds that are left. `self.retry` ends the attempt. The step's own policy
    decides whether there is a next one, also where `max_retries` is reached; it begins no sooner than the countdown says. Any
    other exception leaves the outcome unknown. A result that is no JSON object is kept as {"result": ...}. In long work, the task
    calls `supervision.beat()`.
    """

    def __init__(
        self,
        name: str,
        task: Task,
        *,
        undo: Task | None = None,
        arguments: Arguments | None = None,
        refusals: tuple[type[Exception], ...] = (),
    ) -> None:
        for given in filter(None, (task, undo)):
            if not isinstance(given, Task):
                raise DefinitionError(f"agent {name!r}: expected a Celery task, got {given!r}; decorate it with app.task or shared_task")
        self.name = name  # type: ignore[misc]
        self.undoable = undo is not None  # type: ignore[misc]
        self._task, self._undo, self._arguments, self._refusals = task, undo, arguments, refusals

    def perform(self, request: StepRequest) -> JSON:
        """Call the task."""
        return self._call(self._task, request)

    def compensate(self, request: StepRequest) -> JSON:
        """Call the task that undoes it."""
        if self._undo is None:
            raise PermanentFailure(f"agent {self.name} has no task that undoes its work")
        return self._call(self._undo, request)

    def _call(self, task: Task, request: StepRequest) -> JSON:
        arguments = dict(self._arguments(request)) if self._arguments else _from_payload(task, request)
        task.push_request(
            id=request.idempotency_key,
            args=[],
            kwargs=arguments,
            retries=(request.attempt - 1) % ATTEMPTS_PER_EPOCH,
            timelimit=(request.remaining, None),
            headers={"run_key": request.run_key, "step": request.step},
            called_directly=False,
            is_eager=True,  # `self.retry` then raises Retry and sends nothing
        )
        called = _request.set(request)
        try:
            result = task.run(**arguments)
        except Retry as retry:
            raise OutcomeUnknown(f"{task.name} asked for a retry: {retry.exc or retry}", retry_after=_seconds(retry.when)) from retry
        except MaxRetriesExceededError as last:
            raise OutcomeUnknown(f"{task.name} asked for a retry beyond its max_retries") from last
        except Ignore:
            return {}
        except self._refusals as refusal:
            raise PermanentFailure(f"{type(refusal).__name__}: {refusal}") from refusal
        finally:
            _request.reset(called)
            task.pop_request()
        return _as_json(task, result)


def _from_payload(task: Task, request: StepRequest) -> dict[str, Any]:
    known = {"result": request.performed, **request.payload}
    declared = inspect.signature(task.run).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in declared):
        return dict(request.payload)
    parameters = [each for each in declared if each.kind is not inspect.Parameter.VAR_POSITIONAL]
    missing = [each.name for each in parameters if each.default is inspect.Parameter.empty and each.name not in known]
    if missing:
        raise PermanentFailure(f"{task.name} needs {', '.join(missing)}, and the payload has no such field", "missing_argument")
    return {parameter.name: known[parameter.name] for parameter in parameters if parameter.name in known}


def _seconds(when: float | datetime | None) -> float | None:
    if isinstance(when, datetime):
        return when.timestamp() - time.time() if when.tzinfo else (when - datetime.now(UTC).replace(tzinfo=None)).total_seconds()
    return when


def _as_json(task: Task, result: Any) -> JSON:
    answer = result if isinstance(result, dict) else {} if result is None else {"result": result}
    try:
        json.dumps(answer, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise OutcomeUnknown(f"the result of {task.name} is no JSON: {problem}", "result_is_no_json") from problem
    return answer
