"""Named points at which a test may kill, freeze, delay or break a process.

`FAILPOINTS=name=action[@occurrences][:probability[:seed]]`, comma separated. Off unless set, and refused unless
ALLOW_FAILPOINTS=1 confirms a test system. Actions: `kill9`, `stop` (frozen until SIGCONT), `sleep=SECONDS`, `raise`,
`drop` (the caller skips its next action). `@2` acts on the second time only, `@1+3` on the first and third.
FAILPOINT_STEP restricts the points that work on steps to one step, `undo:NAME` to its undo. Before a point acts, it is
written to the file FAILPOINT_LOG and synced: a test can prove that it was reached even if the process was killed.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

from supervision.errors import SupervisionError

NAMES = (
    "web.after_submission_commit",
    "intake.before_commit",
    "intake.after_commit",
    "submit.before_commit",
    "submit.after_commit",
    "scheduler.after_claim",
    "scheduler.mid_dispatch",
    "agent.after_start",
    "agent.before_call",
    "agent.after_intention",
    "agent.after_checkpoint",
    "agent.after_effect",
    "agent.after_finish",
    "supervisor.before_commit",
    "supervisor.after_commit",
    "undo.after_effect",
    "verb.before_commit",
    "verb.after_commit",
    "approval.before_commit",
    "approval.after_commit",
    "approval.after_call",
    "relay.after_publish",
    "journal.after_write",
    "archive.before_commit",
    "unarchive.before_commit",
    "history.before_commit",
    "job.before_start",
    "job.before_commit",
    "job.after_commit",
    "erasure.before_commit",
    "worker.deaf",
)
ACTIONS = ("kill9", "stop", "sleep", "raise", "drop")


class Injected(SupervisionError):
    """Raised at a failpoint on a test's demand."""

    code = "injected"


@dataclass
class _Point:
    action: str
    seconds: float
    occurrences: frozenset[int]  # empty = every time
    probability: float
    dice: random.Random
    times: int = 0


def _parse(text: str) -> dict[str, _Point]:
    points: dict[str, _Point] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, rest = item.partition("=")
        if name not in NAMES:
            raise ValueError(f"FAILPOINTS: no failpoint is named {name!r}; known: {', '.join(NAMES)}")
        action, *tail = rest.split(":")
        action, at, occurrences = action.partition("@")
        word, _, seconds = action.partition("=")
        if word not in ACTIONS or (word == "sleep") != bool(seconds) or bool(at) != bool(occurrences):
            raise ValueError(f"FAILPOINTS: {name}: expected kill9, stop, sleep=SECONDS, raise or drop, and perhaps @2; got {rest!r}")
        points[name] = _Point(
            action=word,
            seconds=float(seconds or 0),
            occurrences=frozenset(int(number) for number in occurrences.split("+") if number),
            probability=float(tail[0]) if tail else 1.0,
            dice=random.Random(tail[1] if len(tail) > 1 else None),  # noqa: S311 - reproducible faults
        )
    return points


armed = False  # whether any is set; callers on an order's way ask this first, because it costs no call
_points: dict[str, _Point] = {}
_lock = threading.Lock()
_step = _log = ""


def load(environ: dict[str, str] | os._Environ[str] = os.environ) -> None:
    """Read FAILPOINTS, FAILPOINT_STEP and FAILPOINT_LOG. Raises ValueError if FAILPOINTS is malformed or not allowed."""
    global armed, _step, _log
    text = environ.get("FAILPOINTS", "")
    if text and environ.get("ALLOW_FAILPOINTS") != "1":
        raise ValueError("FAILPOINTS is set but ALLOW_FAILPOINTS is not 1: failpoints break processes on purpose")
    _points.clear()
    _points.update(_parse(text))
    armed = bool(_points)
    _step, _log = environ.get("FAILPOINT_STEP", ""), environ.get("FAILPOINT_LOG", "")


def hit(name: str, steps: Iterable[str] | None = None) -> bool:
    """Pass a failpoint; true when the caller has to skip its next action. steps: the labels of the steps being worked on."""
    point = _points.get(name)
    if point is None or (_step and steps is not None and _step not in steps):
        return False
    with _lock:
        point.times += 1
        if point.occurrences and point.times not in point.occurrences:
            return False
        if point.dice.random() >= point.probability:
            return False
        if _log:
            _note(f"{name} {point.action} {point.times} {os.getpid()}\n")
    if point.action == "kill9":
        os.kill(os.getpid(), signal.SIGKILL)
    elif point.action == "stop":
        # Sent to this thread: if another thread had to be scheduled to receive it, this one would go on until then.
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    elif point.action == "sleep":
        time.sleep(point.seconds)
    elif point.action == "raise":
        raise Injected(f"failpoint {name}")
    return point.action == "drop"


def _note(line: str) -> None:
    descriptor = os.open(_log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
