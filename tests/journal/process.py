"""Forks writers: `python -m tests.journal.process`, one JSON request per line in, one JSON answer per line out."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from types import FrameType
from typing import Any

import django
from django.conf import settings
from django.db import connection

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
django.setup()

from supervision import conf  # noqa: E402
from supervision.journal.writer import Writer  # noqa: E402
from supervision.runtime import failpoints  # noqa: E402
from tests.support.forked import die_with_the_parent  # noqa: E402


def fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_the_parent()
        sys.stdin.close()
        write(request)
    finally:
        os._exit(0)


def write(request: dict[str, Any]) -> None:
    """Run a writer without pauses between its looks."""
    connection.settings_dict["NAME"] = request["database"]
    settings.SUPERVISION = {**settings.SUPERVISION, "JOURNAL_DIR": request["directory"], **request["settings"]}
    conf.get.cache_clear()
    failpoints.load({"FAILPOINTS": request["failpoints"], "ALLOW_FAILPOINTS": "1"})
    if request["file_size"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"], resource.RLIM_INFINITY))
    writer = Writer()

    def end(number: int, frame: FrameType | None) -> None:
        writer.stopping.set()

    def unlimited(number: int, frame: FrameType | None) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGUSR1, unlimited)
    while not writer.stopping.is_set():
        writer.look()
        time.sleep(0.002)
    writer.hand_over()


def poll(pid: int) -> int | None:
    gone, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if gone else None


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(poll(asked["poll"]) if "poll" in asked else fork(asked)), flush=True)
