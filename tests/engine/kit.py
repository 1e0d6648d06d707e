"""Helpers of the engine's tests: look at runs, bring runs to a step, run functions at the same time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import connection, transaction

from chaos.look import until
from supervision import testing
from supervision import workflow as definitions
from supervision.agent import get_agent
from supervision.audit import registry
from supervision.errors import PermanentFailure
from supervision.execution import runner
from supervision.governance import circuit_breaker
from supervision.incidents import lifecycle as incident_table
from supervision.intake import consuming
from supervision.models import Alert, Incident, Notification, Run, StepEvent, StepState
from supervision.operations import operator_verbs
from supervision.recovery import decisions, failures, supervisor
from supervision.states import Claim
from supervision.store import step_verbs
from supervision.store.records import Handover, Started
from supervision.testing import at_once, expire, let_pass, others_succeed, run_of, run_until_idle, schedule, step, submit, submit_many
from supervision.workflow import StepPosition, Workflow
from tests.support import forked

ROOT = Path(__file__).resolve().parents[2]
# Who waits for a lock in this database, also where a transaction asks again. `pg_locks` has the locks of all databases, and a wait for
# another transaction names none.
BLOCKED = """
SELECT pid FROM pg_locks WHERE NOT granted
   AND pid IN (SELECT pid FROM pg_locks WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()))
"""

# ------------------------------------------------------------------------------------------------------ looking


def states(key: str, direction: str = "do") -> list[str]:
    """The states of a run's steps, by position."""
    rows = StepState.objects.filter(run__key=key, direction=direction).order_by("position")
    return [str(row.process_state) for row in rows]


def state(key: str) -> str:
    return str(run_of(key).process_state)


def again(times: int = 1) -> None:
    """So many times: let every wait pass, and perform all that is due then."""
    for _ in range(times):
        testing.make_due()
        run_until_idle()


def idle_state(key: str) -> str:
    """Perform all that is due; returns the run's state then."""
    run_until_idle()
    return state(key)


def idle_states(keys: Sequence[str]) -> set[str]:
    """Perform all that is due; returns the states of these runs then."""
    run_until_idle()
    return {state(key) for key in keys}


def events(key: str) -> list[StepEvent]:
    return list(StepEvent.objects.filter(run__key=key).order_by("seq"))


def alerts(key: str) -> list[str]:
    return sorted(Alert.objects.filter(run__key=key).values_list("kind", flat=True))


def open_alerts(key: str) -> list[str]:
    return sorted(Alert.objects.filter(run__key=key, closed_at__isnull=True).values_list("kind", flat=True))


def incidents() -> list[str]:
    """Let the supervisor look for incidents; returns the causes of the open ones."""
    looked()
    return list(Incident.objects.filter(closed_at__isnull=True).order_by("id").values_list("cause", flat=True))


def looked() -> Any:
    """Let the supervisor look for incidents; returns what that changed."""
    return incident_table.look()


def told() -> int:
    """How many notifications about incidents are in the outbox."""
    return Notification.objects.filter(kind="incident").count()


