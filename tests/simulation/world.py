"""All actors of a scenario, on the real store: customers, schedulers, the broker, agents, supervisors, operators, time.

Each verb calls the engine's own functions and checks the store afterwards (`invariants.Watch`). Messages and attempts
are kept here, so that they can come twice, late, in another order or never.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass

from django.db import connection

from supervision import testing
from supervision.audit import registry
from supervision.errors import AgentFailure, OutcomeUnknown, PermanentFailure, Postpone, Refused, TransientFailure, UnknownRun
from supervision.intake import consuming, submission
from supervision.models import DeadLetter, StrayReply, Submission
from supervision.operations import operator_verbs
from supervision.recovery import decisions, failures, supervisor
from supervision.states import Claim
from supervision.store import claiming, step_verbs
from supervision.store.records import Started
from supervision.workflow import StepPosition
from tests.simulation import scenarios
from tests.simulation.invariants import At, Broken, Order, Row, Watch
from tests.simulation.remote import Remote
from tests.simulation.scenarios import HOUR

# Deleting a scenario's few rows is quicker than truncating tables. Run ids go on, so no late message matches a later run.
# The history is append-only, so the triggers are off meanwhile.
_EMPTIED = ("stepevent", "stepstate", "strayreply", "effect", "alert", "notification", "deadletter", "run", "submission")
_DELETED = "; ".join(f"DELETE FROM supervision_{table}" for table in _EMPTIED)  # noqa: S608 - the names above
FORGET = f"SET session_replication_role = replica; {_DELETED}; SET session_replication_role = origin"


@dataclass
class Message:
    """A message in the broker: claims of one place, to be delivered to its agent."""

    place: StepPosition
    claims: list[Claim]


@dataclass
class Work:
    """An attempt that a worker has begun, and the remote's answer once there is one."""

    place: StepPosition
    item: Started
    worker: int
    answer: dict[str, str] | AgentFailure | None = None

    @property
    def at(self) -> At:
        """The step it works on."""
        return self.item.run_id, self.place.direction, self.place.position


