"""Fair turns: a client's flood of orders waits behind the client's own orders, not in front of other clients' orders.

Each client has a virtual clock. If a client has recently submitted more than one order per SHARE_SECONDS, the turns of its
orders are put off by the excess. Turns only sort waiting orders: while there is room, no order is delayed. The clocks live
in the memory of the process that writes the runs; correctness does not depend on them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

SHARE_SECONDS = 0.01
MOST_SECONDS = 600.0  # as much as one step of priority: no order is put off further
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
    """Reset all clocks."""
    with _lock:
        _next.clear()
