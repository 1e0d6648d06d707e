"""A small model of the engine: one order, two steps, and all roles that may change it. A test visits all of its states.

One function per guarded statement: the guard is the statement's predicate, the body is what the statement writes. The
possible moves are a list of (what, the world afterwards). Time is two facts of a row: whether its deadline has passed
and whether its wait has. The model does not use the engine's code: `test_conformance` compares the two.

The model leaves out what does not matter for safety: lists, priorities, payloads, alerts, numbers of events.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

POLICIES = ("error", "compensate", "skip")  # what the engine does after a step has failed for good
THRESHOLD = 2
GENERATIONS = 2  # a refused step gets another key once; then the model's remote refuses no more

At = tuple[str, int]  # direction, position


class Step(NamedTuple):
    """One row. wait: `no` = not_before is empty, `later` = not_before in the future, `due`. overdue: complete_by has passed."""

    state: str = "Pending"
    attempt: int = 0
    generation: int = 1
    failures: int = 0
    effect: str = "none"
    wait: str = "no"
    started: bool = False
    overdue: bool = False


class Held(NamedTuple):
    """An attempt that an agent works on; `key` is the generation in its call, `answered` what the remote did."""

    direction: str
    position: int
    attempt: int
    key: int
    answered: bool = False


class World(NamedTuple):
    """The whole state. remote: by position and generation, whether the effect is `absent`, `there` or `gone` for good."""

    state: str
    direction: str
    steps: tuple[Step, ...]
    undos: tuple[Step | None, ...]
    remote: tuple[tuple[str, ...], ...]
    messages: frozenset[tuple[str, int, int]] = frozenset()
    duplicates: int = 1
    agents: tuple[Held | None, ...] = (None, None)
    supervisors: tuple[At | None, ...] = (None, None)  # the row that this supervisor's open transaction has locked

    def row(self, at: At) -> Step | None:
        """The row at a place, if it is there."""
        return (self.steps if at[0] == "do" else self.undos)[at[1]]

    def put(self, at: At, row: Step) -> World:
        """The world with this row at this place."""
        rows = self.steps if at[0] == "do" else self.undos
        rows = (*rows[: at[1]], row, *rows[at[1] + 1 :])
        return self._replace(steps=rows) if at[0] == "do" else self._replace(undos=rows)

    def rows(self) -> Iterator[tuple[At, Step]]:
        """Every row with its place."""
        for position, step in enumerate(self.steps):
            yield ("do", position), step
        for position, undo in enumerate(self.undos):
            if undo is not None:
                yield ("undo", position), undo

    @property
    def running(self) -> bool:
        """Whether a step of the order is being processed."""
        return any(row.state == "Processing" for _, row in self.rows())

    @property
    def final(self) -> bool:
        """Whether the order has ended."""
        return self.state in ("Processed", "Cancelled")


Next = tuple[tuple, World]  # what happened, the world afterwards
NOTHING = Step(state="Pending")


def new(steps: int = 2, agents: int = 2, supervisors: int = 2, duplicates: int = 1) -> World:
    """A run that has just been written."""
    return World(
        state="Pending",
        direction="do",
        steps=(Step(wait="due"), *(Step() for _ in range(steps - 1))),
        undos=(None,) * steps,
        remote=(("absent",) * GENERATIONS,) * steps,
        duplicates=duplicates,
        agents=(None,) * agents,
        supervisors=(None,) * supervisors,
    )


# ------------------------------------------------------------------------------------------------- the statements


def claim(world: World) -> Iterator[Next]:
    """CLAIM: Pending and due. For an undo step also: no step of its run is Processing."""
    for at, row in world.rows():
        if row.state == "Pending" and row.wait == "due" and (at[0] == "do" or not world.running):
            taken = row._replace(state="Processing", attempt=row.attempt + 1, started=False, overdue=False)
            after = world.put(at, taken)._replace(messages=world.messages | {(*at, taken.attempt)})
            yield ("claim",), after._replace(state="Processing" if world.state == "Pending" else world.state)


def deliver(world: World) -> Iterator[Next]:
    """A free agent gets a message, which may be delivered again, and begins with START."""
    for agent in range(len(world.agents)):
        if world.agents[agent] is not None:
            continue
        for message in world.messages:
            for again in (False, True) if world.duplicates else (False,):
                left = world if again else world._replace(messages=world.messages - {message})
                left = left._replace(duplicates=world.duplicates - again)
                yield ("deliver", agent, message, again), start(left, agent, message)
        break  # free agents are interchangeable


def start(world: World, agent: int, message: tuple[str, int, int]) -> World:
    """START: that attempt, Processing, not begun, in time. No row: the agent drops the message silently."""
    direction, position, attempt = message
    at, row = (direction, position), world.row((direction, position))
    if row is None or not (row.attempt == attempt and row.state == "Processing" and not row.started and not row.overdue):
        return world
    held = Held(direction, position, attempt, world.steps[position].generation)
    return _hands(world.put(at, row._replace(started=True)), agent, held)


def call(world: World) -> Iterator[Next]:
    """An agent calls the remote, even if its claim has expired. A key has one effect, and none after its undo."""
    for agent, held in enumerate(world.agents):
        if held is not None and not held.answered:
            known = world.remote[held.position]
            now = known[held.key - 1]
            if held.direction == "undo":
                effect = "gone"
            elif now == "gone":
                continue  # refused: the agent can only report the failure
            else:
                effect = "there"
            known = (*known[: held.key - 1], effect, *known[held.key :])
            remote = (*world.remote[: held.position], known, *world.remote[held.position + 1 :])
            yield ("call", agent), _hands(world._replace(remote=remote), agent, held._replace(answered=True))


def finish(world: World) -> Iterator[Next]:
    """FINISH: that attempt, Processing, in time. No row: a stray reply. The successor is claimed in the same statement."""
    for agent, held in enumerate(world.agents):
        if held is None or not held.answered or locked(world, (held.direction, held.position)):
            continue
        idle, at = _hands(world, agent, None), (held.direction, held.position)
        row = world.row(at)
        if row is None or not _stands(row, held):
            yield ("finish", agent, False), idle
            continue
        done = idle.put(at, row._replace(state="Processed", effect="done", started=False, overdue=False))
        if held.direction == "undo":
            yield ("finish", agent, False), next_undo(done)
        elif held.position == len(world.steps) - 1:
            yield ("finish", agent, False), done._replace(state="Processed" if world.state == "Processing" else world.state)
        elif done.steps[held.position + 1].state != "Pending":  # a cancel committed first
            yield ("finish", agent, False), done
        else:
            position = held.position + 1
            follower = done.steps[position]
            taken = follower._replace(state="Processing", attempt=follower.attempt + 1)
            claimed = done.put(("do", position), taken)
            yield ("finish", agent, False), claimed._replace(messages=claimed.messages | {("do", position, taken.attempt)})
            fused = done.put(("do", position), taken._replace(started=True))
            yield ("finish", agent, True), _hands(fused, agent, Held("do", position, taken.attempt, taken.generation))


def fail(world: World, policy: str) -> Iterator[Next]:
    """FAIL: the same guard. `unknown` may follow an effect; the other two mean that there was no effect."""
    for agent, held in enumerate(world.agents):
        if held is None or locked(world, (held.direction, held.position)):
            continue
        idle, at = _hands(world, agent, None), (held.direction, held.position)
        row = world.row(at)
        kinds = ["unknown"]
        if not held.answered and (held.direction == "undo" or held.key < GENERATIONS):
            kinds.append("transient")
            if held.direction == "undo" or world.remote[held.position][held.key - 1] != "there":
                kinds.append("permanent")
        for kind in kinds:
            stands = row is not None and _stands(row, held)
            yield ("fail", agent, kind), settle(idle, at, kind, policy) if stands else idle


def sweep(world: World, policy: str) -> Iterator[Next]:
    """SWEEP in its two halves: lock a row that is Processing and overdue (rows locked by others are skipped), then settle it."""
    for supervisor, at in enumerate(world.supervisors):
        if at is not None:
            free = _locks(world, supervisor, None)
            yield ("settle", supervisor), settle(free, at, "expired", policy)
            yield ("supervisor dies", supervisor), free
            continue
        for place, row in world.rows():
            if row.state == "Processing" and row.overdue and not locked(world, place):
                yield ("hold", supervisor), _locks(world, supervisor, place)


def close_undone(world: World) -> Iterator[Next]:
    """A run that is being undone with nothing left to undo and nothing running: the first process that sees it closes it."""
    open_rows = (at for at, row in world.rows() if row.state in ("Pending", "Processing") or (row.state == "Error" and at[0] == "undo"))
    if world.state == "Compensating" and next(open_rows, None) is None:
        yield ("close",), world._replace(state="Cancelled")


def cancel(world: World) -> Iterator[Next]:
    """CANCEL: every row of the run locked; not final and not being undone already."""
    if not world.final and world.direction == "do" and not any(world.supervisors):
        yield ("cancel",), undo(world)


def resubmit(world: World) -> Iterator[Next]:
    """RESUBMIT: the row in Error, with the attempt that was seen. A step without effect gets another key."""
    if world.state == "Error" and not any(world.supervisors):
        at, row = next((at, row) for at, row in world.rows() if row.state == "Error" and at[0] == world.direction)
        generation = row.generation + (row.effect == "none" and at[0] == "do")
        again = row._replace(state="Pending", wait="due", failures=0, generation=generation)
        yield ("resubmit",), world.put(at, again)._replace(state="Processing" if at[0] == "do" else "Compensating")


# ---------------------------------------------------------------------------------- shared parts of the statements


def settle(world: World, at: At, kind: str, policy: str) -> World:
    """SETTLE: that attempt, Processing (the row is locked): apply the policy for a failed attempt."""
    row = world.row(at)
    if row is None or row.state != "Processing":
        return world
    begun = row.started
    unknown = kind == "unknown" or (kind == "expired" and begun)
    row = row._replace(effect="unknown" if unknown else row.effect, started=False, overdue=False)
    if at[0] == "do" and world.direction == "undo":  # abandoned, because the run is being undone
        return next_undo(world.put(at, row._replace(state="Cancelled")))
    if kind == "expired" and not begun:  # a lost dispatch, not a failure
        return world.put(at, row._replace(state="Pending", wait="due"))
    row = row._replace(failures=row.failures + 1)
    if kind != "permanent" and row.failures < THRESHOLD:
        return world.put(at, row._replace(state="Pending", wait="later"))
    if at[0] == "undo" or policy == "error":
        return world.put(at, row._replace(state="Error"))._replace(state="Error")
    if policy == "compensate":
        return undo(world.put(at, row._replace(state="Error")))
    return go_on(world.put(at, row._replace(state="Skipped")))


def undo(world: World) -> World:
    """Write undo rows for steps that had or may have had an effect; cancel steps not begun; wait for a running step."""
    undos, steps = list(world.undos), list(world.steps)
    for position, row in enumerate(world.steps):
        begun = row.state == "Processing" and row.started
        if row.effect != "none" or begun:
            undos[position] = NOTHING
        if row.state == "Pending" or (row.state == "Processing" and not begun):
            steps[position] = row._replace(state="Cancelled", overdue=False)
    after = world._replace(direction="undo", state="Compensating", undos=tuple(undos), steps=tuple(steps))
    return next_undo(after)


def next_undo(world: World) -> World:
    """Make the last step that is not undone yet due; when none is left and nothing runs, the run is Cancelled."""
    for position in reversed(range(len(world.undos))):
        row = world.undos[position]
        if row is not None and row.state == "Pending":
            return world.put(("undo", position), row._replace(wait="due"))
        if row is not None and row.state in ("Processing", "Error"):
            return world
    return world if any(row.state == "Processing" for row in world.steps) else world._replace(state="Cancelled")


def go_on(world: World) -> World:
    """Make the next forward step due; when none is left, the run is Processed."""
    for position, row in enumerate(world.steps):
        if row.state == "Pending":
            return world.put(("do", position), row._replace(wait="due"))
    return world._replace(state="Processed")


def locked(world: World, at: At) -> bool:
    """Whether a supervisor's transaction has locked this row, so that other writers wait."""
    return at in world.supervisors


