"""A test kit for applications: the whole engine in one thread. Tests move time instead of sleeping.

Only tests import this. `run_until_idle` acts as scheduler and agents. `expire` and `make_due` move deadlines, which lets
time pass on the database's clock.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

import psycopg
from django.apps import apps
from django.db import DatabaseError, connection
from django.db.models import DateTimeField

from supervision import conf
from supervision.dispatch import scheduler
from supervision.execution import runner
from supervision.governance import circuit_breaker
from supervision.intake import submission
from supervision.models import Run, StepState
from supervision.plans import registry
from supervision.postgres import db, params
from supervision.runtime import failpoints
from supervision.states import Claim
from supervision.store.bounds import searching
from supervision.wakeup import hints
from supervision.workflow import StepPosition

MOST_SECONDS = 10.0
# The tables of the engine's rows, each before those that it refers to.
TABLES = (
    "stepevent", "stepstate", "strayreply", "effect", "alert", "incident", "notification", "deadletter", "leaderlease", "heartbeat", "run",
    "submission", "resource", "resourceroute", "slot", "pause", "archivedrun", "audience", "closure",
    "workflowversion", "receipt", "finding", "reconciliation", "journalentry", "journalfile", "writerlease", "cachedresult", "delivery",
    "replytoken", "webhookendpoint", "signal", "scheduleprogress", "child", "incidentnote", "pulse", "job", "jobresult",
    "approval", "telling", "channel",
    "runnote", "assignee", "exchange", "apirequest", "historylink", "historybatch",
)  # fmt: skip
CHAIN = ("supervision_historylink", "supervision_historybatch")  # of digests of times
APPEND_ONLY = ("supervision_stepevent", *CHAIN)
_NEXT = """
SELECT extract(epoch FROM min(at) FILTER (WHERE at > now()) - now())::float8, coalesce(bool_or(claim AND at <= now()), false) FROM (
    SELECT not_before AS at, false AS claim FROM supervision_stepstate WHERE process_state = 'Pending'
    UNION ALL SELECT complete_by, true FROM supervision_stepstate WHERE process_state = 'Processing'
    UNION ALL SELECT complete_by, false FROM supervision_run WHERE finished_at IS NULL
    UNION ALL SELECT retry_at, false FROM supervision_resource WHERE breaker_state <> 'closed'
    UNION ALL SELECT until, false FROM supervision_pause WHERE lifted_at IS NULL) due
