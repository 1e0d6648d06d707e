"""The circuit breaker's rules: whose fault a failed call is, when a service is out, which calls may probe it. No database.

1. A call that failed while other orders succeed is its order's own failure. The evidence: another order's call succeeded
   after this order's first failure. Without it the failure is not counted: the step waits longer and longer.
2. The breaker opens after `threshold` failures since the last success. They must be of at least two orders; one is enough
   if the connection was refused, which no order causes. It opens at once if the service refuses us (a wrong key). Once
   `threshold` other calls have succeeded since an order's first failure, that order's failures do not count against the
   service. If twice as many orders as the threshold fail and none succeeds, it opens in any case.
3. After the cool-down it is half-open: at most `probe_limit` calls probe the service. A success closes the breaker, a
   failed probe opens it again. Failures of other calls, begun before it opened, change nothing.

Moments are seconds since 1970 by the database's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"
PROBE_SECONDS = 30.0  # a probe that has not ended by then counts no longer, and another may be made
MOST_KEPT = 50  # successes and suspects that are remembered


class FailedCall(NamedTuple):
    """One failed call. Either its service or its order is to blame.

    age: how many seconds ago it failed. failing_for: how many seconds ago its step failed there for the first time, None
    where this was the first. unreachable: the connection was refused, so that no order can be to blame. refuses_us: the
    service does not know our key, or does not let it do this.
    """

    run_id: int
    age: float = 0.0
    failing_for: float | None = None
    unreachable: bool = False
    refuses_us: bool = False


class Blame(NamedTuple):
    """What a failure means for its order.

    failing_for: seconds since the step's first failure there. own: the order's own failure, which counts. anew: the first
    one since the service's last success.
    """

    failing_for: float
    own: bool
    anew: bool


@dataclass(frozen=True)
class Told:
    """The result of noting failures. wait: seconds until an open breaker lets calls try again, None while it is closed.

    blames: by run. give_back: the runs whose counted failures turn out to belong to the outage that begins.
    """

    wait: float | None
    blames: dict[int, Blame]
    give_back: Sequence[int] = ()


@dataclass
class Breaker:
    """One resource's breaker, as read from its locked row."""

    now: float
    state: str = CLOSED
    failures: int = 0
    threshold: int = 5
    cool_down: float = 5.0
    probe_limit: int = 1
    probes: int = 0
    probes_until: float | None = None
    opened_at: float | None = None
    retry_at: float | None = None
    last_error_at: float | None = None
    suspects: list[int] = field(default_factory=list)
    successes: list[float] = field(default_factory=list)
    probing: list[int] = field(default_factory=list)

    def failed(self, calls: Sequence[FailedCall]) -> Told:
        """Note failures. Returns what each means for its order, and whether the service is out."""
        blames = {call.run_id: self._blame(call) for call in calls}
        self.last_error_at = max(self.now - min(call.age for call in calls), self.last_error_at or 0.0)
        if self.state == HALF_OPEN and (not self.probing or any(call.run_id in self.probing for call in calls)):
            self._open()
        if self.state != CLOSED:
            return Told(max((self.retry_at or self.now) - self.now, 0.0), blames, self.suspects)
        self.suspects = list(dict.fromkeys([*self.suspects, *(call.run_id for call in calls)]))[-max(MOST_KEPT, 4 * self.threshold) :]
        self.failures += sum(self._tells_of_the_service(call) for call in calls)
        if not self._is_out(calls):
            return Told(None, blames)
        self.opened_at = self.now
        self._open()
        return Told(self.cool_down, blames, self.suspects)

    def _blame(self, call: FailedCall) -> Blame:
        own = not call.unreachable and not call.refuses_us and self._successes_since(call) > 0
        return Blame(self._first_age(call), own, call.run_id not in self.suspects)

    def _first_age(self, call: FailedCall) -> float:
        return call.age if call.failing_for is None else max(call.failing_for, call.age)

    def _successes_since(self, call: FailedCall) -> int:
        first = self.now - self._first_age(call)
        return sum(at > first for at in self.successes)

    def _tells_of_the_service(self, call: FailedCall) -> bool:
        return call.unreachable or call.refuses_us or self._successes_since(call) < min(self.threshold, MOST_KEPT)

    def _is_out(self, calls: Sequence[FailedCall]) -> bool:
        if any(call.refuses_us for call in calls):
            return True
        reached = self.failures >= self.threshold and any(self._tells_of_the_service(call) for call in calls)
        several = len(self.suspects) > 1 or any(call.unreachable for call in calls)
        return (reached and several) or len(self.suspects) >= 2 * self.threshold

    def _open(self) -> None:
        self.state, self.retry_at = OPEN, self.now + self.cool_down
        self.probes, self.probing = 0, []

    def succeeded(self, ages: Sequence[float], *, just_now: bool) -> bool:
        """Note successful calls by their ages in seconds. Returns whether the breaker closes now.

        just_now: one of them has just ended, which closes a half-open breaker. An open breaker waits for its probes: a
        call that began before the outage proves nothing.
        """
        moments = sorted([*self.successes, *(self.now - age for age in ages)])
        self.successes = moments[-min(self.threshold, MOST_KEPT) :]
        if self.state == OPEN:
            return False
        if self.state == HALF_OPEN:
            if just_now:
                self.close()
            return just_now
        if moments[-1] > (self.last_error_at or 0.0):
            self.failures, self.suspects = 0, []
        return False

    def close(self) -> None:
        """Let every call through, and forget all noted failures."""
        self.state, self.failures, self.suspects = CLOSED, 0, []
        self.probes, self.probing, self.opened_at, self.retry_at = 0, [], None, None

    # ------------------------------------------------------------------------------------------------------ probes

    def probes_left(self) -> int:
        """How many more calls may probe the service now."""
        if self.state == OPEN and (self.retry_at or 0.0) <= self.now:
            return self.probe_limit
        if self.state != HALF_OPEN:
            return 0
        return max(self.probe_limit - self._out(), 0)

    def _out(self) -> int:
        return self.probes if self.probes_until is not None and self.probes_until > self.now else 0

    def probe(self, runs: Collection[int]) -> None:
        """Note that these runs probe the service. The caller has checked `probes_left`."""
        out = self._out() if self.state == HALF_OPEN else 0
        self.probing = [*(self.probing if out else []), *runs]
        self.state, self.probes, self.probes_until = HALF_OPEN, out + len(runs), self.now + PROBE_SECONDS

    def admit(self, runs: Sequence[int]) -> list[int]:
        """Which of these runs may call now: those already chosen as probes, and as many others as there is room for."""
        if self.state == CLOSED:
            return list(runs)
        chosen = [run for run in runs if self._out() and run in self.probing] if self.state == HALF_OPEN else []
        more = [run for run in runs if run not in chosen][: self.probes_left()]
        if more:
            self.probe(more)
        return [*chosen, *more]

    def give_back(self, runs: Collection[int]) -> None:
        """Free the places of these probes, which made no call or brought no verdict, so that other runs may probe."""
        held = [run for run in self.probing if run in runs]
        if self.state == HALF_OPEN and held:
            self.probing = [run for run in self.probing if run not in runs]
            self.probes = max(self.probes - len(held), 0)
