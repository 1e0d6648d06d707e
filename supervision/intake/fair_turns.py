"""Whose order is next: a client's flood of orders does not put off other clients' orders."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence


class FairTurns:
    """A client's flood of orders waits behind the client's own orders, not in front of other clients' orders.

    Each client has a virtual clock. If a client has recently submitted more than one order per SHARE_SECONDS, the turns of its
    orders are put off by the excess, by MOST_SECONDS at most: as much as one step of priority. Turns only sort waiting orders: while
    there is room, no order is delayed. The clocks live in this process's memory; correctness does not depend on them.
    """

    SHARE_SECONDS = 0.01
    MOST_SECONDS = 600.0
    _MOST_CLIENTS = 10_000

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: dict[str, float] = {}

    def delays(self, clients: Sequence[str]) -> list[float]:
        """How many seconds the turn of each of these orders is put off, in order."""
        now = time.monotonic()
        answer = []
        with self._lock:
            if len(self._next) > self._MOST_CLIENTS:
                self._next = {client: turn for client, turn in self._next.items() if turn > now}
            for client in clients:
                turn = max(now, self._next.get(client, 0.0))
                answer.append(min(turn - now, self.MOST_SECONDS))
                self._next[client] = min(turn, now + self.MOST_SECONDS) + self.SHARE_SECONDS
        return answer

    def forget(self) -> None:
        """Reset all clocks."""
        with self._lock:
            self._next.clear()


fair_turns = FairTurns()
