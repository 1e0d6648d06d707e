"""What a log line is about: the order, run, step and attempt that a thread works on, the trace, and the process.

`Context` is a filter for the handlers of the settings' LOGGING. A thread that performs a step says so with `enter` and `leave`.
A line about an order that is not performed on its thread names it with `extra={"order": key}`.
"""

from __future__ import annotations

import logging
import socket
from contextvars import ContextVar, Token
from typing import NamedTuple

from supervision.runtime import identity
from supervision.telemetry import trace_ids


class Work(NamedTuple):
    """The attempt that a thread performs. order: its public id. run: the number of its run."""

    order: str
    run: int
    step: str
    attempt: int


_work: ContextVar[Work | None] = ContextVar("work", default=None)
HOST = socket.gethostname()


def enter(work: Work) -> Token[Work | None]:
    """Say what this thread works on from now on. Give the result to `leave`."""
    return _work.set(work)


def leave(token: Token[Work | None]) -> None:
    """The work of `enter` is over."""
    _work.reset(token)


def facts() -> dict[str, str | int | None]:
    """What this thread works on now, with the trace and the role of this process."""
    work = _work.get()
    about = {} if work is None else {**work._asdict(), "trace": trace_ids.trace_id(work.order)}
    return {"role": identity.role(), **about}


class Context(logging.Filter):
    """Adds role, host, order, run, step, attempt and trace to each record; None where they do not apply. Lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields to this record."""
        work = _work.get()
        record.role = identity.role()
        record.host = HOST
        for name in Work._fields:
            if getattr(record, name, None) is None:
                setattr(record, name, getattr(work, name, None))
        record.trace = trace_ids.trace_id(record.order) if record.order else None  # type: ignore[attr-defined]
        return True
