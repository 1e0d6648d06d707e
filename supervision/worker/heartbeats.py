"""Heartbeats: one row per process incarnation, timed by the database's clock. Operators and readiness checks read them.

A worker in a container also touches a file, SAS_ALIVE_FILE, which a probe looks at without a connection to anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from supervision.postgres import db
from supervision.runtime import tidying
from supervision.runtime.identity import me
from supervision.runtime.periodic import PeriodicLoop
from supervision.telemetry import measures

EVERY_SECONDS = 5.0

_beats_in = 0  # the process that has a heartbeat already
_touches_in = 0  # the process that touches its file already

_BEAT = """
INSERT INTO supervision_heartbeat (incarnation, role, detail) VALUES (%(me)s, %(role)s, %(detail)s::jsonb)
ON CONFLICT (incarnation) DO UPDATE SET seen_at = now(), role = excluded.role, detail = excluded.detail
"""


def beat(role: str, detail: Mapping[str, Any] | None = None, *, name: str | None = None) -> None:
    """Write this process's heartbeat, and what it has counted. detail: what it is doing. name: write the heartbeat of something else."""
    db.run(_BEAT, {"me": name or me(), "role": role, "detail": json.dumps(dict(detail or {}))})
    measures.flush()


@tidying.tidier("heartbeats")
def delete_old(days: int = 1) -> bool:
    """Remove incarnations whose last heartbeat is older than this: a few rows a day, so all at once."""
    db.run("DELETE FROM supervision_heartbeat WHERE seen_at < now() - %(days)s::int * interval '1 day'", {"days": days})
    return False


def keep_beating(role: str, describe: Callable[[], Mapping[str, Any]] = dict) -> None:
    """Write a heartbeat every few seconds on a separate thread, as long as the process lives; `describe` is called each time.

    A process has one heartbeat: the first call counts. So a worker that runs beat as well keeps its own.
    """
    global _beats_in
    if _beats_in != os.getpid():
        _beats_in = os.getpid()
        PeriodicLoop("heartbeat", EVERY_SECONDS, lambda: beat(role, describe()), at_once=True).start()


def touch_file() -> None:
    """Touch SAS_ALIVE_FILE every few seconds, if it is set, as long as this process runs. It needs neither database nor broker."""
    global _touches_in
    path = os.environ.get("SAS_ALIVE_FILE", "").strip()
    if path and _touches_in != os.getpid():
        _touches_in = os.getpid()
        PeriodicLoop("alive", EVERY_SECONDS, Path(path).touch, at_once=True).start()
