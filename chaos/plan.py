"""The faults of a run, drawn from its seed before it starts. The same seed always gives exactly the same plan."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from chaos.traffic import POISONED

PROCESSES = (
    *("web", "web.2", "scheduler", "scheduler.2", "agents", "agents.2"),
    *("supervisor", "supervisor.2", "beat", "beat.2"),
)
WORKERS = tuple(name for name in PROCESSES if not name.startswith(("web", "beat")))
CONSUMERS = tuple(name for name in WORKERS if name.startswith(("scheduler", "agents")))
CAN_FREEZE = (*WORKERS, "web")
SERVICES = ("payment", "carrier", "mail")


@dataclass(frozen=True, order=True)
class Fault:
    """One fault: when it begins (seconds after the start), what it is, how long it lasts."""

    at: float
    kind: str
    targets: tuple[str, ...] = ()
    seconds: float = 0.0
    details: dict[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The times of a run, in seconds."""

    length: float
    complete_by: float
    calm: float = 5.0  # without faults at the beginning, except for POISON


# Lasts from the start until the nemesis heals everything: the carrier fails for every order to this postal code.
POISON = Fault(0.0, "poison", ("carrier",), details={"mode": "error_before", "status": 500, "postal_code": POISONED})

Draw = Callable[[random.Random], Iterator[Fault]]


def plan(seed: int, pace: Pace, harms: tuple[str, ...]) -> list[Fault]:
    """All faults of a run, by time. Each kind has its own random generator, so another broker changes the broker's faults only."""
    kinds: dict[str, tuple[tuple[float, float], Callable[[random.Random, float], Fault]]] = {
        "kill": ((6, 18), lambda dice, at: _kill_one(dice, at)),
        "massacre": ((45, 110), lambda dice, at: _kill_many(dice, at)),
        "backlog": ((60, 150), lambda dice, at: Fault(at, "backlog", CONSUMERS, round(dice.uniform(6, 10), 2))),
        "freeze": ((8, 24), lambda dice, at: _freeze(dice, at, pace.complete_by)),
        "postgres": ((5, 40), lambda dice, at: Fault(at, "postgres-restart")),
        "backends": ((6, 25), lambda dice, at: Fault(at, "kill-backends", details={"share": dice.choice([0.1, 0.3, 1.0])})),
        "broker": ((8, 28), lambda dice, at: Fault(at, f"broker-{dice.choice(harms)}")),
        "replay": ((10, 40), lambda dice, at: Fault(at, "replay")),
        "services": ((5, 14), lambda dice, at: _service(dice, at)),
        "forget": ((10, 40), lambda dice, at: Fault(at, "forget", (dice.choice(("payment", "carrier")),))),
        "simulators": ((90, 200), lambda dice, at: Fault(at, "kill", ("simulators",), dice.uniform(0.0, 3.0))),
    }
    faults = [POISON]
    for name, ((least, most), draw) in kinds.items():
        dice = random.Random(f"{seed}:{name}")
        at = pace.calm + dice.uniform(0, min(most, pace.length / 2))  # so that a short run, too, gets faults of each kind
        while at < pace.length:
            faults.append(draw(dice, round(at, 2)))
            at += dice.uniform(least, most)
    return sorted(faults)


def _kill_one(dice: random.Random, at: float) -> Fault:
    return Fault(at, "kill", (dice.choice(PROCESSES),), round(dice.uniform(0, 5), 2))


def _kill_many(dice: random.Random, at: float) -> Fault:
    kind, targets = dice.choice([("kill-workers", WORKERS), ("kill-everything", PROCESSES), ("kill-role", ())])
    if not targets:
        role = dice.choice(["web", "scheduler", "agents", "supervisor", "beat"])
        targets = tuple(name for name in PROCESSES if name.startswith(role))
    return Fault(at, kind, targets, round(dice.uniform(0, 5), 2))


def _freeze(dice: random.Random, at: float, complete_by: float) -> Fault:
    role = dice.choice(CAN_FREEZE)
    targets = (role,) if dice.random() < 0.7 else tuple(name for name in CAN_FREEZE if name.startswith(role.partition(".")[0]))
    return Fault(at, "freeze", targets, round(dice.uniform(0.5, 3) * complete_by, 2))


def _service(dice: random.Random, at: float) -> Fault:
    mode = dice.choice(
        ["reset_after_effect", "timeout_after_effect", "error_after_effect", "error_before", "slow", "down", "reset_after_effect"]
    )
    seconds = round(dice.uniform(2, 8) if mode != "down" else dice.uniform(2, 20), 2)
    details: dict[str, Any] = {"mode": mode, "probability": dice.choice([0.2, 0.5, 1.0])}
    if mode in ("slow", "timeout_after_effect"):
        details["latency_ms"] = dice.choice([300, 1500, 6000])
    return Fault(at, "service", (dice.choice(SERVICES),), seconds, details)