class World:
    """The actors of one scenario and their state."""

    def __init__(self) -> None:
        self.remote = Remote()
        self.watch = Watch(self.remote)
        self.messages: list[Message] = []
        self.works: list[Work] = []
        self.accepted: dict[str, int] = {}  # an order's key -> its payload's number
        self.by_client: dict[str, str] = {}
        self.failures: dict[At, int] = {}
        self.dispatches: dict[At, int] = {}
        self.strays = 0
        scenarios.forget_hooks()
        forget()

    @property
    def orders(self) -> list[Order]:
        """Every run, oldest first, as last seen."""
        return list(self.watch.orders.values())

    @property
    def rows(self) -> dict[At, Row]:
        """Every step, as last seen."""
        return self.watch.rows

    def look(self) -> None:
        """Check every invariant."""
        orders = self.watch.look()
        keys = [order.key for order in orders.values()]
        if not set(keys) <= set(self.accepted):
            raise Broken(f"I2 an order that no customer placed: {set(keys) - set(self.accepted)}")
        for order in orders.values():
            if order.n != self.accepted[order.key]:
                raise Broken(f"I3 a second body under the same key changed the order: {order}")
        for at, row in self.rows.items():
            counted = self.failures.get(at, 0), self.dispatches.get(at, 0)
            if (row.failures, row.dispatches) != counted:
                raise Broken(f"I12 {at} counts {(row.failures, row.dispatches)}, {counted} attempts failed and were lost")

    # -------------------------------------------------------------------------------- customers and schedulers

    def submit(self, workflow: str, n: int = 0, client_key: str | None = None) -> str:
        """Place an order, or the same one again under the client's key."""
        key = f"order-{len(self.accepted)}"
        new = submission.NewSubmission(
            public_id=key, payload=json.dumps({"n": n}), client="c", client_key=client_key, workflow=workflow, request_hash=str(n)
        )
        (accepted,) = submission.accept([new])
        first = self.by_client.get(client_key) if client_key else None
        if (accepted.public_id, accepted.replayed) != (first or key, first is not None):
            raise Broken(f"I1 a client's key names one order: {accepted}, first {first}")
        if first is not None and accepted.request_hash != str(self.accepted[first]):
            raise Broken(f"I3 the first body counts: {accepted}")
        if first is None:
            self.accepted[key] = n
        if client_key:
            self.by_client.setdefault(client_key, key)
        self.look()
        return accepted.public_id

    def consume(self, limit: int = 10, *, born: bool = True, worker: int | None = None) -> None:
        """Turn waiting submissions into runs; an idle worker begins them itself."""
        report = consuming.consume_batch(limit, born=born, performs=None if worker is None else lambda *_: True)
        self.messages += [Message(place, list(claims)) for place, claims in report.born.items()]
        self.works += [Work(place, item, worker or 0) for place, begun in report.begun.items() for item in begun]
        self.look()

    def claim(self, limit: int = 10) -> None:
        """Claim due steps and send their messages."""
        due = {at for at, row in self.rows.items() if row.state == "Pending" and row.due}
        for place, claims in claiming.claim(limit).items():
            taken = {(claim.run_id, place.direction, place.position) for claim in claims}
            if not taken <= due:
                raise Broken(f"CLAIM took what was not due: {taken - due}")
            self.messages.append(Message(place, claims))
        self.look()

    # -------------------------------------------------------------------------------------- agents and the remote

    def deliver(self, message: Message, worker: int = 0, *, keep: bool = False) -> list[Work]:
        """An agent gets a message; with `keep` it can come again."""
        if not keep:
            self.messages.remove(message)
        before, ats = self._standing(message.place, message.claims, fresh=True)
        begun = [Work(message.place, item, worker) for item in step_verbs.start(message.place, message.claims)]
        self.works += begun
        self._silent(
            {(c.run_id, message.place.direction, message.place.position) for c in message.claims} - ats, before, "a stale delivery"
        )
        if {work.at for work in begun} != ats:
            raise Broken(f"START answers for {[work.at for work in begun]}, and not for {ats}")
        return begun

    def call(self, work: Work) -> None:
        """The agent calls the remote, even if its claim has expired: it cannot know that."""
        key = work.item.idempotency_key
        place = (work.item.key, work.place.position)
        try:
            if work.place.direction == "undo":
                self.remote.undo(place, work.item.perform_key or "")
            else:
                self.remote.perform(place, key)
            work.answer = {"by": key}
        except AgentFailure as failure:
            work.answer = failure
        self.look()

    def answer(self, works: Sequence[Work], *, go_on: bool = False) -> None:
        """Agents report the remote's answers for works of one place; one statement writes the successes."""
        place = works[0].place
        for work in works:
            self.works.remove(work)
        for work in works:
            if isinstance(work.answer, AgentFailure):
                self._fail(work, work.answer)
        # Two works of one run and place are an old and a new attempt: a worker reports one claim of a run at a time.
        good = {work.item.run_id: work for work in works if isinstance(work.answer, dict)}
        rest = [work for work in works if isinstance(work.answer, dict) and good[work.item.run_id] is not work]
        for batch in filter(None, (list(good.values()), rest)):
            self._finish(place, batch, go_on=go_on and place.direction == "do" and not place.is_last)

    def _finish(self, place: StepPosition, works: Sequence[Work], *, go_on: bool) -> None:
        before, ats = self._standing(place, [work.item.claim for work in works])
        finish = step_verbs.finish_at(place, step_verbs.Successor.STARTED if go_on else step_verbs.Successor.CLAIMED)
        handed = finish([(work.item, dict(work.answer or {})) for work in works if isinstance(work.answer, dict)])
        self.works += [Work(place.following, item, works[0].worker) for item in handed.started]
        if handed.claims and not go_on:
            self.messages.append(Message(place.following, handed.claims))
        late = {work.at for work in works} - ats
        self.strays += len(late)
        self._silent(late, before, "a late answer")
        if any(self.rows[at].state != "Processed" for at in ats):
            raise Broken(f"FINISH did not record {ats}")

    def fail(self, work: Work, error: AgentFailure) -> None:
        """An agent reports that its attempt ended badly."""
        self.works.remove(work)
        self._fail(work, error)

    def _fail(self, work: Work, error: AgentFailure) -> None:
        before, ats = self._standing(work.place, [work.item.claim])
        counts = not isinstance(error, Postpone) or (self.watch.orders[work.item.run_id].overdue and work.place.direction == "do")
        if ats and counts and not self.is_abandoned(before[work.at]):
            self.failures[work.at] = self.failures.get(work.at, 0) + 1
        failures.fail(work.place, [(work.item.claim, decisions.as_failure(error))])
        self.strays += not ats
        self._silent({work.at} - ats, before, "a late failure")

    def may_refuse(self, work: Work) -> bool:
        """Whether the remote may refuse for good: it has had no effect under this key."""
        return work.place.direction == "undo" or not self.remote.has(work.item.idempotency_key)

    def crash(self, worker: int) -> None:
        """A worker dies and forgets what it held."""
        self.works = [work for work in self.works if work.worker != worker]

    # ------------------------------------------------------------------------------------- supervisors and time

    def sweep(self, times: int = 1, *, but: Set[int] = frozenset()) -> None:
        """One supervisor sweeps, or two one after the other; their code does not know the runs in `but`."""
        before = self.rows
        overdue = [row for row in before.values() if row.state == "Processing" and (row.overdue or row.ahead) and row.run_id not in but]
        for row in overdue:
            if self.is_abandoned(row):
                continue
            if row.started:
                self.failures[row.at] = self.failures.get(row.at, 0) + 1
            elif not self.watch.orders[row.run_id].overdue or row.direction == "undo":
                self.dispatches[row.at] = self.dispatches.get(row.at, 0) + 1
        for _ in range(times):
            supervisor.sweep_once()
            self.look()
        standing = [row.at for row in before.values() if row.state == "Processing" and not (row.ahead or row in overdue)]
        self.watch.unchanged(standing, before, "a sweep before complete_by")
        if any(self.rows[row.at].state == "Processing" for row in overdue):
            raise Broken(f"SWEEP left what was overdue: {overdue}")

    def expire(self, key: str) -> None:
        """Let the deadline of an order's running step pass."""
        testing.expire(key)
        self.look()

    def make_due(self, *keys: str) -> None:
        """Let the waits of these orders pass."""
        testing.make_due(*keys)
        self.look()

    def clock(self, seconds: float) -> None:
        """Move the database's clock relative to all rows; negative `seconds` move it back."""
        testing.let_pass(seconds)
        self.look()

    # ------------------------------------------------------------------------------------------------ operators

    def cancel(self, key: str) -> bool:
        """The customer cancels the order; false if it is too late for that."""
        order = self._order(key)
        return self.operate(lambda: operator_verbs.cancel(key, by="customer", reason="changed my mind"), order is None or not order.final)

    def compensate(self, key: str) -> bool:
        """An operator has all steps undone; false if that is not possible."""
        order = self._order(key)
        allowed = order is not None and not order.final and order.direction == "do"
        return self.operate(lambda: operator_verbs.compensate(key, by="olga", reason="undo"), allowed)

    def resubmit(self, key: str, *, stale: bool = False, new_generation: bool = False) -> bool:
        """An operator who saw this attempt of the failed step, or an older one, runs the step again.

        new_generation: with another key, if the remote has no effect under this one; the old key is forbidden first.
        """
        failed = self._failed(key)
        attempt = (failed.attempt if failed else 0) - stale
        fresh = new_generation and failed is not None and failed.direction == "do" and not self.remote.has(failed.key)
        if failed is not None and not stale:
            self.failures[failed.at] = self.dispatches[failed.at] = 0
            if fresh:
                self.remote.forbid(failed.key)
        return self.operate(
            lambda: operator_verbs.resubmit(key, by="olga", reason="again", attempt=attempt, new_generation=fresh),
            failed is not None and not stale,
        )

    def skip(self, key: str) -> bool:
        """An operator skips the order's failed step."""
        failed = self._failed(key)
        if failed is not None and failed.direction == "undo":
            self.watch.waived.add((key, failed.position))
        return self.operate(lambda: operator_verbs.skip(key, by="olga", reason="not needed"), failed is not None)

    def operate(self, verb: Callable[[], str], allowed: bool) -> bool:
        """Perform an operator's verb; a refused verb raises and changes nothing."""
        before = self.rows
        try:
            verb()
            acted = True
        except (Refused, UnknownRun):
            acted = False
        self.look()
        if acted != allowed:
            raise Broken(f"an operator's verb was {'done' if acted else 'refused'}")
        if not acted:
            self.watch.unchanged(before, before, "a refused verb")
        return acted

    # --------------------------------------------------------------------------------------------------- the end

    def heal(self, rounds: int = 40) -> None:
        """All services work and operators resubmit: every order ends, and old messages and answers change nothing."""
        zombies, old = list(self.works), list(self.messages)
        for _ in range(rounds):
            self.consume()
            if self.orders and all(order.final for order in self.orders):
                break
            self.claim()
            while fresh := [message for message in self.messages if message not in old]:
                for work in self.deliver(fresh[0]):
                    self.call(work)
                    self.answer([work])
            self.expire_all()
            self.sweep()
            for order in self.orders:
                if order.state == "Error":
                    self.resubmit(order.key)
            self.make_due()
        for message in old:
            if message in self.messages:
                self.deliver(message)
        for work in zombies:
            if work.answer is None:
                self.call(work)
            self.answer([work])
        self._is_over()

    def expire_all(self) -> None:
        """Let every deadline pass."""
        testing.expire()
        self.look()

    def _is_over(self) -> None:
        left = [order for order in self.orders if not order.final]
        if left or set(self.accepted) != {order.key for order in self.orders}:
            raise Broken(f"I4 an order does not end: {left or self.accepted}")
        if self.strays != StrayReply.objects.count():
            raise Broken(f"I11 {self.strays} answers came too late, {StrayReply.objects.count()} are kept")
        if DeadLetter.objects.exists() or Submission.objects.filter(consumed_at=None).exists():
            raise Broken("I1 an order was set aside or left waiting")
        told = {(order.state.lower(), order.key): 1 for order in self.orders if order.workflow in scenarios.HOOKED}
        if told != dict(scenarios.told()):
            raise Broken(f"a workflow's hook is told once of each end: {dict(scenarios.told())}, not {told}")
        broken = [violation for violation in registry.violations() if "orders_" not in violation.detail]
        if broken:
            raise Broken(f"the audit finds {broken}")

    # ---------------------------------------------------------------------------------------------------- pieces

    def _order(self, key: str) -> Order | None:
        return next((order for order in self.orders if order.key == key), None)

    def _failed(self, key: str) -> Row | None:
        order = self._order(key)
        return order.failed if order is not None and order.state == "Error" else None

    def is_abandoned(self, row: Row) -> bool:
        """Whether the step still runs forward while its order is being undone; its result does not count."""
        return row.direction == "do" and self.watch.orders[row.run_id].direction == "undo"

    def _standing(self, place: StepPosition, claims: Sequence[Claim], *, fresh: bool = False) -> tuple[dict[At, Row], set[At]]:
        """All rows, and which of these claims stand: current attempt, in time, and with `fresh` not begun."""
        ats = set()
        for claim in claims:
            row = self.rows[claim.run_id, place.direction, place.position]
            too_late = row.direction == "do" and self.watch.orders[row.run_id].overdue
            if fresh and (row.started or too_late):
                continue
            if row.state == "Processing" and row.attempt == claim.attempt and not row.overdue:
                ats.add(row.at)
        return self.rows, ats

    def _silent(self, ats: Iterable[At], before: dict[At, Row], who: str) -> None:
        self.look()
        self.watch.unchanged(ats, before, who)


def forget() -> None:
    """Delete the last scenario's rows."""
    with connection.cursor() as cursor:
        cursor.execute(FORGET)


def failure(kind: str) -> AgentFailure:
    """The exception that an agent raises, by name."""
    return {
        "transient": TransientFailure("busy"),
        "unknown": OutcomeUnknown("reset"),
        "permanent": PermanentFailure("no"),
        "postponed": Postpone("closed", HOUR),
    }[kind]
