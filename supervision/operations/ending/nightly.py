"""The archive's nights: the supervisor's role moves what ended long ago, as the settings say, some seconds at a time.

A pass goes on in the next turn where it was. So what stays in the tables, such as orders with an open alert, is read once in a
night, and not in each of its turns: a turn that began with the first row again would not get past so many of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

from supervision import conf
from supervision.operations import archive

log = logging.getLogger(__name__)

TURN_SECONDS = 10.0
TURN_SIZE = 200
PASS_SECONDS = 12 * 3600.0  # a pass that began earlier is one of the night before, whose next turn another process has taken

_under_way: tuple[float, Iterator[archive.Moved]] | None = None
_at_work = threading.Lock()


def turn() -> bool:
    """Archive for some seconds, and rest as long as each batch took. True if there is more to do.

    The application's own rows stay, so that its lists and its accounts still show every order.
    False, too, if another thread of this process is at it: that one sends the next hint.
    """
    older_than = conf.get().archive_after
    if older_than is None or not _at_work.acquire(blocking=False):
        return False
    try:
        return _turn(older_than)
    finally:
        _at_work.release()


def _turn(older_than: timedelta) -> bool:
    global _under_way
    began = at = time.monotonic()
    current, _under_way = _under_way, None  # a pass that fails does not go on
    if current is None or began - current[0] > PASS_SECONDS:
        current = began, archive.batches(older_than, size=TURN_SIZE, keep_orders=True)
    total = archive.Moved()
    try:
        for moved in current[1]:
            total.add(moved)
            now = time.monotonic()
            if now - began > TURN_SECONDS:
                _under_way = current
                return True
            time.sleep(now - at)
            at = time.monotonic()
    finally:
        if total != archive.Moved():
            log.info("the archive's turn: %s", total)
    return False
