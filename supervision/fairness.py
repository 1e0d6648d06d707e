"""Fair turns: one client's flood waits behind itself, not in front of everybody else.

Each client has a virtual clock. An order's turn is put off by what its client has recently asked for beyond one order
per SHARE_SECONDS; the turn only orders those who wait and delays nobody while there is room. The clocks live in the
process that writes the runs: they are a courtesy, nothing rests on them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

SHARE_SECONDS = 0.01
MOST_SECONDS = 600.0  # as much as one step of priority: nobody is put off further
_MOST_CLIENTS = 10_000

_lock = threading.Lock()
_next: dict[str, float] = {}


def delays(clients: Sequence[str]) -> list[float]:
    """How many seconds the turn of each of these orders is put off, in order."""
    now = time.monotonic()
    answer = []
    with _lock:
        if len(_next) > _MOST_CLIENTS:
            for client in [client for client, turn in _next.items() if turn <= now]:
                del _next[client]
        for client in clients:
            turn = max(now, _next.get(client, 0.0))
            answer.append(min(turn - now, MOST_SECONDS))
            _next[client] = min(turn, now + MOST_SECONDS) + SHARE_SECONDS
    return answer


def forget() -> None:
    """Begin afresh."""
    with _lock:
        _next.clear()
