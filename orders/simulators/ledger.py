"""The services' durable state: one append-only file of JSON lines that survives `kill -9`.

A service changes its state, appends one entry, and answers only when that entry is on the disk. The next start rebuilds
the services' whole state from the file: idempotency keys and their first answers, payments, shipments, tombstones and
messages. Many callers share one fsync: a single thread writes all entries that have gathered meanwhile.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SERVICES = ("payment", "carrier", "mail")

_MEMORY = "_"  # this field is for rebuilding the state; it is not shown
_sync = getattr(os, "fdatasync", os.fsync)


class LedgerInUse(Exception):
    """Another process writes this ledger."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One call that a service received.

    order: the order that the call names, or None.
    amount: the money that the call moves or should have moved, in minor units; 0 if it moves none.
    effect: whether the call had a new effect: on a payment, a shipment or a message.
    answer: the answer to the caller, or the reason why there was none.
    extra: further fields to show. memory: the data for rebuilding the state.
    """

    service: str
    key: str
    order: str | None
    operation: str
    amount: int = 0
    effect: bool
    answer: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    memory: Mapping[str, Any] = field(default_factory=dict)


class Ledger:
    """Appends entries durably and shows them."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._file)
            raise LedgerInUse(f"another simulator writes {path}") from None
        self._shown: dict[str, list[tuple[str | None, bytes]]] = defaultdict(list)
        self._pending: list[tuple[bytes, Future[None]]] = []
        self._last: Future[None] = Future()
        self._last.set_result(None)
        self._changed = threading.Condition()
        self._closed = False
        self._writer = threading.Thread(target=self._write, name="ledger", daemon=True)

    def replay(self) -> Iterator[tuple[str, Mapping[str, Any], Mapping[str, Any]]]:
        """Every entry of the file as (service, entry, memory), oldest first. Afterwards the ledger accepts new ones.

        An incomplete last line, which a crash has left, is removed: its call got no answer.
        """
        good = 0
        with open(self._file, "rb", closefd=False) as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                entry = json.loads(line)
                memory = entry.pop(_MEMORY, {})
                self._show(entry["service"], entry["order"], json.dumps(entry).encode())
                good += len(line)
                yield entry["service"], entry, memory
        os.ftruncate(self._file, good)
        self._writer.start()

    def append(self, entry: Entry) -> Future[None]:
        """Append one entry; the future is done once it is on the disk. A caller that needs a sequence holds its own lock."""
        shown = {
            "service": entry.service,
            "time": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "key": entry.key,
            "order": entry.order,
            "operation": entry.operation,
            "amount": entry.amount,
            "effect": entry.effect,
            "answer": entry.answer,
            **entry.extra,
        }
        text = json.dumps(shown)
        line = f"{text[:-1]}, {json.dumps(_MEMORY)}: {json.dumps(entry.memory)}}}\n" if entry.memory else f"{text}\n"
        written: Future[None] = Future()
        written.set_running_or_notify_cancel()  # a caller that gives up cannot cancel it, and the writer can always set its result
        with self._changed:
            self._show(entry.service, entry.order, text.encode())
            self._pending.append((line.encode(), written))
            self._last = written
            self._changed.notify()
        return written

    def settled(self) -> Future[None]:
        """A future that is done once all entries so far are on the disk. Reads wait for it, so they never show unsaved state."""
        with self._changed:
            return self._last

    def show(self, service: str, order: str | None = None, last: int | None = None) -> bytes:
        """The service's entries as JSON lines, oldest first; optionally only the last ones, and of these only one order's."""
        self.settled().result()
        with self._changed:
            rows = self._shown[service][-last:] if last else list(self._shown[service])
        return b"".join(line + b"\n" for of, line in rows if order is None or of == order)

    def close(self) -> None:
        """Write the pending entries and close the file."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._writer.is_alive():
            self._writer.join()
        os.close(self._file)

    def _show(self, service: str, order: str | None, line: bytes) -> None:
        self._shown[service].append((order, line))

    def _write(self) -> None:
        while True:
            with self._changed:
                while not self._pending and not self._closed:
                    self._changed.wait()
                batch, self._pending = self._pending, []
            if not batch:
                return
            try:
                _write_all(self._file, b"".join(line for line, _ in batch))
                _sync(self._file)
            except OSError as problem:
                # The state in memory is ahead of the file now, so no further answer could be trusted.
                sys.stderr.write(f"simulators: the ledger {self.path} cannot be written: {problem}\n")
                os._exit(1)
            for _, written in batch:
                written.set_result(None)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
