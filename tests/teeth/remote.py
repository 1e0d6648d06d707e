"""A model of a remote service: it remembers keys, undoes by key, loses answers, and keeps what it did for the checks."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

from supervision import OutcomeUnknown, PermanentFailure, Postpone, StepRequest, TransientFailure
from tests.support import toy

MOODS = ("ok", "ok", "ok", "ok", "lost", "lost", "before", "refused", "later")


class Remote:
    """The services behind all toy agents. `effects`: of each run and step, by key; `undone`: steps in the order of their undo."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.kind = False  # when true, every call succeeds
        self.effects: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.charges: dict[tuple[str, str], int] = Counter()
        self.undone: dict[str, list[str]] = defaultdict(list)
        self.tombstones: set[str] = set()
        for agent in (toy.ALPHA, toy.BETA, toy.GAMMA):
            agent.on_perform = self.perform  # type: ignore[attr-defined]
            agent.on_compensate = self.compensate  # type: ignore[attr-defined]

    def perform(self, request: StepRequest) -> dict[str, str]:
        """Have the effect once per key; answer, fail, or lose the answer."""
        mood = "ok" if self.kind else self.dice.choice(MOODS)
        if mood == "before":
            raise TransientFailure("busy")
        if mood == "later":
            raise Postpone("closed")
        place, key = (request.run_key, request.step), request.idempotency_key
        if mood == "refused" and not self.effects[place]:
            raise PermanentFailure("no")
        if key in self.tombstones:
            raise PermanentFailure("deleted")
        if not self.effects[place][key]:
            self.effects[place][key] = 1
            self.charges[place] += 1
        if mood == "lost":
            raise OutcomeUnknown("no answer")
        return {"did": key}

    def compensate(self, request: StepRequest) -> dict[str, str]:
        """Undo by key, also a call that never came."""
        if not self.kind and self.dice.random() < 0.2:
            raise TransientFailure("busy")
        self.tombstones.add(request.perform_key)
        self.effects[request.run_key, request.step].pop(request.perform_key, None)
        self.undone[request.run_key].append(request.step)
        return {}

    def net(self, run: str) -> dict[str, int]:
        """The number of effects of a run that stand, by step."""
        return {step: sum(keys.values()) for (key, step), keys in self.effects.items() if key == run and sum(keys.values())}
