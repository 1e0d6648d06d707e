"""The simulated workflows: two to four steps, every recovery policy, agents with and without an undo.

No step becomes due or expires by itself while a scenario runs: every wait is hours long, and scenarios move the time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from django.db import connection

from supervision import Agent, OnExhausted, OnPermanent, RetryPolicy, Step, Workflow, register, register_agent
from supervision.postgres import db

THRESHOLD = 2
HOUR = timedelta(hours=1)
LONGEST = 2 * HOUR  # a step's budget, and how long a claim may wait
WHOLE_ORDER = timedelta(days=1)


RAISING: set[str] = set()  # the orders whose hooks raise

# The hooks of a scenario write hook and order here, in the transaction in which they are called.
_TOLD = "CREATE UNLOGGED TABLE IF NOT EXISTS simulated_hook (name text, key text)"
_TELL = "INSERT INTO simulated_hook SELECT %(name)s::text, unnest(%(keys)s::text[])"


def told() -> Counter[tuple[str, str]]:
    """How often each hook was called for each order."""
    return Counter((name, key) for name, key in db.fetch("SELECT name, key FROM simulated_hook"))


def drop_hooks() -> None:
    """Drop the hooks' table."""
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS simulated_hook")


def forget_hooks() -> None:
    """Forget all calls; no hook raises any more."""
    RAISING.clear()
    with connection.cursor() as cursor:
        cursor.execute(f"{_TOLD}; DELETE FROM simulated_hook")  # noqa: S608 - a constant


def _hook(name: str) -> Callable[[Sequence[Any]], None]:
    def called(runs: Sequence[Any]) -> None:
        with connection.cursor() as cursor:  # the rollback must remove this row when the hook raises
            cursor.execute(_TELL, {"name": name, "keys": [run.key for run in runs]})
        if any(run.key in RAISING for run in runs):
            raise RuntimeError("this order's hook raises")

    return called


class ModelAgent(Agent):
    """An agent without code: the simulation makes the agents' calls itself."""

    resource = None  # no breaker: outages are not simulated here, and a breaker does not use the database's clock alone

    def __init__(self, name: str, *, undoable: bool = True) -> None:
        self.name = name  # type: ignore[misc]
        self.undoable = undoable  # type: ignore[misc]

    def perform(self, request: Any) -> Any:
        raise NotImplementedError

    def compensate(self, request: Any) -> Any:
        raise NotImplementedError


for _name in ("sim-a", "sim-b", "sim-c"):
    register_agent(ModelAgent(_name))
register_agent(ModelAgent("sim-letter", undoable=False))


def _step(agent: str, exhausted: OnExhausted = OnExhausted.ERROR, permanent: OnPermanent = OnPermanent.ERROR) -> Step:
    policy = RetryPolicy(
        threshold=THRESHOLD, first_delay=2 * HOUR, max_delay=4 * HOUR, on_exhausted=exhausted, on_permanent=permanent, long_wait=6 * HOUR
    )
    return Step(f"{agent}-step", agent=agent, complete_within=LONGEST, retry=policy)


def _workflow(name: str, *steps: Step, hooks: bool = False) -> Workflow:
    told = {"on_processed": _hook("processed"), "on_cancelled": _hook("cancelled")} if hooks else {}
    return register(Workflow(name, steps, complete_within=WHOLE_ORDER, **told))


_UNDO = (OnExhausted.COMPENSATE, OnPermanent.COMPENSATE)
_SKIP = (OnExhausted.SKIP, OnPermanent.SKIP)
PLAIN = _workflow("sim-error", _step("sim-a"), _step("sim-b"), _step("sim-letter"))
TWO_STEPS = _workflow("sim-two", _step("sim-a"), _step("sim-b"))
UNDOING = _workflow("sim-compensate", _step("sim-a", *_UNDO), _step("sim-b", *_UNDO), _step("sim-c", *_UNDO), hooks=True)
SKIPPING = _workflow("sim-skip", _step("sim-a", *_SKIP), _step("sim-letter", *_SKIP), hooks=True)
WAITING = _workflow("sim-wait", _step("sim-a", OnExhausted.WAIT), _step("sim-b", OnExhausted.WAIT, OnPermanent.COMPENSATE))
MIXED = _workflow(
    "sim-mixed", _step("sim-letter", *_SKIP), _step("sim-a", *_UNDO), _step("sim-b", *_SKIP), _step("sim-c", OnExhausted.WAIT), hooks=True
)
# Two steps whose agents both have an undo, one workflow per policy: the subject of the small model.
BY_POLICY = {
    "error": TWO_STEPS,
    "compensate": _workflow("sim-two-undo", _step("sim-a", *_UNDO), _step("sim-b", *_UNDO)),
    "skip": _workflow("sim-two-skip", _step("sim-a", *_SKIP), _step("sim-b", *_SKIP)),
}
WORKFLOWS = (PLAIN, TWO_STEPS, UNDOING, SKIPPING, WAITING, MIXED)
HOOKED = frozenset(workflow.name for workflow in WORKFLOWS if workflow.on_processed is not None)
