"""The load: one process that submits orders to one system, the same way for all. `python -m benchmarks.client --help`.

A system's module offers `connect()`, which returns a function that submits one order for each of the given start times.
SIGTERM ends the load; the last line of output says how many orders were submitted, and how fast.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence

from benchmarks.ledger import VARIABLE, Reader

Submit = Callable[[Sequence[float]], None]
stop = threading.Event()


class Load:
    """The threads that submit, and how many orders each of them has submitted so far."""

    def __init__(self, submit: Submit, threads: int, bulk: int) -> None:
        self.submit = submit
        self.bulk = bulk
        self.counts = [0] * threads

    @property
    def submitted(self) -> int:
        """Orders accepted so far."""
        return sum(self.counts)

    def closed_loop(self, window: int, reader: Reader) -> None:
        """Keep at most `window` orders outstanding until told to stop."""
        before = reader.orders()

        def work(me: int) -> None:
            room = 0
            while not stop.is_set():
                if room < self.bulk:
                    outstanding = self.submitted - (reader.orders() - before)
                    room = (window - outstanding) // len(self.counts)
                    if room < self.bulk:
                        time.sleep(0.001)
                        continue
                    room = min(room, 20 * self.bulk)
                now = time.monotonic()
                self.submit([now] * self.bulk)
                self.counts[me] += self.bulk
                room -= self.bulk

        threads = [threading.Thread(target=work, args=(n,)) for n in range(len(self.counts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def at_rate(self, rate: float) -> None:
        """Submit one order every 1/rate seconds, without waiting for their ends."""
        due = time.monotonic()
        while not stop.is_set():
            self.submit([time.monotonic()])
            self.counts[0] += 1
            due += 1 / rate
            stop.wait(max(0.0, due - time.monotonic()))

    def all_at_once(self, count: int) -> None:
        """Submit this many orders, in commits of `bulk`."""
        while self.submitted < count and not stop.is_set():
            part = min(self.bulk, count - self.submitted)
            self.submit([time.monotonic()] * part)
            self.counts[0] += part


def main() -> int:
    """Submit until told to stop."""
    parser = argparse.ArgumentParser(prog="benchmarks.client", description=__doc__)
    parser.add_argument("module", help="where connect() is")
    parser.add_argument("--window", type=int, default=200, help="closed loop: most orders outstanding (200)")
    parser.add_argument("--threads", type=int, default=1, help="closed loop: threads that submit (1)")
    parser.add_argument("--bulk", type=int, default=1, help="orders per commit (1)")
    parser.add_argument("--rate", type=float, help="submit at this rate instead, orders a second")
    parser.add_argument("--count", type=int, help="submit so many orders instead, then end")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    load = Load(importlib.import_module(options.module).connect(), options.threads, options.bulk)
    began = time.monotonic()
    if options.rate:
        load.at_rate(options.rate)
    elif options.count:
        load.all_at_once(options.count)
    else:
        load.closed_loop(options.window, Reader(os.environ[VARIABLE]))
    print(json.dumps({"submitted": load.submitted, "seconds": time.monotonic() - began}))
    sys.stdout.flush()
    os._exit(0)  # libraries' own threads are not waited for


if __name__ == "__main__":
    main()