"""

_EACH = ", ".join(f"CASE WHEN EXISTS (SELECT FROM supervision_{table}) THEN '{table}' END" for table in TABLES)
_FILLED = f"SELECT array_remove(ARRAY[{_EACH}], NULL)"  # after most tests few tables have rows
_AS_NEW = "RESET SESSION AUTHORIZATION; RESET ALL; DISCARD TEMP; UNLISTEN *; SELECT pg_advisory_unlock_all()"


@contextmanager
def quiet() -> Iterator[None]:
    """No hints to any broker while this lasts."""
    before, hints.enabled = hints.enabled, False
    try:
        yield
    finally:
        hints.enabled = before


def submit(workflow: str, payload: Mapping[str, Any], **fields: Any) -> str:
    """Accept one submission and return its key."""
    new = _new(workflow, payload, **fields)
    submission.accept([new])
    return new.public_id


def submit_many(workflow: str, payloads: Sequence[Mapping[str, Any]]) -> list[str]:
    """Accept several submissions in one commit and return their keys."""
    return [accepted.public_id for accepted in submission.accept([_new(workflow, payload) for payload in payloads])]


def _new(workflow: str, payload: Mapping[str, Any], **fields: Any) -> submission.NewSubmission:
    fields = {"public_id": submission.new_public_id(), "session_key": payload.get("session_key"), **fields}
    return submission.NewSubmission(payload=json.dumps(payload), workflow=workflow, **fields)


def schedule() -> list[tuple[StepPosition, list[Claim]]]:
    """One pass of the scheduler; returns what it would have dispatched.

    It searches everything. After a slow search the scheduler begins near the newest row for a while, which tests that move time, and
    rows with it, would take for a run that is stuck.
    """
    searching.forget()
    sent: list[tuple[StepPosition, list[Claim]]] = []
    scheduler.schedule_once(lambda place, claims: sent.append((place, list(claims))))
    return sent


_Chains = deque[tuple[StepPosition, list[Claim]]]
_lock = threading.Lock()
_collected: list[tuple[_Chains, int]] = []  # of each `perform` under way, with its thread
_send = scheduler.dispatch


def _collect(place: StepPosition, claims: Sequence[Claim]) -> None:
    """Stands in for `scheduler.dispatch`. A thread of the agents process, which performs nothing itself, adds to the newest."""
    mine = [chains for chains, thread in _collected if thread == threading.get_ident()]
    if found := mine or [chains for chains, _ in _collected]:
        found[-1].append((place, list(claims)))
    else:  # the last one has just ended
        _send(place, claims)


@contextmanager
def _collecting(chains: _Chains) -> Iterator[None]:
    """What would be sent goes to these chains. Several threads may do so at once: the last one puts the scheduler's own back."""
    global _send
    with _lock:
        if not _collected:
            _send, scheduler.dispatch = scheduler.dispatch, _collect
        _collected.append((chains, threading.get_ident()))
    try:
        yield
    finally:
        with _lock:
            _collected[:] = [one for one in _collected if one[0] is not chains]
            if not _collected:
                scheduler.dispatch = _send


def perform(place: StepPosition, claims: Sequence[Claim], *, arrives: Callable[[str], bool] = lambda label: True) -> None:
    """Carry a cohort through its chain, link by link, as the agents' workers would.

    What a worker would send as a chain of its own, as for an answer that comes late, is performed here as well. Calls that have
    not ended after MOST_SECONDS are left alone. arrives: whether the message with the step of this label reaches a worker.
    """
    chains: _Chains = deque([(place, list(claims))])
    with _collecting(chains):
        while chains:
            link, cohort = chains.popleft()
            if arrives(link.label) and (onward := runner.run(link, cohort)) is not None:
                chains.append(onward)
            elif not chains:
                runner.process.finish_up(MOST_SECONDS)


def run_until_idle(rounds: int = 100) -> None:
    """Schedule and perform until nothing is due. Work that waits for a later time is left alone."""
    for _ in range(rounds):
        sent = schedule()
        if not sent:
            return
        for place, claims in sent:
            perform(place, claims)
    raise AssertionError(f"still busy after {rounds} rounds")


def expire(*keys: str) -> int:
    """Let the deadlines of these runs' running steps pass (of all runs', without keys); returns how many."""
    rows = db.fetch(
        "UPDATE supervision_stepstate s SET complete_by = now() - interval '1 ms' FROM supervision_run r"
        " WHERE r.id = s.run_id AND s.process_state = 'Processing' AND (%(all)s OR r.key = ANY(%(keys)s))"
        " RETURNING s.run_id",
        {"all": not keys, "keys": list(keys)},
    )
    return len(rows)


def make_due(*keys: str) -> int:
    """Let the waits of these runs' Pending steps pass (of all runs', without keys); returns how many."""
    rows = db.fetch(
        "UPDATE supervision_stepstate s SET not_before = now() FROM supervision_run r"
        " WHERE r.id = s.run_id AND s.process_state = 'Pending' AND s.not_before > now()"
        " AND (%(all)s OR r.key = ANY(%(keys)s)) RETURNING s.run_id",
        {"all": not keys, "keys": list(keys)},
    )
    return len(rows)


def next_moment() -> float:
    """Seconds until the next wait, claim, run, breaker or pause comes to its time, or the next sweep if a claim is overdue."""
    [[seconds, overdue]] = db.fetch(_NEXT)
    return min(inf if seconds is None else float(seconds), conf.get().sweep_every.total_seconds() if overdue else inf)