def _stands(row: Step, held: Held) -> bool:
    return row.attempt == held.attempt and row.state == "Processing" and not row.overdue


def _hands(world: World, agent: int, held: Held | None) -> World:
    return world._replace(agents=(*world.agents[:agent], held, *world.agents[agent + 1 :]))


def _locks(world: World, supervisor: int, at: At | None) -> World:
    return world._replace(supervisors=(*world.supervisors[:supervisor], at, *world.supervisors[supervisor + 1 :]))


# ------------------------------------------------------------------------------------------------------- all moves


def mishaps(world: World) -> Iterator[Next]:
    """A message is lost, an agent dies, time passes, the clock is set back."""
    for message in world.messages:
        yield ("lose", message), world._replace(messages=world.messages - {message})
    for agent, held in enumerate(world.agents):
        if held is not None:
            yield ("agent dies", agent), _hands(world, agent, None)
    for at, row in world.rows():
        if row.state == "Processing" and not locked(world, at):
            yield ("clock back",) if row.overdue else ("expire",), world.put(at, row._replace(overdue=not row.overdue))
        if row.state == "Pending" and row.wait == "later":
            yield ("wait",), world.put(at, row._replace(wait="due"))


def nexts(world: World, policy: str = "error") -> Iterator[Next]:
    """All possible next moves."""
    yield from claim(world)
    yield from deliver(world)
    yield from call(world)
    yield from finish(world)
    yield from fail(world, policy)
    yield from sweep(world, policy)
    yield from close_undone(world)
    yield from cancel(world)
    yield from resubmit(world)
    yield from mishaps(world)


def canonical(world: World) -> World:
    """A normal form: of an attempt only counts whether it is the row's current one; agents and supervisors are unordered.

    A message of an older attempt than its row's is dropped: START refuses it for ever, which is the same as losing it.
    """
    current = {at: row.attempt for at, row in world.rows()}
    messages = frozenset((*at, 1) for *at, attempt in world.messages if current[tuple(at)] == attempt)
    hands = [held and held._replace(attempt=int(current[held.direction, held.position] == held.attempt)) for held in world.agents]
    return world._replace(
        steps=tuple(_without_history(row, world.direction == "undo") for row in world.steps),
        undos=tuple(row and _without_history(row) for row in world.undos),
        messages=messages,
        agents=tuple(sorted(hands, key=lambda held: held or ())),
        supervisors=tuple(sorted(world.supervisors, key=lambda at: at or ())),
    )


@cache
def _without_history(row: Step, given_up: bool = False) -> Step:
    """A row without values that no statement reads again: counts of steps that are not retried, waits of steps that do not wait."""
    open_ = row.state in ("Pending", "Processing") and not given_up
    return row._replace(
        attempt=min(row.attempt, 1), failures=row.failures if open_ else 0, wait=row.wait if row.state == "Pending" else "no"
    )
