"""A remote service as a model: remembers keys, can be undone by key, loses answers on demand; and what it must have seen."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

from supervision import OutcomeUnknown, PermanentFailure, Postpone, StepRequest, TransientFailure
from tests.support import toy

MOODS = ("ok", "ok", "ok", "ok", "lost", "lost", "before", "refused", "later")


class Remote:
    """The services behind all toy agents. `effects`: what each run and step has, by key; `order`: in which order undone."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.kind = False  # heals: answers everything well
        self.effects: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.charges: dict[tuple[str, str], int] = Counter()
        self.undone: dict[str, list[str]] = defaultdict(list)
        self.tombstones: set[str] = set()
        for agent in (toy.ALPHA, toy.BETA, toy.GAMMA):
            agent.on_perform = self.perform  # type: ignore[attr-defined]
            agent.on_compensate = self.compensate  # type: ignore[attr-defined]

    def perform(self, request: StepRequest) -> dict[str, str]:
        """Do it once per key, and answer or not."""
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
        """Undo by key, also what never came."""
        if not self.kind and self.dice.random() < 0.2:
            raise TransientFailure("busy")
        self.tombstones.add(request.perform_key)
        self.effects[request.run_key, request.step].pop(request.perform_key, None)
        self.undone[request.run_key].append(request.step)
        return {}

    def net(self, run: str) -> dict[str, int]:
        """What is in effect for a run, by step."""
        return {step: sum(keys.values()) for (key, step), keys in self.effects.items() if key == run and sum(keys.values())}