def fetch(statement: str, params: Any = None) -> list[tuple[Any, ...]]:
    """Run SQL on this thread's connection; returns its rows."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def said(*words: object) -> str:
    """What this management command prints."""
    out = StringIO()
    call_command(*map(str, words), stdout=out, stderr=StringIO())
    return out.getvalue()


def seqs_are_gapless() -> bool:
    return not fetch("SELECT run_id FROM supervision_stepevent GROUP BY run_id HAVING min(seq) <> 1 OR max(seq) <> count(*)")


def healthy() -> bool:
    """Check with the audit that every invariant of the engine holds."""
    broken = [violation for violation in registry.violations() if "orders_" not in violation.detail]
    assert broken == [], broken
    return True


# -------------------------------------------------------------------------------------- bringing runs to a step


def waiting(count: int = 1, workflow: str = "toy-plain", **payload: Any) -> list[str]:
    """Runs that a consumer has written and no scheduler has claimed."""
    keys = submit_many(workflow, [{"n": n, **payload} for n in range(count)])
    while consuming.consume_batch(born=False).consumed:
        pass
    return keys


def ran(workflow: str = "toy-plain", **payload: Any) -> str:
    """A run that was performed until nothing was due."""
    key = submit(workflow, {"n": 1, **payload})
    run_until_idle()
    return key


def expire_and_sweep(*keys: str) -> supervisor.SweepReport:
    """Let the deadlines of these runs' running steps pass (of all runs', without keys), and sweep once."""
    expire(*keys)
    return supervisor.sweep_once()


def claimed(workflow: str = "toy-plain", **payload: Any) -> tuple[str, StepPosition, list[Claim]]:
    """A run whose first step is claimed and not started."""
    key = submit(workflow, {"n": 1, **payload})
    ((place, claims),) = schedule()
    return key, place, claims


def started(workflow: str = "toy-plain", **payload: Any) -> tuple[str, StepPosition, list[Started]]:
    """A run whose first step is being worked on."""
    key, place, claims = claimed(workflow, **payload)
    return key, place, step_verbs.start(place, claims)


def finish(place: StepPosition, items: Sequence[Started], result: Any = None) -> Handover:
    return step_verbs.finish_at(place)([(item, result or {}) for item in items])


def at_step(position: int, workflow: str = "toy-plain", **payload: Any) -> tuple[str, StepPosition, list[Started]]:
    """A run that has come to this step, which is being worked on."""
    key, place, items = started(workflow, **payload)
    while place.position < position:
        claims = finish(place, items, {"by": place.position}).claims
        place = place.following
        items = step_verbs.start(place, claims)
    return key, place, items


def in_error(position: int = 0, workflow: str = "toy-plain", *, unknown: bool = False, **payload: Any) -> str:
    """A run whose step at this position has failed for good (with `unknown`: after an attempt of unknown effect)."""
    from_db_key, place, items = at_step(position, workflow, **payload)
    if unknown:
        fetch("UPDATE supervision_stepstate SET effect = 'unknown' WHERE run_id = %s AND position = %s", [items[0].run_id, position])
    failures.fail(place, [(items[0].claim, refusal())])
    return from_db_key


def undoing(position: int, workflow: str = "toy-plain") -> str:
    """A run in Error at this position that an operator has decided to undo; its first undo step is due."""
    key = in_error(position, workflow)
    operator_verbs.compensate(key, by="operator", reason="hopeless")
    return key


def start_all() -> None:
    """One pass of the scheduler; every step that it claims is started, and no agent is called."""
    for place, claims in schedule():
        step_verbs.start(place, claims)


def refusal(message: str = "refused") -> Any:
    return decisions.as_failure(PermanentFailure(message))


def define(workflow: Workflow) -> None:
    """Put this definition into the process's registry without any check."""
    definitions._workflows[workflow.name, workflow.version] = workflow
    definitions._newest[workflow.name] = workflow


def only_agent_with_a_service(monkeypatch: Any, agent: str) -> None:
    """Let this agent call `the-service`, and the other toy agents none."""
    monkeypatch.setattr(get_agent(agent), "resource", "the-service", raising=False)
    for other in {"alpha", "beta", "gamma"} - {agent}:
        monkeypatch.setattr(get_agent(other), "resource", None, raising=False)
    circuit_breaker.know(["the-service"])


def raising(error: Exception | type[Exception]) -> Callable[[Any], Any]:
    """The behaviour of a toy agent whose every call raises this."""

    def behave(request: Any) -> Any:
        raise error

    return behave


def go(sent: Sequence[tuple[StepPosition, Sequence[Claim]]]) -> None:
    """Perform the messages of a scheduler's pass and all that follow from them."""
    for onward in sent:
        while onward is not None:
            onward = runner.run(*onward)


def hours_pass(hours: float) -> None:
    """Let time pass on the database's clock."""
    let_pass(hours * 3600)


# ---------------------------------------------------------------------------------------------- at the same time


@contextmanager
def another_connection(**how: Any) -> Iterator[psycopg.Connection[Any]]:
    """A second session of the database, in a transaction that is rolled back unless it commits."""
    params = connection.get_connection_params()
    kept = {name: params[name] for name in ("dbname", "user", "password", "host", "port") if name in params}
    with psycopg.connect(**kept, **how) as other:
        try:
            yield other
        finally:
            other.rollback()


def blocked_backends() -> int:
    """How many sessions of this database wait for another session's lock."""
    return int(
        fetch("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0")[0][0]
    )


class Process:
    """A separate process on the test's database that runs one verb of `tests.engine.process`."""

    def __init__(self, verb: str, *arguments: str, **environ: str) -> None:
        name = str(connection.settings_dict["NAME"])
        self._process = forked.Popen(
            [sys.executable, "-m", "tests.engine.process", name, verb, *arguments],
            cwd=ROOT,
            env={**os.environ, "LOG_LEVEL": "ERROR", **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def ready(self) -> Process:
        """Wait until it has started and waits for `begin`."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip() == "ready"
        return self

    def begin(self) -> Process:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self

    def answer(self) -> Any:
        """Wait for its end; returns the JSON that it printed."""
        output, _ = self._process.communicate(timeout=60)
        assert self._process.returncode == 0, output
        return json.loads(output)

    def code(self) -> int:
        """Wait for its end, and until PostgreSQL has noticed it: until then the sessions of a killed process keep their locks."""
        self._process.communicate(timeout=60)
        until(self._sessions_over)
        return int(self._process.returncode)

    def _sessions_over(self) -> bool:
        fetch("SELECT pg_stat_clear_snapshot()")
        return not fetch("SELECT 1 FROM pg_stat_activity WHERE application_name = %(name)s", {"name": f"tests:{self.pid}"})


__all__ = ["Run", "at_once", "expire", "failures", "others_succeed", "step", "supervisor", "transaction", "until"]