def let_pass(seconds: float) -> None:
    """Move every time in the engine's tables back by so much, as if it had passed on the database's clock."""
    columns: dict[str, list[str]] = {}
    for model in apps.get_app_config("supervision").get_models():
        if not isinstance(model._meta.pk, DateTimeField):  # the pulse's minutes are keys, and would meet each other
            columns[model._meta.db_table] = [f.column for f in model._meta.concrete_fields if isinstance(f, DateTimeField)]
    moves = [
        f"UPDATE {table} SET " + ", ".join(f"{name} = {name} - interval '{seconds:.6f} s'" for name in names)  # noqa: S608 - our own names
        for table, names in columns.items()
        if names
    ]
    _rewrite([*moves, *(f"DELETE FROM {table}" for table in CHAIN)])  # noqa: S608 - the names above
    circuit_breaker.forget()


def _rewrite(statements: list[str]) -> None:
    """Execute these in one transaction. Those on append-only tables run without their triggers."""
    connection.ensure_connection()
    superuser = connection.connection.info.parameter_status("is_superuser") == "on"
    parts = []
    for statement in statements:
        table = next((table for table in APPEND_ONLY if f" {table}" in statement), None)
        off, on = f"ALTER TABLE {table} DISABLE TRIGGER USER", f"ALTER TABLE {table} ENABLE TRIGGER USER"
        if superuser:  # cheaper
            off, on = "SET LOCAL session_replication_role = replica", "SET LOCAL session_replication_role = origin"
        parts.append(f"{off};{statement};{on}" if table else statement)
    with connection.cursor() as cursor:
        cursor.execute(";".join(parts))


def others_succeed(resource: str) -> None:
    """Note recent successes of this resource, so that the engine counts a failed call as the order's own failure."""
    circuit_breaker.know([resource])
    db.run("UPDATE supervision_resource SET successes = '[9e9, 9e9, 9e9, 9e9, 9e9]' WHERE name = %(name)s", {"name": resource})


def clean() -> None:
    """Delete every row of the engine's, and what this process keeps of them in memory. Only for a database of tests."""
    connection.ensure_connection()
    [[filled]] = connection.connection.execute(_FILLED, prepare=True)
    if filled:
        _rewrite([f"DELETE FROM supervision_{table}" for table in filled])  # noqa: S608 - the names above
    failpoints.load({})
    runner.process.reset()
    registry.forget()
    circuit_breaker.forget()


def renew_session(one: Any = connection) -> None:
    """Give this thread's connection the settings of a new one. A new one would plan every statement again, 65 ms for one sweep.

    It is closed where it does not work, where the test left a transaction open, and where a pool keeps it.
    """
    params.known.wrappers = ()  # a test in an event loop, as of a browser, has connections of its own
    if db.end_open_transactions() or one.connection is None:
        return
    if one.settings_dict["OPTIONS"].get("pool") or not one.autocommit:  # Django sets the time zone of a pool's only once
        one.close()
        return
    try:
        one.connection.execute(_AS_NEW)
        one.init_connection_state()
    except (psycopg.Error, DatabaseError):
        one.close()


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    """Call these at the same moment, each in a thread with its own connection; returns results and exceptions."""
    barrier = threading.Barrier(len(functions))
    answers: list[Any] = [None] * len(functions)

    def call(index: int, function: Callable[[], Any]) -> None:
        try:
            connection.ensure_connection()
            barrier.wait(20)
            answers[index] = function()
        except Exception as error:
            answers[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=call, args=pair, daemon=True) for pair in enumerate(functions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread is stuck"  # noqa: S101 - a test's
    return answers


def step(key: str, name: str, direction: str = "do") -> StepState:
    """A run's step in its present state."""
    return StepState.objects.get(run__key=key, name=name, direction=direction)


def run_of(key: str) -> Run:
    """A run in its present state."""
    return Run.objects.get(key=key)
