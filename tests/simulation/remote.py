"""A remote service in memory that keeps the agents' contract: one effect per key, and an undo leaves a tombstone."""

from __future__ import annotations

from collections import Counter, defaultdict

from supervision.errors import PermanentFailure

Place = tuple[str, int]  # an order's key and a step's position


class Remote:
    """Keeps a ledger of effects by idempotency key.

    The same key twice is one effect and one answer. An undo names the key of the call to undo: an effect is reversed, and a
    call that has not come yet can have none later. `calls` is the order in which effects came and went.
    """

    def __init__(self) -> None:
        self.effects: dict[str, Place] = {}
        self.tombstones: set[str] = set()
        self.calls: list[tuple[str, Place]] = []
        self.count: Counter[str] = Counter()
        self.keys: dict[Place, set[str]] = defaultdict(set)

    def perform(self, place: Place, key: str) -> None:
        """Have the effect, once per key. Raises PermanentFailure where the key was undone before."""
        if key in self.tombstones:
            raise PermanentFailure("this key was undone")
        self.keys[place].add(key)
        if key not in self.effects:
            self.effects[key] = place
            self.count[key] += 1
            self.calls.append(("do", place))

    def undo(self, place: Place, key: str) -> None:
        """Reverse the effect under this key, and refuse it for ever."""
        if key not in self.tombstones:
            self.tombstones.add(key)
            self.keys[place].add(key)
            self.calls.append(("undo", place))

    def forbid(self, key: str) -> None:
        """Block a key, as a careful operator does before a step gets another key."""
        self.tombstones.add(key)

    def has(self, key: str) -> bool:
        """Whether the effect under this key stands."""
        return key in self.effects and key not in self.tombstones

    def net(self, place: Place) -> int:
        """How many effects of this step stand, over all its keys."""
        return sum(self.has(key) for key in self.keys[place])
